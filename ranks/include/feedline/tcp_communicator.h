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
  /// A secret that all ranks have, by which they recognise one another: 16 bytes or more; best, random ones. Empty: that
  /// of the environment variable FEEDLINE_MEET_TOKEN, if it is set. Not used with an exchange, through which rank 0
  /// sends a random one. Each of two ranks proves to the other that it knows the secret, and does not send it.
  std::string token = {};
  /// Without a secret, ranks meet only if they are on one machine: at a loopback address. True: they meet anywhere, and
  /// any process that can connect can pretend to be a rank. For networks that are trusted.
  bool open = false;
  /// Ends the wait for other ranks to start, with Error stalled, soon after stop was requested: within 50 ms, or
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
///   * bad_pipeline if the options of this rank are invalid, its secret is not that of rank 0, or another program
///     answers;
///   * stalled if not all ranks connect within start_timeout (on rank 0 the message names the missing ranks), if
///     `stop` ends the wait, or if rank 0 refuses to form a group, for example because the ranks' options differ;
///   * io_error if a connection fails.
///
/// exchange: an all-gather that the program supplies for these ranks. It is used during the call only. Through it, rank
/// 0 tells the others where it listens. If rank 0's options have no port (0), rank 0 listens at a free one; if they
/// have no address, rank 0 sends all addresses of its machine. If one rank fails, no rank gets a communicator.
///
/// Rank 0 listens at the IP address, or at localhost, that it is given; with another name, an address that its machine
/// does not have, or none, at all addresses of its machine. A process that comes with another token, rank or world size is
/// refused, which the log of rank 0 says, and changes nothing for the others. Nothing is encrypted: see docs/ranks.md.
FEEDLINE_PUBLIC std::unique_ptr<Communicator> tcp_communicator(const TcpOptions& options,
                                                               const Exchange& exchange = {});

}  // namespace feedline
