// The calls of a communicator between processes, over links that send and receive.
#pragma once

#include <chrono>
#include <memory>

#include "ranks/process/process_links.h"

namespace feedline::gpu {

/// timeout: how long a rank may be silent. Host memory, on Stream::host.
std::unique_ptr<Communicator> linked_communicator(std::shared_ptr<Links> links, std::chrono::milliseconds timeout);

}  // namespace feedline::gpu
