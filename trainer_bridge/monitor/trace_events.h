// Writes spans as a trace that Perfetto, chrome://tracing and other viewers can open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/spans.h"

namespace feedline {

/// Returns the spans of a process as JSON text: events of Chrome's trace format with commas between them. An event "X"
/// is a span, with the span's number in `args`. Events "M" give the names of the process and of its threads. Times are
/// microseconds of this machine's steady clock, minus `origin_ns`. Each rank is a process. The events of several ranks
/// may be joined by a comma, if their times have the same origin.
std::string trace_events(const std::vector<ThreadSpans>& threads, int rank, int64_t origin_ns = 0);

/// Returns the JSON document with these events.
std::string trace_document(const std::string& events);

}  // namespace feedline
