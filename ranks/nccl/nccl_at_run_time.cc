// Gives NCCL to a program that is not linked with it. Defines functions with the names of NCCL's functions, which call
// those of the NCCL library that the process has loaded or can load. So a program can be installed where there is no
// NCCL, and it shares the NCCL library of its framework, such as torch.
#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include "feedline/error.h"

namespace {

using feedline::Category;
using feedline::Error;

constexpr const char* library_name = "libnccl.so.2";

// Returns the NCCL library that the process has already loaded, for example with torch. If the process has loaded none,
// loads the library of the system.
void* load() {
  for (const int loaded : {RTLD_NOLOAD, 0})
    if (void* found = dlopen(library_name, RTLD_NOW | loaded)) return found;
  throw Error(
      Category::device_error,
      fmt::format("NCCL cannot be loaded ({}); install NCCL where the dynamic linker finds it, or first import a "
                  "framework that brings NCCL, such as torch",
                  dlerror()));
}

template <typename Function>
Function* function(const char* name) {
  static void* const library = load();
  void* found = dlsym(library, name);
  if (!found)
    throw Error(Category::device_error,
                fmt::format("{} does not have the function {}; install NCCL 2.14 or newer", library_name, name));
  return reinterpret_cast<Function*>(found);
}

}  // namespace

// Defines a function that calls NCCL's function of the same name, which it looks up at the first call. It throws Error
// device_error if there is no such function.
#define FEEDLINE_NCCL(RESULT, NAME, PARAMETERS, ARGUMENTS)      \
  RESULT NAME PARAMETERS {                                      \
    static auto* const found = function<decltype(NAME)>(#NAME); \
    return found ARGUMENTS;                                     \
  }

extern "C" {
FEEDLINE_NCCL(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))
FEEDLINE_NCCL(ncclResult_t, ncclCommInitRankConfig,
              (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config),
              (comm, ranks, id, rank, config))
FEEDLINE_NCCL(ncclResult_t, ncclCommFinalize, (ncclComm_t comm), (comm))
FEEDLINE_NCCL(ncclResult_t, ncclCommDestroy, (ncclComm_t comm), (comm))
FEEDLINE_NCCL(ncclResult_t, ncclCommAbort, (ncclComm_t comm), (comm))
FEEDLINE_NCCL(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* state), (comm, state))
FEEDLINE_NCCL(const char*, ncclGetErrorString, (ncclResult_t result), (result))
FEEDLINE_NCCL(const char*, ncclGetLastError, (ncclComm_t comm), (comm))
FEEDLINE_NCCL(ncclResult_t, ncclGroupStart, (), ())
FEEDLINE_NCCL(ncclResult_t, ncclGroupEnd, (), ())
FEEDLINE_NCCL(ncclResult_t, ncclSend,
              (const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
              (from, count, type, peer, comm, stream))
FEEDLINE_NCCL(ncclResult_t, ncclRecv,
              (void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
              (to, count, type, peer, comm, stream))
FEEDLINE_NCCL(ncclResult_t, ncclAllGather,
              (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
              (from, to, count, type, comm, stream))
FEEDLINE_NCCL(ncclResult_t, ncclBroadcast,
              (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
               cudaStream_t stream),
              (from, to, count, type, root, comm, stream))
}
