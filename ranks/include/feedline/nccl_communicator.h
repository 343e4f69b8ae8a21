// Ranks with a GPU each, between which NCCL moves the bytes. In a library of its own, so that nobody else loads NCCL.
#pragma once

#include <chrono>
#include <memory>

#include "feedline/communicator.h"
#include "feedline/device.h"
#include "feedline/export.h"

namespace feedline {

struct NcclOptions {
  std::chrono::milliseconds drain = std::chrono::seconds(5);
};

/// Called by all ranks together, each in a thread of its own, with GPUs that are not one another's. `control` is the
/// same ranks' communicator over memory of the host, between threads or over TCP or MPI, and for this one alone from
/// now on: it carries NCCL's id, compares what the ranks call, and knows when one has died, which NCCL does not. To
/// make this communicator is its call 0. Throws Error; the others then do, too, here or at their next call.
///
/// Buffers are memory of this GPU, or of the host where it is pinned. Streams are this GPU's, or Stream::host. A call
/// returns when all ranks have come to it and the stream has been given the work, behind what the stream was given
/// before and what any stream was given by the call before; on Stream::host when the work is done, also with an Error.
/// It may not be made while the stream captures a graph, nor inside of the program's own ncclGroupStart(), nor on
/// Stream::cuda_per_thread: NCCL launches from threads of its own.
///
/// A group that fails does what its ranks had all come to, if the streams come to it within `drain`. Then it lets go of
/// them: what still waits there for other ranks ends, with any content, and failure() says why. The destructor waits
/// until the streams have done what they were given here.
FEEDLINE_PUBLIC std::unique_ptr<Communicator> nccl_communicator(std::unique_ptr<Communicator> control, DeviceId gpu,
                                                                const NcclOptions& options = {});

}  // namespace feedline
