// Where a rank listens while ranks find one another over TCP.
#pragma once

#include <string>
#include <vector>

#include "base/net/sockets.h"
#include "feedline/tcp_communicator.h"

namespace feedline::ranks {

/// Returns the place at which ranks meet, for messages: "node7:29501".
std::string place_of(const TcpOptions& options);

/// Returns whether the ranks, which have no secret, may meet only at loopback addresses.
bool stays_on_this_machine(const TcpOptions& options);
/// Returns the Error bad_pipeline of ranks that are to meet elsewhere nevertheless.
Error needs_token(const TcpOptions& options);

/// Rank 0: listens where the options say. Throws Error bad_pipeline, needs_token(), and io_error.
std::vector<net::Socket> listen_for(const TcpOptions& options);

/// Another rank, which has reached rank 0 by the connection `host`: listens where the others reach this rank. This is
/// where rank 0 has seen it come from; or, if it is on the machine of rank 0, where the others have reached rank 0.
/// `names`: the names or addresses of rank 0's machine. Throws Error io_error.
std::vector<net::Socket> listen_beside(const net::Socket& host, const TcpOptions& options,
                                       const std::vector<std::string>& names);

}  // namespace feedline::ranks
