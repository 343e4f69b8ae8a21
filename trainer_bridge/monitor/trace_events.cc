#include "trainer_bridge/monitor/trace_events.h"

#include <fmt/format.h>

#include <string_view>

#include "base/append.h"
#include "base/json.h"

namespace feedline {
namespace {

// The prefix of the names of feedline's ranges in NVTX, which distinguishes them from the ranges of other libraries.
constexpr std::string_view prefix = "feedline ";

}  // namespace

// Written as text, because a trace may have a million events.
std::string trace_events(const std::vector<ThreadSpans>& threads, int rank, int64_t origin_ns) {
  std::string text;
  const auto name = [&](const char* what, int64_t thread, const std::string& of) {
    append(text, R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, rank, thread,
           Json(of).dump(-1, ' ', false, Json::error_handler_t::replace));
  };
  name("process_name", 0, fmt::format("rank {}", rank));
  for (const ThreadSpans& thread : threads) {
    text += ",\n";
    name("thread_name", thread.id,
         thread.thread + (thread.lost > 0 ? fmt::format(" ({} spans lost)", thread.lost) : ""));
    for (const Span& span : thread.spans) {
      std::string_view shown = span.name;
      if (shown.starts_with(prefix)) shown.remove_prefix(prefix.size());
      append(text,
             ",\n"
             R"({{"ph":"X","cat":"feedline","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f})",
             shown, rank, thread.id, static_cast<double>(span.begin_ns - origin_ns) / 1e3,
             static_cast<double>(span.end_ns - span.begin_ns) / 1e3);
      if (span.number >= 0) append(text, R"(,"args":{{"number":{}}})", span.number);
      text += '}';
    }
  }
  return text;
}

std::string trace_document(const std::string& events) {
  return R"({"displayTimeUnit":"ms","traceEvents":[)"
         "\n" +
         events + "\n]}\n";
}

}  // namespace feedline
