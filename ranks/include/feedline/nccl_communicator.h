// A communicator for ranks that have one GPU each; NCCL moves the bytes between the GPUs. It is in a library of its own
// (feedline-nccl), so that programs without NCCL do not load NCCL.
#pragma once

#include <chrono>
#include <memory>

#include "feedline/communicator.h"
#include "feedline/device.h"
#include "feedline/export.h"

namespace feedline {

struct NcclOptions {
  /// After a failure, the time in which the CUDA streams may still finish the calls that every rank has already made.
  std::chrono::milliseconds drain = std::chrono::seconds(5);
};

/// Makes this rank's communicator. All ranks must call it together, each in a thread of its own, each with a different
/// GPU. `control` is a communicator of the same ranks over host memory (between threads, or over TCP or MPI). From now
/// on only the new communicator may use `control`: it sends NCCL's unique id to all ranks, compares the ranks' calls,
/// and notices when a rank has died, which NCCL does not. Making this communicator counts as its call 0. Throws Error
/// if a rank fails; the others then throw too, here or at their next call.
///
/// Buffers lie in memory of this GPU, or in pinned memory of the host. Streams are this GPU's, or Stream::host. A call
/// returns when all ranks have made it (or announced it) and its work (the kernels that move and reduce the bytes) is
/// enqueued on the stream. The work runs after everything that was enqueued on the stream before, and after the work of
/// the previous call, even if that call used another stream. On Stream::host a call returns, or throws an Error, only
/// when its work is done.
///
/// Do not make a call while the stream captures a CUDA graph, or inside an ncclGroupStart() of the program. Do not use
/// Stream::cuda_per_thread, because NCCL launches kernels from its own threads, where that name means different
/// streams.
///
/// After a failure, calls that every rank had already made are still completed if the streams reach them within
/// `drain`. Then the group releases the streams: work that still waits for other ranks ends, its buffers have undefined
/// content, and failure() says why. The destructor waits until the streams have done the work of this communicator.
FEEDLINE_PUBLIC std::unique_ptr<Communicator> nccl_communicator(std::unique_ptr<Communicator> control, DeviceId gpu,
                                                                const NcclOptions& options = {});

}  // namespace feedline
