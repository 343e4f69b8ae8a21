// Ranks that are processes, on one machine or several, between which TCP carries the bytes.
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
  /// Where rank 0 listens until all have come: a name or number of its machine that the others can reach, and a port.
  /// Of ranks that have an exchange rank 0 alone may say so.
  std::string address = {};
  uint16_t port = 0;
  int rank = 0;
  int world_size = 1;
  /// How long ranks wait for one another to come at all. They may come in any order, and start anew meanwhile. After 5
  /// s they log for whom they wait: rank 0 names the ranks that have not come.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  /// How long a rank may be silent, as of MpiOptions; more than 0. Of one that dies the others hear at once, unless its
  /// machine dies with it, or processes that it has forked still hold its connections.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
};

/// What torchrun, and others as it does, tell a process: MASTER_ADDR, RANK, WORLD_SIZE, and as port the one behind
/// MASTER_PORT, which is the launcher's own: see that it is free, where the launcher chose any. Throws Error
/// bad_pipeline where one of them is missing or no number.
FEEDLINE_PUBLIC TcpOptions tcp_options_of_environment();

/// Called by all ranks. Buffers are host memory, on Stream::host; behind a failure they are not touched any more.
/// Throws Error: of rank 0, which ranks have not come. exchange: an all-gather of the program's own among these ranks,
/// used here and not kept. By it rank 0 says where it listens: at the port of its options, or 0, any; at their address,
/// or none, all of its machine. And by it all have a communicator or none.
///
/// For networks that are trusted: nothing is encrypted, and who says that it is a rank is believed.
FEEDLINE_PUBLIC std::unique_ptr<Communicator> tcp_communicator(const TcpOptions& options,
                                                               const Exchange& exchange = {});

}  // namespace feedline
