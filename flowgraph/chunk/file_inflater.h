// Inflates compressed files from their seek points on. Compressed bytes come in through two small buffers; complete
// chunks go out.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "flowgraph/chunk/chunk.h"
#include "io/records/inflate.h"

namespace feedline::flow {

struct Schedule;

/// Fills chunks with the extents of their tickets, which may lie anywhere in any files. It inflates from the last seek
/// point before an extent, or goes on from where it is. So it inflates least if the tickets of a section come one after
/// another: a section is what lies from a seek point, or the front of a file, to the next one. Of one ticket it inflates
/// no byte twice. What lies in plain files it copies.
///
/// Only one thread may be inside run(). The other methods may be called from any thread. If add(), finish() or arrived()
/// returns true, the caller must see to it that run() is called. Until that run() returns, these methods return false to
/// all other callers.
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
    std::function<void(FileInflater*)> idle;          // called after the last chunk, when no read is in flight
  };

  /// `memory` has inflater_memory_bytes bytes (flowgraph/plan/reader_memory.h). Keeps references to `memory` and
  /// `schedule`.
  FileInflater(const Schedule& schedule, std::span<std::byte> memory, Callbacks callbacks);

  /// Says that the next tickets lie in the section of a compressed file in which `offset` of its inflated stream lies.
  /// Precondition: the inflater is idle.
  void open(uint32_t file, uint64_t offset);
  /// Returns whether the ticket begins in the open section, after all tickets added so far.
  bool continues_with(const Ticket& ticket) const noexcept {
    const Extent& first = ticket.extents.front();
    return first.file == open_file_ && first.offset >= added_until_ && first.offset < section_end_;
  }
  /// Returns whether no further ticket can begin in the open section, so that finish() may be called.
  bool at_end_of_section() const noexcept { return added_until_ > last_wanted_; }
  /// Adds a chunk. Its ticket and extents must be set. Returns whether the caller must see to it that run() is called.
  [[nodiscard]] bool add(ChunkRef chunk);
  /// Says that no chunk follows. The inflater becomes idle when the chunks added so far are done. Returns whether the
  /// caller must see to it that run() is called.
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
  uint64_t reads_before(const Extent& last) const noexcept;
  uint64_t reads_of_section(const Chunk& chunk, size_t number) const;
  bool reaches(uint32_t file, uint64_t offset) const noexcept;
  /// Goes to the last seek point before the bytes that are wanted next. Returns false if an input is still being read.
  bool go_to_wanted(const Chunk& chunk);
  /// Returns false if the next input is still being read. Otherwise in_ is set, or stays empty if the file is used up.
  /// `wanted`: how many inflated bytes are wanted.
  bool input_ready(uint64_t wanted);
  void begin(Chunk& chunk);
  void begin_extent(Chunk& chunk);
  /// Inflates or copies from in_ to `out`, and advances both.
  io::Inflater::Status inflate(std::span<std::byte>& out);
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

  // The open section. Offsets in its file's inflated stream: the end of the last extent added (at first where the
  // section begins), an offset that the index knows, at or before the section's last sample, and the section's end. Used
  // by open(), add() and the methods that ask for a place.
  uint32_t open_file_ = 0;
  uint64_t added_until_ = 0, last_wanted_ = 0, section_end_ = 0;

  // Used by run().
  static constexpr uint32_t nowhere = UINT32_MAX;
  uint32_t file_ = nowhere;  // the file that is inflated or copied
  uint64_t size_ = 0;
  uint64_t next_offset_ = 0;    // the offset in the file of the next read: a multiple of io::block_bytes, or size_
  uint64_t read_ahead_to_ = 0;  // the offset in the file up to which inputs are read before they are wanted
  size_t passed_ = 0;           // how many bytes of the next input lie before the seek point
  std::optional<io::Inflater> inflater_;  // none: the file is plain
  std::array<Input, 2> inputs_;
  size_t current_ = 0;             // index of the input that is inflated now or next
  bool in_use_ = false;            // in_ points into inputs_[current_]
  std::span<const std::byte> in_;  // the compressed bytes that are left of the current input
  uint64_t position_ = 0;          // offset in the inflated stream
  bool leaves_ = false;            // the inputs are not wanted; it goes elsewhere as soon as no input is being read

  // The chunk that is being filled.
  std::vector<size_t> turns_;  // its extents, ascending by their places in the files; empty: it has not begun
  size_t turn_ = 0;            // the current extent is number turns_[turn_]
  size_t furthest_ = 0;        // the extent begun so far that ends last in the current file
  uint64_t wanted_ = 0;        // the offset of the first byte that the current extent lacks
};

}  // namespace feedline::flow
