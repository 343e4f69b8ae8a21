// Spans as a trace that Perfetto, chrome://tracing and other viewers open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/spans.h"

namespace feedline {

/// Returns the spans of a process as JSON text, events of Chrome's trace format with commas between them: "X" for a
/// span, with its number in `args`, and "M" for the names of the process and its threads. Times are microseconds of
/// this machine's steady clock, less `origin_ns`. Ranks are processes: the events of several ranks, whose times have
/// one origin, may be joined by a comma.
std::string trace_events(const std::vector<ThreadSpans>& threads, int rank, int64_t origin_ns = 0);

/// Returns the JSON document with these events.
std::string trace_document(const std::string& events);

}  // namespace feedline
