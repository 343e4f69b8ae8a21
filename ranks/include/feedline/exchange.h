// An exchange sends byte strings between ranks while they start. After the start, ranks use a transport (transport.h)
// or a communicator (communicator.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/export.h"

namespace feedline {

/// An all-gather of byte strings, which the program supplies. It gives `mine` to all ranks, waits for their strings,
/// and returns the strings of all ranks, this rank's included, in the order of the ranks. A string may hold any bytes,
/// may be empty, and has at most 257 KiB. The ranks' strings may differ in length.
///
/// All ranks call their exchange equally often, one call after another. feedline calls it on the thread that makes the
/// feeder or the communicator; with parallelism.cpu_set, on a thread that the feeder starts for this purpose. The
/// exchange may block without limit. If it throws, the start of this rank fails with that exception. Other ranks may
/// then still wait for this rank inside their exchange; only the exchange itself or the launcher can end that wait.
using Exchange = std::function<std::vector<std::string>(std::string_view mine)>;

/// Returns an exchange for each of `ranks` ranks that are threads of one process, over a communicator between them. The
/// threads may call their exchanges at the same time. A rank leaves when the last copy of its exchange is destroyed;
/// calls that wait for this rank, then or later, throw Error stalled.
FEEDLINE_PUBLIC std::vector<Exchange> exchanges_between_threads(int ranks);

}  // namespace feedline
