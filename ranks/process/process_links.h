// Links: point-to-point connections between processes. A communicator's ProcessThread calls them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "feedline/communicator.h"
#include "feedline/error.h"

namespace feedline::ranks {

/// A control message between ranks, which belongs to no collective call. Ranks send it as raw bytes. Texts that are too
/// long are truncated.
struct Note {
  enum Kind : uint32_t {
    alive,   // a heartbeat
    left,    // the sender has left without a failure, after `calls` calls
    failed,  // the sender ends the group, with the Error in the note
    lost,    // is never sent: the receiver's own Links make it when the connection to the rank has ended
  };

  Note() = default;
  Note(Kind k, uint64_t finished) : kind(k), calls(finished) {}
  Note(Kind k, const Error& why, uint64_t finished);
  /// Returns the Error in the note. Its category is bad_pipeline if this version does not know the sender's category.
  Error error() const;

  Kind kind = alive;
  Category category = Category::io_error;
  std::array<uint8_t, 3> zero{};  // explicit padding
  uint64_t calls = 0;             // how many calls the sender has finished
  int64_t offset = -1, record = -1;
  std::array<char, 256> file{}, feature{};
  std::array<char, 512> message{};
};

static_assert(std::has_unique_object_representations_v<Note>);  // no undefined bytes are sent

/// One rank's connections to all ranks. All ranks make their Links together. One thread calls all functions except
/// wake(). The functions throw Error if a connection fails.
class Links {
 public:
  using Part = Communicator::Part;
  virtual ~Links();
  Links() = default;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// Begins to send and receive parts; does not wait. Between any two ranks (and from a rank to itself) the n-th part
  /// sent becomes the n-th part received, and both must have the same size.
  virtual void begin(std::span<const Part> sends, std::span<const Part> receives) = 0;
  /// Begin an all-gather (every rank gets every rank's bytes, in the order of the ranks) or a broadcast from `root`.
  /// The default implementations call begin().
  virtual void begin_all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  virtual void begin_broadcast(std::span<std::byte> data, int root);
  /// Sends and receives what is possible without waiting. Returns whether everything that was begun is complete. The
  /// buffers are in use until drive() returns true.
  virtual bool drive() = 0;
  /// Returns whether, after a failure, the buffers may stay in use until the process ends.
  virtual bool keeps_buffers() const noexcept = 0;

  /// Begins to send a note to a rank. Notes arrive in the order in which they were sent, but may arrive before parts
  /// that were sent earlier.
  virtual void tell(int rank, const Note& note) = 0;
  /// Returns whether all notes have been sent.
  virtual bool told() = 0;
  struct Heard {
    int from;  // a rank
    Note note;
  };
  /// Returns the next note that has arrived, if there is one. Does not wait.
  virtual std::optional<Heard> hear() = 0;

  /// Waits until data or a note may have arrived, until wake() is called, or until `most` has passed. under_way:
  /// whether the last drive() returned false.
  virtual void wait(std::chrono::milliseconds most, bool under_way) = 0;
  /// Makes the current wait() return, or the next wait() if no thread waits now. Any thread may call wake().
  virtual void wake() noexcept = 0;

  /// Waits until all notes have been sent, but at most for `most`. This is the last call.
  virtual void leave(std::chrono::milliseconds most) = 0;
};

}  // namespace feedline::ranks
