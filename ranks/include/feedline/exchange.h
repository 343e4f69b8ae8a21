// How ranks talk to one another while they start.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/export.h"

namespace feedline {

/// An all-gather of byte strings, supplied by the program: gives `mine` to all ranks, waits for theirs, and returns
/// every rank's string in the order of the ranks, `mine` at its own place. Strings hold any bytes, differ in length
/// between ranks, may be empty, and have at most 257 KiB.
///
/// All ranks call theirs equally often, one call after another, from the thread that makes the feeder, or the
/// communicator; with parallelism.cpu_set from one that the feeder starts for that. It may block without limit, and may
/// throw: then this rank's start fails with that exception, and whoever waits for this rank inside the exchange is for
/// it, or for the launcher, to end.
using Exchange = std::function<std::vector<std::string>(std::string_view mine)>;

/// For ranks that are threads of one process: one exchange for each, thread-safe among each other. A rank whose copies
/// are all gone has left; calls that would wait for it, then or later, throw Error stalled.
FEEDLINE_PUBLIC std::vector<Exchange> exchanges_between_threads(int ranks);

}  // namespace feedline
