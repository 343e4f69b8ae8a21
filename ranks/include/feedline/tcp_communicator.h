// A communicator for ranks that are processes, on one machine or several; TCP carries the bytes between them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "feedline/communicator.h"
#include "feedline/exchange.h"
#include "feedline/export.h"

namespace feedline {

struct TcpOptions {
  /// Where rank 0 listens until all ranks have connected: a name or IP address of its machine that the others can
  /// reach, and a port. With an exchange, only rank 0 needs to set them, and may leave either out (see
  /// tcp_communicator()).
  std::string address = {};
  uint16_t port = 0;
  int rank = 0;
  int world_size = 1;
  /// How long ranks wait for one another to start. They may start in any order, and a rank that ends may be restarted
  /// meanwhile. After 5 s, 10 s, 20 s, ... a rank logs for whom it waits. Rank 0 names the ranks that have not come.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  /// How long a rank may be silent before the others end with an Error; more than 0. A separate thread in each process
  /// tells the others that the process lives, also while the program pauses between two calls. If a process dies, the
  /// others notice at once, unless its machine dies with it or processes that it has forked still hold its connections.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
};

/// Reads the options from the environment that torchrun and similar launchers set: MASTER_ADDR, MASTER_PORT, RANK and
/// WORLD_SIZE. The port is MASTER_PORT + 1, because the launcher itself listens at MASTER_PORT. If the launcher chose
/// MASTER_PORT at random, make sure that the next port is free. Throws Error bad_pipeline if a variable is missing or
/// is not a number in its range.
FEEDLINE_PUBLIC TcpOptions tcp_options_of_environment();

/// Makes this rank's communicator; all ranks must call it. Buffers lie in host memory and streams are Stream::host.
/// After a failure the communicator does not touch the buffers any more. Throws Error bad_pipeline for options that
/// make no sense; stalled if the ranks do not all come in time (on rank 0 the message names the missing ones), or if
/// rank 0 has refused to form a group, for example because options differ between ranks; and io_error if a connection
/// fails.
///
/// exchange: an all-gather that the program supplies for these ranks. It is used during the call only. With it, rank 0
/// tells the others where it listens. If its options have no port (0), it listens at a free one; if they have no
/// address, it tells them all addresses of its machine. With it, too, either all ranks get a communicator or none does.
///
/// Use it only in trusted networks: nothing is encrypted, and a process that claims to be a rank is believed.
FEEDLINE_PUBLIC std::unique_ptr<Communicator> tcp_communicator(const TcpOptions& options,
                                                               const Exchange& exchange = {});

}  // namespace feedline
