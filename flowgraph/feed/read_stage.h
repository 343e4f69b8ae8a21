// The stage [read]: takes the tickets of a feed (lists of byte ranges of files) in their order, and reads these bytes
// into slots.
//
//   ticket -> slot -+-> in a cache:        copied by the thread that parses the chunk -+
//                   +-> on a disk:         read by the backend's thread ---------------+-> [parse]
//                   +-> compressed:        read by the backend's thread -> [inflate] --+
//
// Here a cache is the kernel's page cache, or the pipeline's cache of records.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "feedline/io_options.h"
#include "flowgraph/chunk/file_inflater.h"
#include "flowgraph/chunk/lazy_reader.h"
#include "flowgraph/chunk/record_cache.h"
#include "flowgraph/chunk/slots.h"
#include "flowgraph/feed/stage_counters.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/ticket_queue.h"
#include "flowgraph/plan/walk.h"
#include "gpu/device/memory.h"
#include "io/read/read_backend.h"

namespace feedline::flow {

/// Says that a chunk is to be looked for in the caches, and then parsed: the oldest chunk for which no thread has
/// looked yet.
struct Untried {};
/// A message to [parse]: a chunk that has been read, or Untried.
using ToParse = std::variant<Untried, ChunkRef>;

class ReadStage {
 public:
  /// The functions to which the stage passes its messages. They are called on any thread, and must not block.
  struct Outlets {
    std::function<void(ToParse)> parse;          // a chunk is to be parsed
    std::function<void(FileInflater*)> inflate;  // the inflater's run() is to be called
    std::function<void()> kick;                  // a slot or an inflater has come back: read() is to be called
    std::function<void()> wake;                  // the I/O thread has called a function above: threads must wake up
    std::function<void(std::exception_ptr)> fail;
  };

  /// Keeps a reference to `plan`. `lent_to`: if batches lie in the slots (MemoryPlan::lends), the device to which they
  /// are copied. `needed`: how many chunks the first step needs. `cache`: null if the plan has no cache. Throws Error
  /// if memory or the read backend cannot be obtained.
  ReadStage(const Plan& plan, const Walk::Start& start, const IoOptions& io, DeviceId lent_to, uint64_t needed,
            CacheStore* cache, Outlets outlets);

  /// Begins to read as many tickets ahead as the plan says, as long as slots are free. One thread at a time may call
  /// it.
  void read();
  /// Says how many chunks, counted from the start of the feed, the next step needs. Returns whether this number has
  /// changed. If so, the caller must see to it that read() is called.
  bool set_needed(uint64_t chunks) noexcept { return needed_.exchange(chunks) != chunks; }

  /// Takes the oldest chunk for which no thread has looked in the caches yet. Precondition: it is called once for each
  /// Untried that was given to Outlets::parse.
  ChunkRef take_untried();
  bool is_untried(const Chunk& chunk) const noexcept { return flights_[chunk.slot()].untried; }
  /// Copies the chunk's bytes from the caches, and submits reads of the bytes that the caches lack. Returns whether the
  /// caches had all bytes. If not, the chunk is given to Outlets::parse when it has been read. Precondition:
  /// is_untried().
  bool read_cached(const ChunkRef& chunk);
  /// Puts records of a chunk into the pipeline's cache of records: those that the plan has chosen for the cache. Called
  /// just before the chunk is parsed.
  void keep(Chunk& chunk);

  /// Begins no new read from now on.
  void end() noexcept {
    ended_ = true;
    if (lazy_) lazy_->stop();
  }
  /// Does what end() does. In addition, slots and inflaters that come back no longer notify the stage.
  void stop() noexcept;
  /// Waits for the reads in flight. Nothing is given to the outlets after it returns.
  void stop_backend();

  /// Returns how many callers of read_cached() wait for a file to open.
  int opening() const noexcept { return backend_ ? backend_->opening() : 0; }  // with LAZY there is no backend

  StageCounters& inflating() noexcept { return inflate_counters_; }
  StageCounters& reading() noexcept { return read_counters_; }
  const StageCounters& inflating() const noexcept { return inflate_counters_; }
  const StageCounters& reading() const noexcept { return read_counters_; }
  /// Return for how many seconds work has waited for a free slot, and for an idle inflater.
  double no_slot_s() const { return slots_->pool().dry_s(); }
  double no_inflater_s() const { return idle_inflaters_->dry_s(); }
  uint64_t bytes_read() const noexcept { return bytes_read_; }
  /// Returns the cache of records; null if the pipeline has no such cache.
  const RecordCache* records() const noexcept { return records_ ? &*records_ : nullptr; }
  std::string backend() const;
  /// With index.mode LAZY, returns the indexes of all files once an epoch has ended. Otherwise returns null.
  const std::vector<io::FileIndex>* counted() const noexcept {
    return lazy_ && lazy_->counted() ? &*lazy_->counted() : nullptr;
  }

