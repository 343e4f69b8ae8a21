// A communicator for ranks that are MPI processes. It is in a library of its own (feedline-mpi), so that programs
// without MPI do not load MPI.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "feedline/communicator.h"
#include "feedline/export.h"

namespace feedline {

struct MpiOptions {
  /// The MPI communicator whose ranks form the group, as MPI_Comm_c2f() returns it. If absent, MPI_COMM_WORLD. feedline
  /// uses a duplicate of it.
  std::optional<int> communicator = {};
  /// How long a rank may send no heartbeat before the others end with an Error. A separate thread in each process sends
  /// the heartbeats, also while the program pauses between two calls. A process that is stopped or dead sends none.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
};

/// Makes this rank's communicator; all ranks must call it together. Preconditions: MPI_Init_thread() has returned
/// MPI_THREAD_MULTIPLE, and the program calls MPI_Finalize() after it has destroyed the communicator. Buffers lie in
/// host memory and streams are Stream::host. Throws Error bad_pipeline if the first precondition does not hold, and
/// io_error if a call of MPI fails.
///
/// After a failure MPI cannot be used any more, and it may still read and write the buffers of the call that was under
/// way. Keep those buffers until the process ends, and end the process without MPI_Finalize(). (Launchers end all ranks
/// when one dies; mpirun --enable-recovery does not.)
FEEDLINE_PUBLIC std::unique_ptr<Communicator> mpi_communicator(const MpiOptions& options = {});

}  // namespace feedline
