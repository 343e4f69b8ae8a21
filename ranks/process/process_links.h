// Bytes between processes, for a communicator's thread (ranks/process/progress.h) to send and receive.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "feedline/communicator.h"
#include "feedline/error.h"

namespace feedline::gpu {

/// What ranks tell one another beside the calls. Plain data, sent as it lies in memory; longer texts are cut.
struct Note {
  enum Kind : uint32_t {
    alive,
    left,    // in peace, behind `calls` calls
    failed,  // and ends the group
    lost,    // nobody's own words: the connection to the rank has ended
  };

  Note() = default;
  Note(Kind k, uint64_t finished) : kind(k), calls(finished) {}
  Note(Kind k, const Error& why, uint64_t finished);
  Error error() const;

  Kind kind = alive;
  Category category = Category::io_error;
  uint64_t calls = 0;  // that its sender has finished
  int64_t offset = -1, record = -1;
  std::array<char, 256> file{}, feature{};
  std::array<char, 512> message{};
};

/// Made by all ranks together. One thread makes all calls, but for wake(). They throw Error where a link cannot go on.
class Links {
 public:
  using Part = Communicator::Part;
  virtual ~Links();
  Links() = default;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// Begins to send and to receive. Between two ranks (also from one to itself) what is sent n-th is received n-th, and
  /// is of the same size.
  virtual void begin(std::span<const Part> sends, std::span<const Part> receives) = 0;
  /// The same as a whole: every rank's bytes to every rank, in the order of the ranks, and one rank's bytes to all.
  virtual void begin_all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  virtual void begin_broadcast(std::span<std::byte> data, int root);
  /// Goes on with what was begun. Whether all of it is done: until then its buffers are used.
  virtual bool drive() = 0;
  /// Whether they may be used after a failure, too, for as long as the process lives.
  virtual bool keeps_buffers() const noexcept = 0;

  /// Notes overtake what is under way, but not one another.
  virtual void tell(int rank, const Note& note) = 0;
  /// Whether all notes have gone out.
  virtual bool told() = 0;
  struct Heard {
    int from;
    Note note;
  };
  virtual std::optional<Heard> hear() = 0;

  /// Returns when something may have moved, when woken, or after `most`. `under_way`: drive() is not done.
  virtual void wait(std::chrono::milliseconds most, bool under_way) = 0;
  /// Ends a wait(), or the next one. From any thread.
  virtual void wake() noexcept = 0;

  /// The last call: lets notes go out, for so long at most.
  virtual void leave(std::chrono::milliseconds most) = 0;
};

}  // namespace feedline::gpu
