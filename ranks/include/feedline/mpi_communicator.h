// Ranks that are MPI processes. In a library of its own, so that nobody else loads MPI.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "feedline/communicator.h"
#include "feedline/export.h"

namespace feedline {

struct MpiOptions {
  /// MPI_Comm_c2f() of the ranks; without it those of MPI_COMM_WORLD. Not used itself, but duplicated.
  std::optional<int> communicator = {};
  /// How long a rank may be silent: the others then end with an Error. Processes tell one another in a thread of their
  /// own that they live, also while the program pauses between two calls; a stopped or dead one does not.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
};

/// Called by all ranks together. Precondition: MPI_Init_thread() gave MPI_THREAD_MULTIPLE, and MPI_Finalize() comes
/// behind the destructor. Buffers are host memory, on Stream::host. Throws Error.
///
/// A failure leaves MPI in no state to go on: buffers of the call under way must live as long as the process, which
/// should end without MPI_Finalize(). (A launcher ends all ranks by itself when one dies; mpirun --enable-recovery does
/// not.)
FEEDLINE_PUBLIC std::unique_ptr<Communicator> mpi_communicator(const MpiOptions& options = {});

}  // namespace feedline
