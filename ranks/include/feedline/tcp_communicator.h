// A communicator for ranks that are processes, on one machine or several; TCP carries the bytes between them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "feedline/communicator.h"
#include "feedline/exchange.h"
#include "feedline/export.h"

namespace feedline {

struct TcpOptions {
  /// Where rank 0 listens until all ranks have connected: a name or IP address of its machine that the others can
  /// reach, and a port. With an exchange, only rank 0 uses address and port, and may leave out either (see
  /// tcp_communicator()).
  std::string address = {};
  uint16_t port = 0;
  int rank = 0;
  int world_size = 1;
  /// How long ranks wait for one another to start. They may start in any order, and a rank that ends may be restarted
  /// meanwhile. After 5 s, 10 s, 20 s, ... a rank logs for which ranks it waits. Rank 0 logs the ranks that have not
  /// connected to it.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  /// How long a rank may send no heartbeat before the others end with an Error; more than 0. A separate thread in each
  /// process sends the heartbeats, also while the program pauses between two calls. If a process dies, the others
  /// notice at once, unless its machine dies with it or processes that it has forked still hold its connections.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// A secret that all ranks have, by which they recognise one another. It must have at least 16 bytes, which should be
  /// random. If it is empty, the secret is that of the environment variable FEEDLINE_MEET_TOKEN, if this is set. With
  /// an exchange neither is used: rank 0 makes a random secret and sends it through the exchange. Two ranks prove to
  /// each other that they know the secret, and do not send it.
  std::string token = {};
  /// If true, ranks without a secret may meet at any address. Any process that can connect can then pretend to be a
  /// rank, so set it only in a network that you trust. If false, ranks without a secret meet only at a loopback
  /// address, so all of them must be on one machine.
  bool open = false;
  /// Ends the wait for other ranks to start, with Error stalled, soon after stop was requested: within 50 ms, or within
  /// 5 s while a connection is being made.
  std::stop_token stop = {};
};

/// Reads the options from the environment that torchrun and similar launchers set: MASTER_ADDR, MASTER_PORT, RANK and
/// WORLD_SIZE. The port is MASTER_PORT + 1, because the launcher itself listens at MASTER_PORT. If the launcher chose
/// MASTER_PORT at random, make sure that the next port is free. If torchrun says that all ranks are on this machine
/// (LOCAL_WORLD_SIZE is WORLD_SIZE), the address is localhost. Throws Error bad_pipeline if a variable is missing or
/// is not a number in its range.
FEEDLINE_PUBLIC TcpOptions tcp_options_of_environment();

/// Makes this rank's communicator; all ranks must call it. Buffers lie in host memory and streams are Stream::host.
/// After a failure the communicator does not touch the buffers any more. Throws Error
///   * bad_pipeline if the options of this rank are invalid, its secret is not that of rank 0, or a program
///     that is not a rank answers;
///   * stalled if not all ranks connect within start_timeout (on rank 0 the message names the missing ranks), if
///     `stop` ends the wait, or if rank 0 refuses to form a group, for example because the ranks' options differ;
///   * io_error if a connection fails.
///
/// exchange: an all-gather that the program supplies for these ranks. It is used during the call only. Through it, rank
/// 0 tells the others where it listens. If rank 0's options have no port (0), rank 0 listens at a free one; if they
/// have no address, rank 0 sends all addresses of its machine. If one rank fails, no rank gets a communicator.
///
/// If the address is localhost or an IP address of its machine, rank 0 listens there. If the address is any other name,
/// an IP address that its machine does not have, or empty, rank 0 listens at all addresses of its machine. Rank 0
/// refuses a process whose token, rank or world size is wrong, and logs that. This changes nothing for the other ranks.
/// Nothing is encrypted: see docs/ranks.md.
FEEDLINE_PUBLIC std::unique_ptr<Communicator> tcp_communicator(const TcpOptions& options,
                                                               const Exchange& exchange = {});

}  // namespace feedline
