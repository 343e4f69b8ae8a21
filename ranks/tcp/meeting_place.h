// Chooses the addresses at which a rank listens while ranks find one another over TCP, and listens there.
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
/// Returns the Error bad_pipeline for ranks that may meet only at loopback addresses, but were told to meet at an
/// address that is not a loopback address.
Error needs_token(const TcpOptions& options);

/// Rank 0 calls this. Listens at the address and the port in `options`, as the comment on tcp_communicator() describes.
/// Throws needs_token() if the ranks may not meet there, and Error io_error if it cannot listen there.
std::vector<net::Socket> listen_for(const TcpOptions& options);

/// The ranks other than 0 call this. Listens where the other ranks will try to reach this rank. `host`: the connection
/// by which this rank has reached rank 0. `names`: the names or addresses of rank 0's machine.
///
/// If this rank is not on the machine of rank 0, it listens at the address from which it has connected to rank 0. If it
/// is on that machine, it listens at all addresses. But it listens only at loopback addresses, and at the address at
/// which it has reached rank 0, if the ranks must stay on this machine or if `names` has only loopback names. Throws
/// Error io_error.
std::vector<net::Socket> listen_beside(const net::Socket& host, const TcpOptions& options,
                                       const std::vector<std::string>& names);

}  // namespace feedline::ranks
