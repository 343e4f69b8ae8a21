// Where a rank listens while ranks find one another over TCP.
#pragma once

#include <string>
#include <vector>

#include "base/net/sockets.h"
#include "feedline/tcp_communicator.h"

namespace feedline::ranks {

/// Returns the place at which ranks meet, for messages: "node7:29501".
std::string place_of(const TcpOptions& options);

/// Returns whether the ranks may meet only at loopback addresses, because they have no secret and TcpOptions::open is
/// false.
bool stays_on_this_machine(const TcpOptions& options);
/// Returns the Error bad_pipeline for ranks that may meet only at loopback addresses, but are to meet at a different
/// address.
Error needs_token(const TcpOptions& options);

/// Rank 0 calls this. Listens at the address and the port in `options`, as tcp_communicator() says. Throws Error
/// needs_token() if the ranks may not meet there, and Error io_error if it cannot listen there.
std::vector<net::Socket> listen_for(const TcpOptions& options);

/// The ranks other than 0 call this. `host`: the connection by which this rank has reached rank 0. Listens at the
/// address at which other ranks will try to reach this rank. If this rank is on the machine of rank 0, that is the
/// address at which they have reached rank 0. Otherwise it is the address from which rank 0 has seen this rank connect.
/// `names`: the names or addresses of rank 0's machine. Throws Error io_error.
std::vector<net::Socket> listen_beside(const net::Socket& host, const TcpOptions& options,
                                       const std::vector<std::string>& names);

}  // namespace feedline::ranks
