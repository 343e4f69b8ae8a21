#include "flowgraph/feed/graph.h"

#include <fmt/format.h>
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <new>
#include <optional>
#include <system_error>

#include "base/float_environment.h"
#include "base/invariant.h"
#include "base/syscall_hooks.h"
#include "flowgraph/batch/assemble.h"
#include "flowgraph/batch/batch_writer.h"
#include "flowgraph/chunk/file_inflater.h"
#include "flowgraph/chunk/lazy_reader.h"
#include "flowgraph/chunk/slots.h"
#include "flowgraph/data/error_limits.h"
#include "flowgraph/feed/error_log.h"
#include "flowgraph/feed/stage_counters.h"
#include "flowgraph/feed/workers.h"
#include "flowgraph/plan/reader_memory.h"
#include "flowgraph/plan/ticket_queue.h"
#include "io/read/read_backend.h"

namespace feedline::flow {
namespace {

namespace tf = oneapi::tbb::flow;

/// This is not a system call. A body may throw for many reasons; tests inject running out of memory for all of them.
struct BodyOp {
  static constexpr const char* name = "body of a stage";
  static constexpr int error = ENOMEM;
};

// After this many chunks in a row that were not in the page cache, chunks are no longer looked for there first. One
// alone may be missed while the kernel moves its pages. Even then one chunk in `cache_tried_once_in` is looked for
// there.
constexpr uint64_t misses_until_disk = 2, cache_tried_once_in = 16;
// After this many reads from a disk the memory of all slots is registered for reading. This makes the memory resident,
// which is not worth it for data that the page cache has.
constexpr uint64_t registered_behind = 64;

struct Kick {};
/// The batches that one chunk completed for one replica, in order. Null: an output buffer has come back, or a batch has
/// been written.
using Batches = std::shared_ptr<std::vector<BatchRows>>;

/// A batch that has a buffer; or the end of an epoch or a failure, which needs none.
struct PendingBatch {
  PendingBatch(BatchRows&& rows_, int replica_, BatchBuffer* buffer_)
      : rows(std::move(rows_)), replica(replica_), buffer(buffer_), done(!buffer) {}
  BatchRows rows;
  int replica;
  BatchBuffer* buffer;
  std::atomic<bool> done;
};

Error read_failed(const Plan& plan, const Ticket& ticket, int error) {
  const Extent& first = ticket.extents.front();
  return Error(Category::io_error, io::read_error_message(error),
               {plan.data.files[first.file].id.uri,
                static_cast<int64_t>(first.offset),
                static_cast<int64_t>(first.first_record),
                {}});
}

}  // namespace

struct Graph::Impl {
  Impl(const Plan& plan, const GraphOptions& options);
  ~Impl();

  // What is being read, into a slot or into an input of an inflater. It is the tag of its reads.
  struct InFlight {
    ChunkRef chunk;
    FileInflater::Input* input = nullptr;
    std::atomic<size_t> left{0};
    std::atomic<int> error{0};
    void fly(ChunkRef to, size_t reads, int error_so_far) {
      chunk = std::move(to);
      left = reads;
      error = error_so_far;
    }
    std::vector<io::Read> untried;  // these may lie in the page cache: [parse] looks there first
  };

  void make_inflaters();
  void make_backend(const IoOptions& io);
  void make_nodes();
  void wake() noexcept;

