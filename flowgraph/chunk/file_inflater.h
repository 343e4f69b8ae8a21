// Inflates a compressed file from a seek point on. Compressed bytes come in through two small buffers; complete chunks
// go out.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "flowgraph/chunk/chunk.h"
#include "io/records/inflate.h"

namespace feedline::flow {

struct Schedule;

/// Inflates one section of a compressed file after another: what lies from a seek point of the file, or its front, to
/// the next one. Between two sections it is idle.
///
/// A section can only be inflated serially, so only one thread may be inside run(). The other methods may be called
/// from any thread. If add(), finish() or arrived() returns true, the caller must see to it that run() is called. Until
/// that run() returns, these methods return false to all other callers.
class FileInflater {
 public:
  /// One of the two buffers for compressed bytes.
  struct Input {
    FileInflater* inflater = nullptr;
    uint32_t number = 0;  // 0 or 1
    std::byte* buffer = nullptr;
    uint64_t offset = 0, length = 0;  // the range of the file that is, or will be, in the buffer
  };
  struct Callbacks {
    std::function<void(uint32_t file, Input&)> read;  // must start a read, whose completion must call arrived()
    std::function<void(ChunkRef)> done;               // called when a chunk is complete or has failed
    std::function<void(FileInflater*)> idle;          // called after the file's last chunk, when no read is in flight
  };

  /// `memory` has inflater_memory_bytes bytes (flowgraph/plan/reader_memory.h). Keeps references to `memory` and
  /// `schedule`.
  FileInflater(const Schedule& schedule, std::span<std::byte> memory, Callbacks callbacks);

  /// Begins the section of a file in which `offset` of its inflated stream lies. Precondition: the inflater is idle.
  void open(uint32_t file, uint64_t offset);
  /// Returns whether the ticket begins in the open section, after all tickets added so far.
  bool continues_with(const Ticket& ticket) const noexcept {
    const Extent& first = ticket.extents.front();
    return first.file == file_ && first.offset >= added_until_ && first.offset < section_end_;
  }
  /// Returns whether no further ticket can begin in the open section, so that finish() may be called.
  bool at_end_of_section() const noexcept { return added_until_ >= section_end_; }
  /// Adds the next chunk of the file. Its ticket and extents must be set. Precondition: continues_with() its ticket.
  /// Returns whether the caller must see to it that run() is called.
  [[nodiscard]] bool add(ChunkRef chunk);
  /// Ends the section: no chunk of it follows. The inflater becomes idle when the chunks added so far are done. Returns
  /// whether the caller must see to it that run() is called.
  [[nodiscard]] bool finish();
  /// Takes an input whose read has completed; `error` is an errno or 0. Returns whether the caller must see to it that
  /// run() is called.
  [[nodiscard]] bool arrived(Input& input, int error);

  /// Inflates until it lacks input or chunks.
  void run();

 private:
  enum class InputState : uint8_t { unused, reading, full };

  void request(Input& input, uint64_t end);
  bool is_unused(size_t input);
  void read_ahead(uint64_t end);
  /// Returns false if the next input is still being read. Otherwise in_ is set, or stays empty if the file is used up.
  /// `wanted`: how many inflated bytes are wanted.
  bool input_ready(uint64_t wanted);
  /// Inflates into the chunk. Returns whether the chunk is complete or has failed.
  bool fill(Chunk& chunk);
  /// Returns the error of the current input, if its read has failed. `extent` is what is being filled.
  std::optional<Error> damage(const Extent& extent);

  const Schedule& schedule_;
  const Callbacks callbacks_;
  std::span<std::byte> skipped_;  // the buffer for inflated bytes that no ticket wants

  Mutex mutex_;
  std::deque<ChunkRef> chunks_ FEEDLINE_GUARDED_BY(mutex_);
  std::array<InputState, 2> states_ FEEDLINE_GUARDED_BY(mutex_) = {};  // of inputs_
  std::array<int, 2> read_errors_ FEEDLINE_GUARDED_BY(mutex_) = {};    // of inputs_: an errno or 0
  // True while run() is running. Also true after a method has returned true, because its caller will then call run().
  bool running_ FEEDLINE_GUARDED_BY(mutex_) = false;
  bool last_added_ FEEDLINE_GUARDED_BY(mutex_) = false;  // finish() was called

  // Offsets in the inflated stream: the end of the last extent added (at first where the section begins), and the place
  // before which the section's records begin. Used by open(), add() and the methods that ask for a place.
  uint64_t added_until_ = 0, section_end_ = 0;

  // Used by run(), and by open() while the inflater is idle.
  uint32_t file_ = 0;
  uint64_t size_ = 0;
  uint64_t next_offset_ = 0;    // the offset in the file of the next read: a multiple of io::block_bytes, or size_
  uint64_t read_ahead_to_ = 0;  // the offset in the file up to which inputs are read before they are wanted
  size_t passed_ = 0;           // how many bytes of the next input lie before the seek point
  std::optional<io::Inflater> inflater_;
  std::array<Input, 2> inputs_;
  size_t current_ = 0;             // index of the input that is inflated now or next
  bool in_use_ = false;            // in_ points into inputs_[current_]
  std::span<const std::byte> in_;  // the compressed bytes that are left of the current input
  uint64_t position_ = 0;          // offset in the inflated stream
  size_t extent_ = 0;              // index of the current extent of the chunk that is being filled
  uint64_t filled_ = 0;            // the bytes of that chunk that have been filled
};

}  // namespace feedline::flow
