// A communicator between processes. It builds all collective calls from point-to-point links.
#pragma once

#include <chrono>
#include <memory>

#include "ranks/process/process_links.h"

namespace feedline::ranks {

/// Returns this rank's communicator over `links`. timeout: how long a rank may send no heartbeat before the others end
/// with an Error. Buffers lie in host memory, and streams are Stream::host.
std::unique_ptr<Communicator> linked_communicator(std::shared_ptr<Links> links, std::chrono::milliseconds timeout);

}  // namespace feedline::ranks
