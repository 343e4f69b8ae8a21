// One compressed file on its way: bytes come in through two small buffers, whole tickets go out.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "flowgraph/chunk/chunk.h"
#include "io/records/inflate.h"

namespace feedline::flow {

struct Plan;

/// Serial by nature: one thread at a time is inside run(). The rest may be called from any thread. An inflater serves one
/// file after another; between two it is idle.
class FileInflater {
 public:
  struct Input {
    FileInflater* inflater = nullptr;
    uint32_t number = 0;  // 0 or 1
    std::byte* buffer = nullptr;
    uint64_t offset = 0, length = 0;  // of the file
    enum class State : uint8_t { unused, reading, full } state = State::unused;
  };
  struct Callbacks {
    std::function<void(uint32_t file, Input&)> read;  // start a read; its completion calls arrived()
    std::function<void(ChunkRef)> done;               // a chunk is complete, or has failed
    std::function<void(FileInflater*)> idle;          // the file's last chunk is done and nothing is being read
  };

  /// memory: inflater_memory_bytes of it (flowgraph/plan/reader_memory.h).
  FileInflater(const Plan& plan, std::span<std::byte> memory, Callbacks callbacks);

  /// Begins a file. Precondition: idle.
  void open(uint32_t file);
  /// Whether the ticket's bytes lie in the open file, after those of all tickets added so far.
  bool continues_with(const Ticket& ticket) const noexcept {
    return ticket.extents.front().file == file_ && ticket.extents.front().offset >= added_until_;
  }
  /// Adds the next chunk of the file, its ticket and extents set; continues_with() its ticket. True: somebody must call
  /// run().
  [[nodiscard]] bool add(ChunkRef chunk);
  /// No chunk of the file follows: the inflater becomes idle when those added are done. True: somebody must call run().
  [[nodiscard]] bool finish();
  /// A read is done; `error` an errno or 0. True: somebody must call run().
  [[nodiscard]] bool arrived(Input& input, int error);

  /// Inflates as far as input and chunks go.
  void run();

 private:
  void request(Input& input);
  bool input_ready();
  bool fill(Chunk& chunk);
  std::optional<Error> damage(const Chunk& chunk);

  const Plan& plan_;
  const Callbacks callbacks_;
  std::span<std::byte> skipped_;

  std::mutex mutex_;  // guards from here
  std::deque<ChunkRef> chunks_;
  std::array<Input, 2> inputs_;
  bool running_ = false;
  bool last_added_ = false;
  int read_error_ = 0;  // to here; the rest belongs to run()

  uint64_t added_until_ = 0;  // of the inflated stream: the end of the last extent added; the caller of add()'s

  uint32_t file_ = 0;
  uint64_t size_ = 0;
  uint64_t next_offset_ = 0;  // of the file: not yet asked for
  std::optional<io::Inflater> inflater_;
  size_t current_ = 0;  // the input in use, or next
  bool in_use_ = false;
  std::span<const std::byte> in_;  // what is left of it
  uint64_t position_ = 0;          // of the inflated stream
  size_t extent_ = 0;              // of the chunk being filled
  uint64_t filled_ = 0;            // bytes of its data
};

}  // namespace feedline::flow
