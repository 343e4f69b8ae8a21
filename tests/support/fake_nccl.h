// A fake NCCL between the fake GPUs of one process (fake_cuda.h): who links fake_nccl.cc instead of NCCL.
#pragma once

#include <cstddef>

namespace feedline::test {

/// Communicators that there are.
size_t fake_comms();

}  // namespace feedline::test
