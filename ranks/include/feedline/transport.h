// A transport carries rows of batches between the ranks of a feed while the feed runs. (While ranks start, they use an
// exchange instead: exchange.h.)
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "feedline/device.h"
#include "feedline/error.h"
#include "feedline/exchange.h"
#include "feedline/export.h"

namespace feedline {

/// One rank's handle to a group of ranks, which exchange data by collective calls. All ranks must make the same calls
/// in the same order, with buffers of the same sizes. A rank makes one call at a time, from any thread. The comment on
/// the function that makes the transport says in which memory the buffers may lie, and which streams may be given to
/// a call. On Stream::host a call returns when its buffers may be used again.
///
/// A call waits for the ranks that have not made it yet. It waits without limit while they live, so a trainer may pause
/// between two calls. A rank fails if it dies, is stopped, leaves (destroys its transport) while others wait for it,
/// calls abort(), or makes a different call from the others.
///
/// A failure soon ends the whole group: on all ranks, the call under way throws an Error, which says which rank failed,
/// at which call (counted from 0), and why. Every later call on a rank throws the same Error. If a rank dies, the
/// others may name different calls, because each names the call at which it noticed. After a failure the content of the
/// buffers is undefined.
class FEEDLINE_PUBLIC Transport {
 public:
  virtual ~Transport();
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// Returns the device in whose memory the buffers may lie.
  virtual DeviceId device() const noexcept { return host(); }
  /// Returns this rank's number: 0 to size() - 1.
  virtual int rank() const noexcept = 0;
  /// Returns the number of ranks.
  virtual int size() const noexcept = 0;

  /// Fills `all` with the bytes `mine` of every rank, in the order of the ranks. `all` is size() times as large as
  /// `mine`. `mine` may be this rank's own part of `all`.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) = 0;

  /// Copies `data` from the rank `root` to all other ranks.
  virtual void broadcast(std::span<std::byte> data, int root, Stream stream) = 0;

  /// The bytes to send to `rank`, or the buffer for the bytes to receive from it.
  struct Part {
    int rank;
    std::span<std::byte> bytes;
  };
  /// Sends and receives all parts as one group, so that no order of the parts can cause a deadlock. Between any two
  /// ranks (and from a rank to itself), the n-th part sent becomes the n-th part received, and both must have the same
  /// size. Every rank must make the call, even if it sends and receives nothing.
  virtual void send_receive(std::span<const Part> sends, std::span<const Part> receives, Stream stream) = 0;

  /// Returns when all ranks have called it.
  virtual void barrier() = 0;

  /// Ends the group: on every other rank, calls that wait and all later calls throw `why`, with this rank's number put
  /// before its message. May be called from any thread, any number of times; calls after the first do nothing.
  virtual void abort(const Error& why) noexcept = 0;

  /// Returns the Error that has ended the group, or nullopt if none has. May be called from any thread, also during
  /// another call. A feed calls it at each step, so an implementation must be cheap; those of feedline take no lock.
  virtual std::optional<Error> failure() const = 0;
};

/// Returns an exchange that keeps the transport alive. Each call of the exchange makes one all_gather() call of
/// `transport`, and one more for each MiB, or part of a MiB, of the longest string. The exchange throws Error
/// bad_pipeline if a rank's string is longer than 1 GiB.
FEEDLINE_PUBLIC Exchange exchange_over(std::shared_ptr<Transport> transport);

}  // namespace feedline
