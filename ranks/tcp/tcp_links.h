// The links of ranks that have met over TCP.
#pragma once

#include <memory>
#include <vector>

#include "ranks/process/process_links.h"
#include "ranks/tcp/tcp_rendezvous.h"

namespace feedline::ranks {

/// Returns the links of a rank. `peers`: what meet() has returned. Throws Error io_error if the system has no
/// descriptor left.
std::shared_ptr<Links> tcp_links(int rank, std::vector<TcpPeer> peers);

}  // namespace feedline::ranks