  // The bodies of the nodes, and what they use.
  void read();
  bool cached() const noexcept { return misses < misses_until_disk; }
  uint64_t read_ahead() const noexcept { return cached() ? plan.read_ahead : plan.read_ahead_of_disk; }
  bool issue_next();
  bool read_lazily();
  FileInflater*& inflater_of(const Ticket& ticket);
  bool inflater_ready(const Ticket& ticket);
  void run_inflater(FileInflater* inflater);
  void read_into(const ChunkRef& chunk);
  void inflate_into(const ChunkRef& chunk);
  void submit(std::span<const io::Read> reads, size_t flying);
  void completed(InFlight& flight, int error) noexcept;
  ChunkRef oldest_not_looked_up();
  bool has_arrived(const ChunkRef& chunk) noexcept;
  bool read_cached(const ChunkRef& chunk, InFlight& flight);
  void note_read(Chunk& chunk, int error);
  void parse(Chunk& chunk);
  void assemble(const ChunkRef& chunk);
  void unpack(int replica, const Batches& message);
  void begin_batches(int replica);
  void deliver_done(int replica);
  void wait_for_many_buffers(int replica);
  void write(PendingBatch& batch);
  std::optional<std::string> exceeded_limit() const;
  std::optional<Error> note(const Error& error);
  void note_errors(Chunk& chunk);
  Stage busy_stage(int replica) const;
  void stop() noexcept;

  /// Runs a body. Every body runs in here, because an exception that left it would wake nobody.
  template <typename Body>
  void guarded(StageCounters& counters, Body&& body) noexcept {
    const StageCounters::Busy busy(counters);
    guarded(body);
  }
  template <typename Body>
  void guarded(Body&& body) noexcept {
    const DefaultFloatEnvironment floats;
    if (stopping) return;
    try {
      if (injected<BodyOp>()) throw std::bad_alloc();
      body();
    } catch (...) {
      delivery->fail(std::current_exception());
      stop();
    }
  }

  const Plan& plan;
  const GraphOptions options;
  const BatchWriter writer;
  std::atomic<bool> stopping{false};
  // The feed has ended with an error that is on its way to next(). To read on could keep a lone thread from ever
  // delivering it.
  std::atomic<bool> ended{false};

  // The memory, and the pools that say who may use it.
  const std::shared_ptr<Slots> slots;
  gpu::Memory inflater_memory;
  std::optional<Pool<FileInflater*>> idle_inflaters;
  std::deque<InFlight> flights;  // by slot, then two for each inflater
  std::deque<FileInflater> inflaters;
  std::vector<std::shared_ptr<BatchRing>> rings;
  std::unique_ptr<Delivery> delivery;

  // What [read] uses. Only its body touches these members.
  TicketQueue tickets;
  uint64_t next_sequence = 0;
  std::vector<FileInflater*> open_inflaters;  // by source of a mixture, or only one: reads the source's compressed file
  std::vector<io::Read> requests;             // the reads of one burst
  size_t burst = 0;                           // how many chunks these are for
  uint64_t passed_by = 0;                     // how many chunks were not looked for in the page cache
  std::optional<LazyReader> lazy;             // LAZY: used instead of all these

  // How many chunks the page cache did not have since the last one that it had.
  std::atomic<uint64_t> misses{0};

  // Chunks that may lie in the page cache. A task of [parse] takes the oldest one: the chunk that is read last is
  // needed last, but oneTBB runs the newest task first.
  std::mutex not_looked_up_mutex;
  std::deque<ChunkRef> not_looked_up;

  // What [assemble] uses.
  Assembler assembler;
  std::atomic<uint64_t> needed;  // the value of Assembler::needed()
  std::vector<std::vector<BatchRows>> completed_batches;
  // What [unpack r] uses: batches that wait for a buffer, and those that have one and wait to be delivered in their
  // order.
  std::vector<std::deque<BatchRows>> waiting;
  std::vector<std::deque<PendingBatch>> pending;

  StageCounters read_counters{"feedline read"}, inflate_counters{"feedline inflate"}, parse_counters{"feedline parse"},
      assemble_counters{"feedline assemble"};
  std::deque<StageCounters> unpack_counters;
  std::atomic<uint64_t> bytes_read{0}, layout_hits{0}, parsed{0};
  ErrorLog errors;

