// A fake NCCL between the fake GPUs of one process (fake_cuda.h), for programs that link fake_nccl.cc instead of NCCL.
#pragma once

#include <cstddef>

namespace feedline::test {

/// Returns the number of communicators that exist.
size_t fake_comms();

}  // namespace feedline::test
