// Links carry bytes between processes. A communicator's thread (ranks/process/process_thread.h) drives them.
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

/// A message between ranks that is not part of a call. Plain data: it is sent as it lies in memory. Texts that are too
/// long are cut.
struct Note {
  enum Kind : uint32_t {
    alive,   // the sender lives
    left,    // the sender has left without a failure, after `calls` calls
    failed,  // the sender ends the group, with the Error in the note
    lost,    // not sent by a rank: the links say that the connection to the rank has ended
  };

  Note() = default;
  Note(Kind k, uint64_t finished) : kind(k), calls(finished) {}
  Note(Kind k, const Error& why, uint64_t finished);
  Error error() const;

  Kind kind = alive;
  Category category = Category::io_error;
  uint64_t calls = 0;  // how many calls the sender has finished
  int64_t offset = -1, record = -1;
  std::array<char, 256> file{}, feature{};
  std::array<char, 512> message{};
};

/// One rank's links to all ranks, which all ranks make together. One thread calls all functions except wake(). They
/// throw Error if a link fails.
class Links {
 public:
  using Part = Communicator::Part;
  virtual ~Links();
  Links() = default;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// Begins to send and receive parts. Between any two ranks (and from a rank to itself) the n-th part sent becomes the
  /// n-th part received, and both must have the same size.
  virtual void begin(std::span<const Part> sends, std::span<const Part> receives) = 0;
  /// Begin whole operations: all_gather gives every rank's bytes to every rank, in the order of the ranks; broadcast
  /// gives one rank's bytes to all. The defaults call begin().
  virtual void begin_all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  virtual void begin_broadcast(std::span<std::byte> data, int root);
  /// Goes on with what was begun, without waiting. Returns whether all of it is done. The buffers are in use until
  /// then.
  virtual bool drive() = 0;
  /// Returns whether, after a failure, the buffers may be in use until the process ends.
  virtual bool keeps_buffers() const noexcept = 0;

  /// Sends a note to a rank. Notes may overtake the parts that are under way, but not one another.
  virtual void tell(int rank, const Note& note) = 0;
  /// Returns whether all notes have been sent.
  virtual bool told() = 0;
  struct Heard {
    int from;  // a rank
    Note note;
  };
  /// Returns the next note that has arrived, if there is one. Does not wait.
  virtual std::optional<Heard> hear() = 0;

  /// Returns when there may be something to do, when woken, or after `most`. under_way: drive() has not finished.
  virtual void wait(std::chrono::milliseconds most, bool under_way) = 0;
  /// Ends a wait(), or the next one if there is none. Any thread may call it.
  virtual void wake() noexcept = 0;

  /// Waits until all notes have been sent, but at most for `most`. This is the last call.
  virtual void leave(std::chrono::milliseconds most) = 0;
};

}  // namespace feedline::gpu
