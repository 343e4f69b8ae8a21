// How the ranks of one training talk to one another while it runs.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "feedline/device.h"
#include "feedline/error.h"
#include "feedline/exchange.h"
#include "feedline/export.h"
#include "feedline/reduction.h"
#include "feedline/tensor.h"

namespace feedline {

/// One rank's end of a group. All ranks make the same calls in the same order, with buffers of the same sizes; each
/// rank one call at a time, from any thread. Which memory the buffers may lie in, and on which streams a call may be
/// put, is said by whoever makes the communicator; on Stream::host a call returns when its buffers may be used again.
///
/// A call waits for ranks that have not come to it, without limit as long as they live: a trainer that pauses between
/// two calls is no failure. Failure is a rank that has died, was stopped, has left, has called abort() or makes another
/// call than the others. It ends the whole group, soon: the call under way and every later one, on all ranks, throw an
/// Error, always the same on a rank, which says which rank failed, at which call (counted from 0), and why. (Of one
/// that dies each rank may say at which call it noticed for itself.) Buffers then have any content.
class FEEDLINE_PUBLIC Communicator {
 public:
  virtual ~Communicator();
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Whose memory buffers may lie in.
  virtual DeviceId device() const noexcept { return host(); }
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// all: size() times as large as mine; every rank's bytes in the order of the ranks. `mine` may lie at its place in
  /// `all`.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) = 0;

  /// From the rank `root` to all others.
  virtual void broadcast(std::span<std::byte> data, int root, Stream stream) = 0;

  /// In place, element by element, over the ranks in their order: the same bits on all ranks and in every run.
  /// Any dtype of numbers but BOOL; FLOAT16 and BFLOAT16 are summed in float32 and rounded once. Integer sums wrap;
  /// min and max with a NaN give any of the operands.
  virtual void all_reduce(TensorView data, Reduction reduction, Stream stream) = 0;

  /// The same over `data`, whose first axis is size() times that of `mine`: this rank is given its part of the result.
  /// `data` keeps its content. `mine` may not lie in it.
  virtual void reduce_scatter(TensorView data, TensorView mine, Reduction reduction, Stream stream) = 0;

  /// Bytes that go to a rank, or come from one.
  struct Part {
    int rank;
    std::span<std::byte> bytes;
  };
  /// Sends and receives as one group, so that no order of them can hang. Between two ranks (also from a rank to itself)
  /// the n-th part sent is the n-th received, and they have the same size. Every rank takes part, if with nothing.
  virtual void send_receive(std::span<const Part> sends, std::span<const Part> receives, Stream stream) = 0;

  /// Returns when all ranks have come to it.
  virtual void barrier() = 0;

  /// Ends the group: all other ranks' calls throw this error, with this rank's number before it. From any thread, any
  /// number of times; the first reason counts.
  virtual void abort(const Error& why) noexcept = 0;

  /// The Error that has ended the group; none while it goes on. From any thread, also beside a call. A feed asks at
  /// each step, so it has to be cheap: those of feedline take no lock.
  virtual std::optional<Error> failure() const = 0;
};

/// An exchange that is two of its calls. Keeps it.
FEEDLINE_PUBLIC Exchange exchange_over(std::shared_ptr<Communicator> communicator);

/// For ranks that are threads of one process, with buffers of the host on Stream::host. One that is destroyed has left:
/// calls that would wait for it throw Error stalled. Each is used by one thread at a time; abort() by any.
FEEDLINE_PUBLIC std::vector<std::unique_ptr<Communicator>> communicators_between_threads(int ranks);

}  // namespace feedline
