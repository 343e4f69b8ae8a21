#include "flowgraph/feed/read_stage.h"

#include <algorithm>
#include <utility>

#include "base/invariant.h"
#include "flowgraph/plan/reader_memory.h"
#include "io/read/source.h"

namespace feedline::flow {
namespace {

// After `misses_until_disk` chunks in a row that were not in the page cache, only one chunk in `cache_tried_once_in` is
// looked for there before it is read. (One chunk that is missing says little: the kernel may be moving its pages.)
constexpr uint64_t misses_until_disk = 2, cache_tried_once_in = 16;
// After this many reads from a disk the memory of all slots is registered with io_uring. This makes the memory
// resident, which does not pay if the page cache has the data.
constexpr uint64_t reads_before_registering = 64;

Error read_failed(const Plan& plan, const Extent& extent, int error) {
  return Error(Category::io_error, io::read_error_message(error),
               {plan.data.files[extent.file].id.uri,
                static_cast<int64_t>(extent.offset),
                static_cast<int64_t>(extent.first_record),
                {}});
}

}  // namespace

ReadStage::ReadStage(const Plan& plan, const Walk::Start& start, const IoOptions& io, DeviceId lent_to, uint64_t needed,
                     CacheStore* cache, Outlets outlets)
    : plan_(plan),
      outlets_(std::move(outlets)),
      slots_(std::make_shared<Slots>(plan.memory, lent_to)),
      flights_(plan.memory.slots),
      tickets_(plan, start),
      needed_(needed) {
  if (plan.data.lazy) lazy_.emplace(plan);
  if (cache && cache->store() && plan.cache->pieces()) records_.emplace(plan, *cache->store());
  make_inflaters();
  slots_->pool().on_return(outlets_.kick);
  idle_inflaters_->on_return(outlets_.kick);
  if (!lazy_) make_backend(io);
}

void ReadStage::make_inflaters() {
  if (plan_.memory.inflaters > 0) inflater_memory_ = gpu::Memory(plan_.memory.inflaters * inflater_memory_bytes);
  for (uint32_t i = 0; i < plan_.memory.inflaters; i++) {
    flights_.emplace_back();
    flights_.emplace_back();
    FileInflater::Callbacks callbacks;
    callbacks.read = [this, i](uint32_t file, FileInflater::Input& input) {
      InFlight& flight = flights_[plan_.memory.slots + 2 * i + input.number];
      flight.input = &input;
      flight.parts.assign(1, {&flight, 0});
      flight.left = 1;
      flight.error = 0;
      const io::Read read{.file = file,
                          .offset = input.offset,
                          .length = input.length,
                          .buffer = input.buffer,
                          .tag = &flight.parts.front()};
      submit({&read, 1}, 1);
    };
    callbacks.done = outlets_.parse;
    callbacks.idle = [this](FileInflater* idle_inflater) { idle_inflaters_->give_back(idle_inflater); };
    inflaters_.emplace_back(plan_, inflater_memory_.bytes().subspan(i * inflater_memory_bytes, inflater_memory_bytes),
                            std::move(callbacks));
  }
  idle_inflaters_.emplace(pointers_to(inflaters_));
}

void ReadStage::make_backend(const IoOptions& io) {
  std::vector<io::FileId> files;
  for (const DataFile& file : plan_.data.files) files.push_back(file.id);
  io::BackendOptions options;
  static_cast<IoOptions&>(options) = io;
  options.memory = slots_->read_memory();
  options.register_after_reads = reads_before_registering;
  backend_ = io::all_files().make_read_backend(std::move(files), options, [this](void* tag, int error) {
    completed(*static_cast<const InFlight::Part*>(tag), error);
  });
}

void ReadStage::stop() noexcept {
  end();
  slots_->pool().close();
  idle_inflaters_->close();
}

void ReadStage::stop_backend() {
  if (backend_) backend_->stop();
}

std::string ReadStage::backend() const {
  return lazy_ ? "blocking reads, file after file: index.mode is LAZY" : backend_->description();
}

bool ReadStage::cached() const noexcept { return misses_ < misses_until_disk; }

uint64_t ReadStage::read_ahead() const noexcept {
  return cached() ? plan_.memory.read_ahead : plan_.memory.read_ahead_of_disk;
}

void ReadStage::read() {
  if (lazy_) {
    while (read_lazily()) {
    }
    return;
  }
  inflate_after_all();
  // Begins only if many reads can be issued as one burst, because each burst wakes the I/O thread.
  if (next_sequence_ > needed_ + read_ahead() / 2) return;
  while (issue_next()) {
  }
  if (requests_.empty()) return;
  submit(requests_, std::exchange(burst_, 0));
  requests_.clear();
}

// Begins to read the next ticket. Returns false if the ticket is too far ahead of the steps, or if no slot or no
// inflater is free. When that has changed, read() is called again. (A chunk that is read too early has left the CPU's
// caches when it is used.)
bool ReadStage::issue_next() {
  if (ended_ || next_sequence_ >= needed_ + read_ahead()) return false;
  Ticket* const ticket = tickets_.front();
  if (!ticket) return false;
  const bool found = found_all(*ticket);
  if (!found && !inflater_ready(*ticket)) return false;
  const ChunkRef chunk = slots_->take(cached() ? plan_.memory.slots - plan_.memory.slots_of_page_cache : 0);
  if (!chunk) return false;

  chunk->sequence = next_sequence_++;
  std::swap(chunk->ticket, *ticket);
  tickets_.pop();
  read_into(chunk, found);
  return true;
}

// index.mode LAZY: reads the next chunk on the calling thread, because a ticket is known only when its records have
// been read. Returns false if the data has ended or no slot is free.
bool ReadStage::read_lazily() {
  if (ended_ || lazy_->ended()) return false;
  const ChunkRef chunk = slots_->take();
  if (!chunk) return false;
  chunk->sequence = next_sequence_++;
  lazy_->fill(*chunk);
  if (ended_) return false;  // end() was called meanwhile, so the chunk may lack records
  bytes_read_ = lazy_->bytes_read();
  outlets_.parse(chunk);
  return true;
}

// Returns the open inflater that has not passed the ticket's first byte and is in the same section of its file. Null if
// there is none.
FileInflater* ReadStage::open_inflater(const Ticket& ticket) noexcept {
  const auto found = std::ranges::find_if(open_inflaters_, [&](auto* open) { return open->continues_with(ticket); });
  if (found == open_inflaters_.end()) return nullptr;
  std::rotate(found, found + 1, open_inflaters_.end());
  return open_inflaters_.back();
}

// Makes an inflater ready for the ticket, if it needs one: an open one, or an idle one, which then opens the section of
// the file. Returns false if no inflater is idle; then read() is called again when an inflater becomes idle.
bool ReadStage::inflater_ready(const Ticket& ticket) {
  if (!ticket.inflates) return true;
  if (ticket.scattered ? for_scattered_ : open_inflater(ticket)) return true;
  if (!ticket.scattered && open_inflaters_.size() == plan_.memory.open_inflaters) {
    FileInflater* const oldest = open_inflaters_.front();
    open_inflaters_.erase(open_inflaters_.begin());
    if (oldest->finish()) run_inflater(oldest);
  }
  const auto idle = idle_inflaters_->take();
  if (!idle) return false;
  if (ticket.scattered) {
    for_scattered_ = *idle;
  } else {
    (*idle)->open(ticket.extents.front().file, ticket.extents.front().offset);
    open_inflaters_.push_back(*idle);
  }
  return true;
}

void ReadStage::run_inflater(FileInflater* inflater) {
  inflate_counters_.waiting++;
  outlets_.inflate(inflater);
}

// Returns whether the ticket needs an inflater, unless the cache of records has all of it, which it has.
bool ReadStage::found_all(const Ticket& ticket) const noexcept {
  return records_ && ticket.inflates && records_->has(ticket);
}

void ReadStage::inflate_into(const ChunkRef& chunk) {
  flights_[chunk->slot()].bytes = chunk->ticket.bytes();
  const bool scattered = chunk->ticket.scattered;
  FileInflater* const inflater = scattered ? std::exchange(for_scattered_, nullptr) : open_inflater(chunk->ticket);
  bool runs = inflater->add(chunk);
  if (scattered || inflater->at_end_of_section()) {
    if (!scattered) open_inflaters_.pop_back();
    runs |= inflater->finish();
  }
  if (runs) run_inflater(inflater);
}

// Inflates the chunks that the cache of records seemed to have, but that turned out to be damaged there.
void ReadStage::inflate_after_all() {
  for (;;) {
    ChunkRef chunk;
    {
      const Lock lock(untried_mutex_);
      if (damaged_.empty()) return;
      chunk = damaged_.front();
    }
    if (!inflater_ready(chunk->ticket)) return;
    inflate_into(chunk);
    const Lock lock(untried_mutex_);
    damaged_.pop_front();
  }
}

// Begins to read the chunk's ticket. `found`: what found_all() has returned for the ticket.
void ReadStage::read_into(const ChunkRef& chunk, bool found) {
  const Ticket& ticket = chunk->ticket;
  std::byte* at = chunk->data().data();
  chunk->extents.clear();
  if (ticket.extents.empty()) return outlets_.parse(chunk);  // an empty ticket stands for the end of an epoch
  const bool inflates = ticket.inflates;
  const uint64_t bytes = slot_bytes(ticket);
  check_invariant(bytes <= chunk->data().size(), "a read of {} bytes, in {} parts of {} from {} on, for a slot of {}",
                  bytes, ticket.extents.size(), plan_.data.files[ticket.extents.front().file].id.uri,
                  ticket.extents.front().offset, chunk->data().size());
  for (const Extent& extent : ticket.extents) {
    chunk->extents.push_back(inflates ? at : at + extent.offset % io::block_bytes);
    at += inflates ? extent.length : io::Read::capacity_for(extent.offset, extent.length);
  }
  InFlight& flight = flights_[chunk->slot()];
  flight.bytes = 0;
  if (inflates && found) return try_first(chunk, false);
  if (inflates) {
    if (records_) records_->count_missing(ticket);
    return inflate_into(chunk);
  }
  const bool try_page = cached() || ++passed_by_ % cache_tried_once_in == 0;
  if (try_page || records_) return try_first(chunk, try_page);
  const size_t before = requests_.size();
  add_reads(chunk, requests_);
  flight.fly(chunk, requests_.size() - before);
  burst_++;
}

ChunkRef ReadStage::take_untried() {
  const Lock lock(untried_mutex_);
  ChunkRef oldest = std::move(untried_.front());
  untried_.pop_front();
  return oldest;
}

// Has [parse] look for the chunk in the caches, and then parse it. `page`: whether it looks in the page cache, too.
void ReadStage::try_first(const ChunkRef& chunk, bool page) {
  InFlight& flight = flights_[chunk->slot()];
  flight.untried = true;
  flight.try_page = page;
  {
    const Lock lock(untried_mutex_);
    untried_.push_back(chunk);
  }
  outlets_.parse(Untried());
}

// Appends to `reads` the reads that fill a chunk. Bytes that the cache of records has are copied from there instead.
void ReadStage::add_reads(const ChunkRef& chunk, std::vector<io::Read>& reads) {
  InFlight& flight = flights_[chunk->slot()];
  flight.error = 0;
  flight.parts.clear();
  // The reads have pointers to elements of flight.parts, so the elements must not move.
  const auto expect = [&](size_t parts) { flight.parts.reserve(parts); };
  const auto add = [&](size_t e, uint64_t offset, uint64_t length) {
    std::byte* const at = chunk->bytes_at(e, offset, length).data();
    flight.parts.push_back({&flight, e});
    reads.push_back({.file = chunk->ticket.extents[e].file,
                     .offset = offset,
                     .length = length,
                     .buffer = at - offset % io::block_bytes,
                     .tag = &flight.parts.back()});
    flight.bytes += length;
  };
  const std::vector<Extent>& extents = chunk->ticket.extents;
  if (records_) {
    const auto all = records_->fetch(*chunk);
    expect(all.size());
    for (const RecordCache::Missing& missing : all) add(missing.extent, missing.offset, missing.length);
  } else {
    expect(extents.size());
    for (size_t e = 0; e < extents.size(); e++) add(e, extents[e].offset, extents[e].length);
  }
}

bool ReadStage::read_cached(const ChunkRef& chunk) {
  flights_[chunk->slot()].untried = false;
  if (chunk->ticket.inflates) {
    if (records_->fetch(*chunk).empty()) return true;
    {
      const Lock lock(untried_mutex_);
      damaged_.push_back(chunk);
    }
    outlets_.kick();
    return false;
  }
  std::vector<io::Read> reads;
  add_reads(chunk, reads);
  if (!reads.empty()) return read_pages(chunk, reads);
  // If the cache keeps all records, there are no reads from a disk any more, so read_ahead() can be as small as with
  // the page cache.
  if (plan_.cache->share() == 1) misses_ = 0;
  return true;
}

// Copies the chunk from the page cache. The thread that will parse the chunk does this, so the bytes are then in its
// core's cache, no thread must be woken, and as many threads copy as parse. If the page cache lacks the bytes of a
// read, submits that read and all reads after it. Returns whether the page cache had all bytes.
bool ReadStage::read_pages(const ChunkRef& chunk, const std::vector<io::Read>& reads) {
  InFlight& flight = flights_[chunk->slot()];
  auto read = reads.begin();
  for (; flight.try_page && read != reads.end(); ++read) {
    const std::optional<int> result = backend_->read_cached(*read);
    if (!result) break;
    if (*result != 0 && flight.error == 0) {
      flight.error = *result;
      flight.failed = static_cast<const InFlight::Part*>(read->tag)->extent;
    }
  }
  const size_t left = static_cast<size_t>(reads.end() - read);
  if (flight.try_page) misses_ = left == 0 ? 0 : misses_ + 1;
  if (left == 0) {
    note_read(flight, *chunk);
    return true;
  }
  flight.fly(chunk, left);
  submit({read, reads.end()}, 1);
  return false;
}

void ReadStage::keep(Chunk& chunk) {
  if (!records_ || chunk.failed || flights_[chunk.slot()].bytes == 0) return;
  records_->keep(chunk);
}

// Submits reads. `flying` is the number of chunks and inflater inputs that they fill.
void ReadStage::submit(std::span<const io::Read> reads, size_t flying) {
  read_counters_.waiting += static_cast<int64_t>(flying);
  backend_->submit(reads);
}

// The backend calls this when a read has ended: on the I/O thread or, if the backend was stopped, on the thread that
// submits.
void ReadStage::completed(const InFlight::Part& part, int error) noexcept {
  InFlight& flight = *part.flight;
  int none = 0;
  if (error != 0 && flight.error.compare_exchange_strong(none, error)) flight.failed = part.extent;
  if (flight.left.fetch_sub(1) != 1) return;
  try {
    if (flight.input) {
      bytes_read_ += flight.input->length;
      if (flight.input->inflater->arrived(*flight.input, flight.error)) run_inflater(flight.input->inflater);
    } else {
      const ChunkRef chunk = std::move(flight.chunk);
      note_read(flight, *chunk);
      outlets_.parse(chunk);
    }
  } catch (...) {
    outlets_.fail(std::current_exception());
  }
  read_counters_.waiting--;
  outlets_.wake();
}

void ReadStage::note_read(const InFlight& flight, Chunk& chunk) {
  bytes_read_ += flight.bytes;
  if (flight.error != 0) chunk.failed = read_failed(plan_, chunk.ticket.extents[flight.failed], flight.error);
}

}  // namespace feedline::flow
