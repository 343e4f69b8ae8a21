// NCCL acted out between the acted GPUs of one process (acted_cuda.h): who links acted_nccl.cc instead of NCCL.
#pragma once

#include <cstddef>

namespace feedline::test {

/// Communicators that there are.
size_t acted_comms();

}  // namespace feedline::test