 private:
  /// The reads in flight that fill one slot, or one input of an inflater. The tags of these reads (io::Read::tag) are
  /// the addresses of the elements of `parts`.
  struct InFlight {
    /// One read. It fills bytes of extent number `extent` of the chunk's ticket, or the inflater's input.
    struct Part {
      InFlight* flight;
      size_t extent;
    };
    ChunkRef chunk;
    FileInflater::Input* input = nullptr;
    std::vector<Part> parts;  // one for each read, in the order of the reads
    std::atomic<size_t> left{0};
    std::atomic<int> error{0};
    // The number of the extent whose read failed first. The thread that sets `error` sets it, before it lowers `left`.
    size_t failed = 0;
    void fly(ChunkRef to, size_t reads) {
      chunk = std::move(to);
      left = reads;
    }
    uint64_t bytes = 0;     // how many bytes were read, or are being read
    bool untried = false;   // whether [parse] looks into the caches before reads are submitted
    bool try_page = false;  // whether [parse] looks into the page cache, too
  };

  void make_inflaters();
  void make_backend(const IoOptions& io);
  bool cached() const noexcept;
  uint64_t read_ahead() const noexcept;
  bool issue_next();
  bool read_lazily();
  FileInflater* open_inflater(const Ticket& ticket) noexcept;
  bool inflater_ready(const Ticket& ticket);
  void run_inflater(FileInflater* inflater);
  void read_into(const ChunkRef& chunk, bool found);
  void add_reads(const ChunkRef& chunk, std::vector<io::Read>& reads);
  void try_first(const ChunkRef& chunk, bool page);
  bool read_pages(const ChunkRef& chunk, const std::vector<io::Read>& reads);
  void inflate_after_all();
  bool found_all(const Ticket& ticket) const noexcept;
  void inflate_into(const ChunkRef& chunk);
  void submit(std::span<const io::Read> reads, size_t flying);
  void completed(const InFlight::Part& part, int error) noexcept;
  void note_read(const InFlight& flight, Chunk& chunk);

  const Plan& plan_;
  const Outlets outlets_;
  // True if reads may no longer begin, because the feed has been stopped, or has ended with an error that is on its way
  // to next(). Further reads could keep a feed's only thread busy, so that the error would never be delivered.
  std::atomic<bool> ended_{false};

  // The memory, and the pools that say who may use it.
  const std::shared_ptr<Slots> slots_;
  gpu::Memory inflater_memory_;
  std::optional<Pool<FileInflater*>> idle_inflaters_;
  std::deque<InFlight> flights_;  // one for each slot, then two for each inflater
  std::deque<FileInflater> inflaters_;

  // Only read() uses these members.
  TicketQueue tickets_;
  uint64_t next_sequence_ = 0;
  std::vector<FileInflater*> open_inflaters_;  // may be given more chunks; the one that was used last is at the end
  FileInflater* for_scattered_ = nullptr;      // will be given the next scattered ticket, if there was no slot for it
  std::vector<io::Read> requests_;             // the reads of one burst
  size_t burst_ = 0;                           // the number of chunks that requests_ is for
  uint64_t passed_by_ = 0;          // counts chunks: one in cache_tried_once_in is looked for in the page cache
  std::optional<LazyReader> lazy_;  // index.mode LAZY: used instead of tickets, inflaters and requests

  std::atomic<uint64_t> needed_;
  std::atomic<uint64_t> misses_{0};  // how many chunks in a row were not in the page cache
  std::atomic<uint64_t> bytes_read_{0};

  std::optional<RecordCache> records_;  // the pipeline's cache of records

  // Chunks for which no thread has looked in the caches yet. A task of [parse] takes the oldest chunk, because that one
  // is needed first. Its message cannot name the chunk, because oneTBB runs the newest task first.
  Mutex untried_mutex_;
  std::deque<ChunkRef> untried_ FEEDLINE_GUARDED_BY(untried_mutex_);
  // Chunks of compressed files that turned out to be damaged in the cache of records. They are inflated instead.
  std::deque<ChunkRef> damaged_ FEEDLINE_GUARDED_BY(untried_mutex_);

  StageCounters read_counters_{"feedline read"}, inflate_counters_{"feedline inflate"};
  std::unique_ptr<io::ReadBackend> backend_;
};

}  // namespace feedline::flow
