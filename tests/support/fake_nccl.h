// A fake NCCL between the fake GPUs of one process (fake_cuda.h), for programs that link fake_nccl.cc instead of NCCL.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace feedline::test {

/// Returns the number of communicators that exist.
size_t fake_comms();

/// Returns whether a communicator has been given work that it has yet to enqueue on the stream.
bool fake_nccl_launches_on(CUstream_st* stream);

}  // namespace feedline::test
