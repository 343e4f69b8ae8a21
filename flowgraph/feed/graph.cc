#include "flowgraph/feed/graph.h"

#include <fmt/format.h>
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include <atomic>
#include <deque>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/float_environment.h"
#include "base/invariant.h"
#include "base/mul_div.h"
#include "base/syscall_hooks.h"
#include "flowgraph/batch/assemble.h"
#include "flowgraph/batch/batch_writer.h"
#include "flowgraph/feed/bad_records.h"
#include "flowgraph/feed/parse_stage.h"
#include "flowgraph/feed/read_stage.h"
#include "flowgraph/feed/stage_counters.h"
#include "flowgraph/feed/unpack_stage.h"
#include "flowgraph/feed/workers.h"

namespace feedline::flow {
namespace {

namespace tf = oneapi::tbb::flow;

/// Lets tests make the body of any stage fail, by the hooks that otherwise inject failures of system calls. A body may
/// throw for many reasons. In tests, running out of memory represents all of them.
using BodyOp = HookedCall<"body of a stage", ENOMEM>;

/// A message that says only that the stage is to run. To [read]: a slot has come back, or more chunks are needed. To
/// [unpack r]: an output buffer has come back, or a batch has been written.
struct Kick {};
/// The batches that one chunk completed for a replica, in order.
using Batches = std::shared_ptr<std::vector<BatchRows>>;
using ToUnpack = std::variant<Kick, Batches>;

}  // namespace

struct Graph::Impl {
  Impl(const Plan& plan, const GraphOptions& options);
  ~Impl();

  void make_nodes();
  void wake() noexcept;

  // find() is called by the node [parse], assemble() by the node [assemble].
  bool find(const ChunkRef& chunk) noexcept;
  void assemble(const ChunkRef& chunk);
  Stage busy_stage(int replica) const;
  void stop() noexcept;

  /// Runs the body of a node. Every body runs in here, so that an exception ends the feed and next() throws it.
  /// `number`: the number of the chunk or step, for traces.
  template <typename Body>
  void guarded(StageCounters& counters, Body&& body, uint64_t number) noexcept {
    const StageCounters::Busy busy(counters, static_cast<int64_t>(number));
    guarded(body);
  }
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
  const BatchWriter writer;
  std::atomic<bool> stopping{false};
  BadRecords bad_records;
  std::unique_ptr<Delivery> delivery;

  Assembler assembler;
  std::vector<std::vector<BatchRows>> completed_batches;  // by replica; only [assemble] uses it
  UnpackStage::Outlets unpack_outlets;
  std::deque<UnpackStage> unpack;  // by replica

  StageCounters assemble_counters{"feedline assemble"};