  // The graph is the last member, so that it is destroyed first. All places of its arena are for threads that come by
  // themselves, so oneTBB sends no threads of its own.
  tbb::task_arena arena;
  struct Nodes {
    explicit Nodes(Impl& impl);
    ~Nodes() { graph.wait_for_all(); }  // edges make tasks, which must not outlive the nodes
    // Several threads wait for the graph at the same time. Cancelling it is safe then. An exception that leaves a task
    // would not be safe (oneTBB 2021.8), so none does: see guarded().
    tbb::task_group_context context{tbb::task_group_context::isolated, tbb::task_group_context::concurrent_wait};
    tf::graph graph{context};
    tf::async_node<Kick, ChunkRef> read;
    tf::function_node<FileInflater*> inflate;
    tf::multifunction_node<ChunkRef, std::tuple<ChunkRef>> parse;
    tf::sequencer_node<ChunkRef> in_order;
    tf::function_node<ChunkRef> assemble;
    std::deque<tf::function_node<Batches>> unpack;
    tf::function_node<PendingBatch*> write;
  };
  std::unique_ptr<Nodes> nodes;
  std::optional<Workers> workers;
  std::unique_ptr<io::ReadBackend> backend;  // the reads that it completes wake workers
};

Graph::Impl::Nodes::Nodes(Impl& impl)
    : read(graph, tf::serial, [&impl](const Kick&, auto&) { impl.guarded(impl.read_counters, [&] { impl.read(); }); }),
      inflate(graph, tf::unlimited,
              [&impl](FileInflater* busy) {
                impl.guarded(impl.inflate_counters, [&] { busy->run(); });
                impl.inflate_counters.waiting--;
              }),
      parse(graph, tf::unlimited,
            [&impl](const ChunkRef& arrived, auto& to) {
              const ChunkRef chunk = arrived ? arrived : impl.oldest_not_looked_up();
              if (impl.has_arrived(chunk)) {
                impl.guarded(impl.parse_counters, [&] {
                  impl.parse(*chunk);
                  std::get<0>(to).try_put(chunk);  // even if it could not be read: its number must arrive
                });
              }
              impl.parse_counters.waiting--;
            }),
      in_order(graph, [](const ChunkRef& chunk) { return chunk->sequence; }),
      assemble(
          graph, tf::serial,
          [&impl](const ChunkRef& chunk) { impl.guarded(impl.assemble_counters, [&] { impl.assemble(chunk); }); },
          tf::node_priority_t(1)),
      write(
          graph, tf::unlimited,
          [&impl](PendingBatch* batch) {
            impl.guarded(impl.unpack_counters[static_cast<size_t>(batch->replica)], [&] { impl.write(*batch); });
          },
          tf::node_priority_t(1)) {
  tf::make_edge(read, parse);
  tf::make_edge(tf::output_port<0>(parse), in_order);
  tf::make_edge(in_order, assemble);
  for (int replica = 0; replica < impl.plan.replicas; replica++)
    unpack.emplace_back(
        graph, tf::serial,
        [&impl, replica](const Batches& message) { impl.guarded([&] { impl.unpack(replica, message); }); },
        tf::node_priority_t(1));
}

Graph::Impl::Impl(const Plan& plan_, const GraphOptions& options_)
    : plan(plan_),
      options(options_),
      writer(plan),
      slots(std::make_shared<Slots>(plan, plan.lends ? options.copied_to.front() : host())),
      flights(plan.slots),
      tickets(plan, options.start),
      open_inflaters(plan.mixture ? plan.spec.sources.size() : 1),
      assembler(plan, options.start, options.deliver_before_error),
      needed(assembler.needed()),
      completed_batches(static_cast<size_t>(plan.replicas)),
      waiting(static_cast<size_t>(plan.replicas)),
      pending(static_cast<size_t>(plan.replicas)),
      arena(plan.threads, static_cast<unsigned>(plan.threads)) {
  if (plan.data.lazy) lazy.emplace(plan);
  make_inflaters();
  for (int replica = 0; replica < plan.replicas; replica++) {
    unpack_counters.emplace_back("feedline unpack");
    rings.push_back(std::make_shared<BatchRing>(plan, replica, options.copied_to[static_cast<size_t>(replica)]));
  }
  delivery = std::make_unique<Delivery>(
      rings, plan.spec.host_prefetch, Position{options.start.epoch, options.start.step},
      EpochLedger(static_cast<size_t>(plan.replicas), plan.expected_audit, plan.ranks.world_size == 1,
                  options.start.epoch > 0 || options.start.step > 0),
      [this](int replica) { return busy_stage(replica); });
  if (!lazy) make_backend(options.io);
  make_nodes();
}

void Graph::Impl::make_inflaters() {
  std::vector<FileInflater*> idle;
  if (plan.inflaters > 0) inflater_memory = gpu::Memory(plan.inflaters * inflater_memory_bytes);
  for (uint32_t l = 0; l < plan.inflaters; l++) {
    flights.emplace_back();
    flights.emplace_back();
    FileInflater::Callbacks callbacks;
    callbacks.read = [this, l](uint32_t file, FileInflater::Input& input) {
      InFlight& flight = flights[plan.slots + 2 * l + input.number];
      flight.input = &input;
      flight.left = 1;
      flight.error = 0;
      const io::Read read{
          .file = file, .offset = input.offset, .length = input.length, .buffer = input.buffer, .tag = &flight};
      submit({&read, 1}, 1);
    };
    callbacks.done = [this](const ChunkRef& chunk) {
      parse_counters.waiting++;
      nodes->parse.try_put(chunk);
    };
    callbacks.idle = [this](FileInflater* idle_inflater) { idle_inflaters->give_back(idle_inflater); };
    inflaters.emplace_back(plan, inflater_memory.bytes().subspan(l * inflater_memory_bytes, inflater_memory_bytes),
                           std::move(callbacks));
    idle.push_back(&inflaters.back());
  }
  idle_inflaters.emplace(std::move(idle));
}

void Graph::Impl::make_backend(const IoOptions& io) {
  std::vector<io::FileId> files;
  for (const DataFile& file : plan.data.files) files.push_back(file.id);
  io::BackendOptions backend_options;
  static_cast<IoOptions&>(backend_options) = io;
  backend_options.memory = slots->read_memory();
  backend_options.registered_behind = registered_behind;
  backend = io::make_read_backend(std::move(files), backend_options,
                                  [this](void* tag, int error) { completed(*static_cast<InFlight*>(tag), error); });
}

void Graph::Impl::make_nodes() {
  arena.execute([&] { nodes = std::make_unique<Nodes>(*this); });
  const auto kick_read = [this] {
    nodes->read.try_put({});
    wake();
  };
  slots->pool().on_return(kick_read);
  idle_inflaters->on_return(kick_read);
  for (int replica = 0; replica < plan.replicas; replica++)
    rings[static_cast<size_t>(replica)]->pool().on_return([this, replica] {
      nodes->unpack[static_cast<size_t>(replica)].try_put(nullptr);
      wake();
    });
  try {
    workers.emplace(plan.threads, [this] {
      try {
        nodes->graph.wait_for_all();
      } catch (...) {
        delivery->fail(std::current_exception());
      }
    });
  } catch (const std::system_error& error) {
    throw Error(Category::io_error, fmt::format("the feeder's thread cannot be started: {}", error.what()));
  }
  // For all rings: what one replica lacks may wait for slots. These may be held by batches of another replica that has
  // no buffer for them.
  delivery->on_shortage([this](int) {
    for (const auto& ring : rings) ring->pool().set_enough(1);
    workers->wake_all();
  });
  nodes->read.try_put({});
  workers->wake_all();
}

// Wakes one thread if every replica has batches ready, because one is enough then; otherwise wakes all.
void Graph::Impl::wake() noexcept { delivery->shortage() ? workers->wake_all() : workers->wake(); }

Graph::Impl::~Impl() {
  stop();
  if (backend) backend->stop();
  workers->end();
  nodes->graph.reset();  // releases the queued messages
  waiting.clear();
  pending.clear();
  not_looked_up.clear();
  delivery.reset();
  backend.reset();
  nodes.reset();
}

void Graph::Impl::stop() noexcept {
  if (stopping.exchange(true)) return;
  slots->pool().close();
  idle_inflaters->close();
  for (auto& ring : rings) ring->pool().close();
  delivery->stop();
  nodes->graph.cancel();
}

void Graph::Impl::read() {
  if (lazy) {
    while (read_lazily()) {
    }
    return;
  }
  if (next_sequence > needed + read_ahead() / 2) return;  // several at a time, because each burst wakes the I/O thread
  while (issue_next()) {
  }
  if (requests.empty()) return;
  submit(requests, std::exchange(burst, 0));
  requests.clear();
}

// Takes everything that the next ticket needs, or nothing; then a kick runs [read] again. A chunk that is read earlier
// than it must be has left the cache by the time that it is wanted.
bool Graph::Impl::issue_next() {
  if (stopping || ended || next_sequence >= needed + read_ahead()) return false;
  Ticket* const ticket = tickets.front();
  if (!ticket || !inflater_ready(*ticket)) return false;
  const ChunkRef chunk = slots->take(cached() ? plan.slots - plan.slots_of_page_cache : 0);
  if (!chunk) return false;

  chunk->sequence = next_sequence++;
  std::swap(chunk->ticket, *ticket);
  tickets.pop();
  read_into(chunk);
  return true;
}

// Reads the next chunk. It is read here because the next ticket is not known before its records have been read.
bool Graph::Impl::read_lazily() {
  if (stopping || ended || lazy->ended()) return false;
  const ChunkRef chunk = slots->take();
  if (!chunk) return false;
  chunk->sequence = next_sequence++;
  lazy->fill(*chunk);
  bytes_read = lazy->bytes_read();
  parse_counters.waiting++;
  nodes->parse.try_put(chunk);
  return true;
}

// Returns the inflater that serves the ticket. The sources of a mixture take turns, so each keeps its own inflater.
FileInflater*& Graph::Impl::inflater_of(const Ticket& ticket) {
  return open_inflaters[plan.mixture ? plan.data.files[ticket.extents.front().file].source : 0];
}

// Makes an inflater ready for the ticket, if its file is compressed. The inflater that has the file open is used, if it
// has not passed the ticket's place; otherwise another one begins at the front of the file. Returns false if no
// inflater is idle; the next one that becomes idle kicks [read].
bool Graph::Impl::inflater_ready(const Ticket& ticket) {
  if (ticket.extents.empty()) return true;
  const uint32_t file = ticket.extents.front().file;
  if (!plan.data.files[file].compressed()) return true;
  FileInflater*& inflater = inflater_of(ticket);
  if (inflater && inflater->continues_with(ticket)) return true;
  if (FileInflater* const before = std::exchange(inflater, nullptr); before && before->finish()) run_inflater(before);
  const auto idle = idle_inflaters->take();
  if (!idle) return false;
  inflater = *idle;
  inflater->open(file);
  return true;
}

void Graph::Impl::run_inflater(FileInflater* inflater) {
  inflate_counters.waiting++;
  nodes->inflate.try_put(inflater);
}

void Graph::Impl::inflate_into(const ChunkRef& chunk) {
  std::byte* at = chunk->data().data();
  for (const Extent& extent : chunk->ticket.extents) {
    chunk->extents.push_back(at);
    at += extent.length;
  }
  FileInflater* const inflater = inflater_of(chunk->ticket);
  if (inflater->add(chunk)) run_inflater(inflater);
}

void Graph::Impl::read_into(const ChunkRef& chunk) {
  const Ticket& ticket = chunk->ticket;
  std::byte* at = chunk->data().data();
  chunk->extents.clear();
  if (ticket.extents.empty()) {  // the ticket only brings the end of an epoch
    parse_counters.waiting++;
    nodes->parse.try_put(chunk);
    return;
  }
  const bool compressed = plan.data.files[ticket.extents.front().file].compressed();
  const uint64_t bytes = slot_bytes(ticket, compressed);
  check_invariant(bytes <= chunk->data().size(), "a read of {} bytes, in {} parts of {} from {} on, for a slot of {}",
                  bytes, ticket.extents.size(), plan.data.files[ticket.extents.front().file].id.uri,
                  ticket.extents.front().offset, chunk->data().size());
  if (compressed) return inflate_into(chunk);
  InFlight& flight = flights[chunk->slot()];
  const bool try_cache = cached() || ++passed_by % cache_tried_once_in == 0;
  std::vector<io::Read>& reads = try_cache ? flight.untried : requests;
  for (const Extent& extent : ticket.extents) {
    reads.push_back(
        {.file = extent.file, .offset = extent.offset, .length = extent.length, .buffer = at, .tag = &flight});
    chunk->extents.push_back(at + extent.offset % io::block_bytes);
    at += io::Read::capacity_for(extent.offset, extent.length);
  }
  if (try_cache) {
    parse_counters.waiting++;
    {
      const std::lock_guard lock(not_looked_up_mutex);
      not_looked_up.push_back(chunk);
    }
    nodes->parse.try_put(nullptr);
  } else {
    flight.fly(chunk, ticket.extents.size(), 0);
    burst++;
  }
}

ChunkRef Graph::Impl::oldest_not_looked_up() {
  const std::lock_guard lock(not_looked_up_mutex);
  const ChunkRef oldest = std::move(not_looked_up.front());
  not_looked_up.pop_front();
  return oldest;
}

// Returns whether the chunk can be parsed. If not, it comes again when it has been read.
bool Graph::Impl::has_arrived(const ChunkRef& chunk) noexcept {
  InFlight& flight = flights[chunk->slot()];
  bool arrived = true;
  if (!flight.untried.empty()) guarded(read_counters, [&] { arrived = read_cached(chunk, flight); });
  return arrived;
}

// Copies what lies in the page cache, on the thread that parses it. So the bytes are then in that core's cache, no
// thread must be woken, and as many threads copy as parse. From the first read that is not in the page cache on, the
// reads are submitted. Returns whether all of the chunk was in the page cache.
bool Graph::Impl::read_cached(const ChunkRef& chunk, InFlight& flight) {
  const std::vector<io::Read> reads = std::exchange(flight.untried, {});
  int error = 0;
  auto read = reads.begin();
  for (; read != reads.end(); ++read) {
    const std::optional<int> over = backend->read_cached(*read);
    if (!over) break;
    if (error == 0) error = *over;
  }
  const size_t left = static_cast<size_t>(reads.end() - read);
  misses = left == 0 ? 0 : misses + 1;
  if (left == 0) {
    note_read(*chunk, error);
    return true;
  }
  flight.fly(chunk, left, error);
  submit({read, reads.end()}, 1);
  return false;
}

// Submits reads; `flying` is how many chunks or inputs will come out of completed().
void Graph::Impl::submit(std::span<const io::Read> reads, size_t flying) {
  read_counters.waiting += static_cast<int64_t>(flying);
  backend->submit(reads);
}

// Called on the I/O thread.
void Graph::Impl::completed(InFlight& flight, int error) noexcept {
  int none = 0;
  if (error != 0) flight.error.compare_exchange_strong(none, error);
  if (flight.left.fetch_sub(1) != 1) return;
  try {
    if (flight.input) {
      bytes_read += flight.input->length;
      if (flight.input->inflater->arrived(*flight.input, flight.error)) run_inflater(flight.input->inflater);
    } else {
      const ChunkRef chunk = std::move(flight.chunk);
      note_read(*chunk, flight.error);
      parse_counters.waiting++;
      nodes->read.gateway().try_put(chunk);
    }
  } catch (...) {
    delivery->fail(std::current_exception());
  }
  read_counters.waiting--;
  wake();
}

void Graph::Impl::note_read(Chunk& chunk, int error) {
  bytes_read += chunk.ticket.bytes();
  if (error != 0) chunk.failed = read_failed(plan, chunk.ticket, error);
}

void Graph::Impl::parse(Chunk& chunk) {
  chunk.parse(plan);
  layout_hits += chunk.layout_hits();
  parsed += chunk.rows();
}

void Graph::Impl::assemble(const ChunkRef& chunk) {
  if (!chunk->errors.empty() || !chunk->passed_over.empty()) note_errors(*chunk);
  assembler.add(chunk, completed_batches);
  if (assembler.failed()) ended = true;
  // Otherwise the chunks that the next step lacks could never be read, because no slot comes back before it is made.
  check_invariant(ended || assembler.held() + plan.lent_chunks() < plan.slots_of_page_cache,
                  "step {} of epoch {} needs more chunks than the {} that are planned: {} are held, of {} slots",
                  assembler.next_step(), assembler.next_epoch(), plan.step_chunks, assembler.held(),
                  plan.slots_of_page_cache);
  if (needed.exchange(assembler.needed()) != assembler.needed()) nodes->read.try_put({});
  for (size_t replica = 0; replica < completed_batches.size(); replica++) {
    auto& batches = completed_batches[replica];
    if (batches.empty()) continue;
    unpack_counters[replica].waiting += static_cast<int64_t>(batches.size());
    nodes->unpack[replica].try_put(std::make_shared<std::vector<BatchRows>>(std::move(batches)));
    batches.clear();
  }
}

// Returns why a limit of `errors` is exceeded by the bad records met so far and those that were left out before;
// nullopt if all are allowed. A file that SKIP_FILE left out is one failure, and does not count among the records.
std::optional<std::string> Graph::Impl::exceeded_limit() const {
  const uint64_t skipped = plan.data.skipped_total;
  const uint64_t records = plan.spec.on_error == OnError::skip_file ? 0 : skipped;
  auto limit = exceeds_max_failures(plan.spec, errors.total() + skipped);
  if (!limit) limit = exceeds_failure_rate(plan.spec, errors.total() + records, plan.data.samples + records, "records");
  return limit;
}

// Notes a bad record. After the last failure that is allowed, returns the Error that ends the feed.
std::optional<Error> Graph::Impl::note(const Error& error) {
  errors.note(error);
  const auto limit = exceeded_limit();
  if (!limit) return std::nullopt;
  return Error(error.category(), fmt::format("{}; the last: {}", *limit, error.message()), error.place());
}

void Graph::Impl::note_errors(Chunk& chunk) {
  for (const Chunk::PassedOver& bad : chunk.passed_over)
    if (auto end = note(bad.error)) return chunk.end_before(bad.rows, std::move(*end));
  for (size_t i = 0; i < chunk.errors.size(); i++)
    if (auto end = note(chunk.errors[i])) return chunk.end_before(chunk.filler[i], std::move(*end));
}

void Graph::Impl::unpack(int replica, const Batches& message) {
  std::deque<BatchRows>& queue = waiting[static_cast<size_t>(replica)];
  if (message) std::move(message->begin(), message->end(), std::back_inserter(queue));
  begin_batches(replica);
  deliver_done(replica);
  if (!queue.empty() && pending[static_cast<size_t>(replica)].empty()) delivery->out_of_buffers(replica);
}

void Graph::Impl::begin_batches(int replica) {
  const auto r = static_cast<size_t>(replica);
  std::deque<BatchRows>& queue = waiting[r];
  for (; !queue.empty() && !stopping; queue.pop_front()) {
    if (queue.front().kind != BatchRows::Kind::batch) {
      pending[r].emplace_back(std::move(queue.front()), replica, nullptr);
      continue;
    }
    const auto buffer = rings[r]->pool().take();
    if (!buffer) return;
    pending[r].emplace_back(std::move(queue.front()), replica, *buffer);
    nodes->write.try_put(&pending[r].back());
  }
}

void Graph::Impl::write(PendingBatch& batch) {
  writer.write(batch.rows, *batch.buffer);
  const int replica = batch.replica;
  batch.done = true;  // after this it may be gone
  nodes->unpack[static_cast<size_t>(replica)].try_put(nullptr);
}

void Graph::Impl::deliver_done(int replica) {
  const auto r = static_cast<size_t>(replica);
  std::vector<Ready> done;
  for (; !pending[r].empty() && pending[r].front().done; pending[r].pop_front()) {
    PendingBatch& next = pending[r].front();
    done.push_back(
        {.batch = {}, .error = next.rows.error, .keeps = next.rows.brought_by, .end = std::move(next.rows.end)});
    if (next.buffer) {
      done.back().passes = next.buffer->passes;
      done.back().batch = rings[r]->share(next.buffer);
    }
    unpack_counters[r].waiting--;
  }
  if (done.empty()) return;
  delivery->put_all(replica, done);
  wait_for_many_buffers(replica);
}

// While every replica has batches ready, the pool waits for buffers until many can be filled in one go. A shortage has
// the last word, whether it comes before this or after it.
void Graph::Impl::wait_for_many_buffers(int replica) {
  BatchRing& ring = *rings[static_cast<size_t>(replica)];
  const size_t others = ring.pool().size() - std::min<size_t>(ring.held + 1, ring.pool().size());
  ring.pool().set_enough(std::max<size_t>(1, others / 2));
  if (delivery->shortage()) ring.pool().set_enough(1);
}

Stage Graph::Impl::busy_stage(int replica) const {
  if (unpack_counters[static_cast<size_t>(replica)].waiting > 0) return Stage::unpack;
  if (parse_counters.waiting > 0) return Stage::parse;
  if (inflate_counters.waiting > 0) return Stage::inflate;
  if (read_counters.waiting > 0) return Stage::read;
  // Nothing is on its way. Batches that other replicas do not take may hold every slot.
  for (size_t other = 0; other < rings.size(); other++)
    if (unpack_counters[other].waiting > 0 && rings[other]->pool().dry()) return Stage::replica;
  return Stage::read;
}

Graph::Graph(const Plan& plan, const GraphOptions& options) : impl_(std::make_unique<Impl>(plan, options)) {}

Graph::~Graph() = default;

Delivery& Graph::delivery() noexcept { return *impl_->delivery; }

void Graph::stop() noexcept { impl_->stop(); }

const std::vector<io::FileIndex>* Graph::counted() const noexcept {
  return impl_->lazy && impl_->lazy->counted() ? &*impl_->lazy->counted() : nullptr;
}

std::string Graph::backend() const {
  return impl_->lazy ? "blocking reads, file after file: index.mode is LAZY" : impl_->backend->description();
}

GraphReport Graph::report() const {
  const Impl& impl = *impl_;
  GraphReport report{.bytes_read = impl.bytes_read,
                     .layout_hits = impl.layout_hits,
                     .parsed = impl.parsed,
                     .errors_total = impl.errors.total(),
                     .errors = impl.errors.first(),
                     .stages = {}};
  const auto add = [&](std::string name, const StageCounters& counters, double wait_s, int64_t queue) {
    report.stages.push_back(
        {std::move(name), static_cast<double>(counters.busy_ns) / 1e9, wait_s, counters.messages, queue});
  };
  add("read", impl.read_counters, impl.slots->pool().dry_s(), impl.read_counters.waiting);
  if (impl.plan.inflaters > 0)
    add("inflate", impl.inflate_counters, impl.idle_inflaters->dry_s(), impl.inflate_counters.waiting);
  add("parse", impl.parse_counters, 0, impl.parse_counters.waiting);
  add("assemble", impl.assemble_counters, 0, 0);
  for (int r = 0; r < impl.plan.replicas; r++)
    add(fmt::format("unpack {}", r), impl.unpack_counters[static_cast<size_t>(r)],
        impl.rings[static_cast<size_t>(r)]->pool().dry_s(), static_cast<int64_t>(impl.delivery->waiting_batches(r)));
  return report;
}

}  // namespace feedline::flow