  // The arena has room only for the threads of `workers`, so oneTBB's own workers never enter it. ~Impl() ends these
  // members in the order that threads, tasks and reads in flight need.
  tbb::task_arena arena;
  struct Nodes {
    explicit Nodes(Impl& impl);
    ~Nodes() { graph.wait_for_all(); }  // make_edge() creates tasks, which must not outlive the nodes
    // Several threads wait for the graph at the same time, which `concurrent_wait` allows. Meanwhile the graph may be
    // cancelled. But no exception may leave a task then (oneTBB 2021.8), so guarded() catches every exception.
    tbb::task_group_context context{tbb::task_group_context::isolated, tbb::task_group_context::concurrent_wait};
    tf::graph graph{context};
    tf::function_node<Kick> read;
    tf::function_node<FileInflater*> inflate;
    tf::multifunction_node<ToParse, std::tuple<ChunkRef>> parse;
    tf::sequencer_node<ChunkRef> in_order;
    tf::function_node<ChunkRef> assemble;
    std::deque<tf::function_node<ToUnpack>> unpack;
    tf::function_node<UnpackStage::Pending*> write;
  };
  std::unique_ptr<Nodes> nodes;
  std::optional<Workers> workers;
  std::optional<ReadStage> read;  // after `workers`, because a completed read wakes them
  std::optional<ParseStage> parse;
};

// Only an unlimited node may have a priority. A thread that hands over a task with a priority makes the task remember
// the thread's own pool of memory (oneTBB 2021.8, prioritize_task()). But the task of a serial node may have been made
// by a different thread, in that thread's pool. Then both pools count their tasks wrongly. A pool whose thread has
// ended is freed as soon as its count is 0, so it could be freed while tasks still lie in it.
Graph::Impl::Nodes::Nodes(Impl& impl)
    : read(graph, tf::serial, [&impl](const Kick&) { impl.guarded(impl.read->reading(), [&] { impl.read->read(); }); }),
      inflate(graph, tf::unlimited,
              [&impl](FileInflater* inflater) {
                impl.guarded(impl.read->inflating(), [&] { inflater->run(); });
                impl.read->inflating().waiting--;
              }),
      parse(graph, tf::unlimited,
            [&impl](const ToParse& message, auto& to) {
              const ChunkRef chunk = impl.parse->take(message);
              if (impl.find(chunk)) {
                impl.guarded(
                    impl.parse->counters(),
                    [&] {
                      impl.parse->parse(*chunk);
                      std::get<0>(to).try_put(chunk);  // also after a failed read: [in order] waits for each number
                    },
                    chunk->sequence);
              }
              impl.parse->counters().waiting--;
            }),
      in_order(graph, [](const ChunkRef& chunk) { return chunk->sequence; }),
      assemble(graph, tf::serial,
               [&impl](const ChunkRef& chunk) {
                 impl.guarded(
                     impl.assemble_counters, [&] { impl.assemble(chunk); }, chunk->sequence);
               }),
      write(
          graph, tf::unlimited,
          [&impl](UnpackStage::Pending* batch) {
            impl.guarded(
                batch->stage.counters(), [&] { batch->stage.write(*batch); }, batch->rows.step);
          },
          tf::node_priority_t(1)) {
  tf::make_edge(tf::output_port<0>(parse), in_order);
  tf::make_edge(in_order, assemble);
  for (UnpackStage& stage : impl.unpack)
    unpack.emplace_back(graph, tf::serial, [&impl, &stage](const ToUnpack& message) {
      const Batches* const batches = std::get_if<Batches>(&message);
      impl.guarded([&] { batches ? stage.add(std::move(**batches)) : stage.run(); });
    });
}

Graph::Impl::Impl(const Plan& plan_, const GraphOptions& options)
    : plan(plan_),
      writer(plan, options.cache,
             std::ranges::any_of(options.copied_to, [](DeviceId to) { return to.kind == DeviceId::Kind::cuda; })),
      bad_records(plan),
      assembler(plan, options.start, options.deliver_before_error),
      completed_batches(static_cast<size_t>(plan.replicas)),
      arena(plan.threads, static_cast<unsigned>(plan.threads)) {
  std::vector<std::shared_ptr<BatchRing>> rings;
  for (int replica = 0; replica < plan.replicas; replica++)
    rings.push_back(std::make_shared<BatchRing>(plan, replica, options.copied_to[static_cast<size_t>(replica)]));
  delivery = std::make_unique<Delivery>(
      rings, plan.spec.host_prefetch, Position{options.start.epoch, options.start.step},
      EpochLedger(static_cast<size_t>(plan.replicas), plan.expected_audit, plan.ranks.world_size == 1,
                  options.start.epoch > 0 || options.start.step > 0),
      [this](int replica) { return busy_stage(replica); }, plan.spec.rows_can_fail());
  const auto run_unpack = [this](int replica) { nodes->unpack[static_cast<size_t>(replica)].try_put(Kick()); };
  unpack_outlets = {.write = [this](UnpackStage::Pending* batch) { nodes->write.try_put(batch); },
                    .run = run_unpack,
                    .end = [this] { read->end(); }};
  for (int replica = 0; replica < plan.replicas; replica++) {
    const auto& ring = rings[static_cast<size_t>(replica)];
    ring->pool().on_return([this, run_unpack, replica] {
      run_unpack(replica);
      wake();
    });
    unpack.emplace_back(plan, replica, writer, ring, *delivery, bad_records, options.deliver_before_error,
                        unpack_outlets);
  }
  ReadStage::Outlets read_outlets;
  read_outlets.parse = [this](const ToParse& message) {
    parse->counters().waiting++;
    nodes->parse.try_put(message);
  };
  read_outlets.inflate = [this](FileInflater* inflater) { nodes->inflate.try_put(inflater); };
  read_outlets.kick = [this] {
    nodes->read.try_put({});
    wake();
  };
  read_outlets.wake = [this] { wake(); };
  read_outlets.fail = [this](std::exception_ptr error) { delivery->fail(std::move(error)); };
  read.emplace(plan, options.start, options.io, plan.memory.lends ? options.copied_to.front() : host(),
               assembler.needed(), options.cache, std::move(read_outlets));
  parse.emplace(plan, writer, *read);
  make_nodes();
}

void Graph::Impl::make_nodes() {
  arena.execute([&] { nodes = std::make_unique<Nodes>(*this); });
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
  // When any replica runs out of ready batches, the rings of all replicas must notify their [unpack] as soon as one
  // buffer is free. The replica may lack slots because batches of a different replica hold them while they wait for a
  // buffer.
  delivery->on_shortage([this](int) {
    for (UnpackStage& stage : unpack) stage.ring().pool().set_enough(1);
    workers->wake_all();
  });
  nodes->read.try_put({});
  workers->wake_all();
}

// Wakes one thread if every replica has batches ready, because one thread is enough then. Otherwise wakes all threads.
void Graph::Impl::wake() noexcept { delivery->shortage() ? workers->wake_all() : workers->wake(); }

Graph::Impl::~Impl() {
  stop();
  read->stop_backend();
  workers->end();
  nodes->graph.reset();  // releases the queued messages
  for (UnpackStage& stage : unpack) stage.clear();
  delivery.reset();
  parse.reset();
  read.reset();
  nodes.reset();
}

void Graph::Impl::stop() noexcept {
  if (stopping.exchange(true)) return;
  read->stop();
  for (UnpackStage& stage : unpack) stage.ring().pool().close();
  delivery->stop();
  nodes->graph.cancel();
}

// Looks for the bytes of a chunk in the page cache and in the cache of records, if no thread has done so yet. Returns
// false if some of the bytes must be read from a disk; then the chunk comes again in a later message.
bool Graph::Impl::find(const ChunkRef& chunk) noexcept {
  bool all_cached = true;
  if (parse->is_untried(*chunk))
    guarded(
        read->reading(), [&] { all_cached = read->read_cached(chunk); }, chunk->sequence);
  return all_cached;
}

void Graph::Impl::assemble(const ChunkRef& chunk) {
  if (!chunk->bad.empty() || !chunk->passed_over.empty()) bad_records.note(*chunk);
  assembler.add(chunk, completed_batches);
  if (assembler.failed()) read->end();
  // If the chunks that the assembler holds filled all slots, the chunks that the next step lacks could never be read,
  // because no slot comes back before the step is made.
  check_invariant(
      assembler.failed() || assembler.held() + plan.memory.lent_chunks(plan.replicas) < plan.memory.slots_of_page_cache,
      "step {} of epoch {} needs more chunks than there are slots for: of {} slots, {} have chunks that wait for this "
      "step or a later one, and finished batches may use {}; the plan expects at most {} chunks for a step",
      assembler.next_step(), assembler.next_epoch(), plan.memory.slots_of_page_cache, assembler.held(),
      plan.memory.lent_chunks(plan.replicas), plan.memory.step_chunks);
  if (read->set_needed(assembler.needed())) nodes->read.try_put({});
  for (size_t replica = 0; replica < completed_batches.size(); replica++) {
    auto& batches = completed_batches[replica];
    if (batches.empty()) continue;
    for (BatchRows& batch : batches)
      if (batch.outcome) batch.outcome->bad_before = bad_records.in_chunks();
    unpack[replica].counters().waiting += static_cast<int64_t>(batches.size());
    nodes->unpack[replica].try_put(std::make_shared<std::vector<BatchRows>>(std::move(batches)));
    batches.clear();
  }
}

Stage Graph::Impl::busy_stage(int replica) const {
  // The thread that parses a chunk may first have to open the chunk's file. While it waits for the file to open, it
  // does no other work. If half of the threads wait in this way, next() waits for [read].
  const int opening = read->opening();
  if (2 * opening >= plan.threads) return Stage::read;
  if (unpack[static_cast<size_t>(replica)].counters().waiting > 0) return Stage::unpack;
  if (parse->counters().waiting > opening) return Stage::parse;
  if (read->inflating().waiting > 0) return Stage::inflate;
  if (opening > 0 || read->reading().waiting > 0) return Stage::read;
  // No stage has work for this replica. Batches of a different replica may hold every slot while they wait for a
  // buffer.
  for (const UnpackStage& other : unpack)
    if (other.counters().waiting > 0 && other.ring().pool().dry()) return Stage::replica;
  return Stage::read;
}

Graph::Graph(const Plan& plan, const GraphOptions& options) : impl_(std::make_unique<Impl>(plan, options)) {}

Graph::~Graph() = default;

Delivery& Graph::delivery() noexcept { return *impl_->delivery; }

void Graph::stop() noexcept { impl_->stop(); }

const std::vector<io::FileIndex>* Graph::counted() const noexcept { return impl_->read->counted(); }

std::string Graph::backend() const { return impl_->read->backend(); }

void Graph::add_to(Counters& counters) const {
  const Impl& impl = *impl_;
  const DataSet& data = impl.plan.data;
  const RecordCache* const records = impl.read->records();
  counters.read_bytes += impl.read->bytes_read();
  if (data.records > 0) counters.needed_bytes += mul_div(data.bytes, impl.parse->parsed(), data.records);
  counters.layout_hits += impl.parse->layout_hits();
  counters.decode_warnings += impl.writer.warnings();
  counters.cache_hits += impl.writer.found() + (records ? records->found() : 0);
  counters.cache_misses += impl.writer.not_found() + (records ? records->not_found() : 0);
  counters.bad_records += impl.bad_records.total();
}

std::vector<Error> Graph::errors() const { return impl_->bad_records.first(); }

std::vector<StageReport> Graph::stages() const {
  const Impl& impl = *impl_;
  const ReadStage& read = *impl.read;
  std::vector<StageReport> stages;
  const auto add = [&](std::string name, const StageCounters& counters, double wait_s, int64_t queue) {
    stages.push_back(counters.report(std::move(name), wait_s, queue));
  };
  add("read", read.reading(), read.no_slot_s(), read.reading().waiting);
  if (impl.plan.memory.inflaters > 0) add("inflate", read.inflating(), read.no_inflater_s(), read.inflating().waiting);
  add("parse", impl.parse->counters(), 0, impl.parse->counters().waiting);
  add("assemble", impl.assemble_counters, 0, 0);
  for (int r = 0; r < impl.plan.replicas; r++) {
    const UnpackStage& stage = impl.unpack[static_cast<size_t>(r)];
    add(fmt::format("unpack {}", r), stage.counters(), stage.ring().pool().dry_s(),
        static_cast<int64_t>(impl.delivery->waiting_batches(r)));
  }
  return stages;
}

}  // namespace feedline::flow
