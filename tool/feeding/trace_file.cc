#include "tool/feeding/trace_file.h"

#include <fmt/format.h>

#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/machine.h"
#include "base/rank_message.h"
#include "trainer_bridge/monitor/trace_events.h"

namespace feedline::tool {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Returns the time that this rank's clock shows when rank 0's clock shows 0.
int64_t origin_of(const Exchange& ranks, int rank) {
  ranks({});  // all ranks return from this at about the same time
  MessageWriter mine;
  mine.put(now_ns());
  mine.put_text(boot_id());
  const std::vector<std::string> all = ranks(mine.take());
  const auto read = [&](int of) {
    MessageReader message(all[static_cast<size_t>(of)], of);
    const auto now = message.get<int64_t>();
    constexpr int64_t most = int64_t{1} << 61;  // 73 years; the difference of two such times fits
    if (now < 0 || now > most) message.refuse("has a time that is not possible");
    return std::pair(now, message.get_text());
  };
  const auto [first, first_boot] = read(0);
  const auto [own, own_boot] = read(rank);
  return !own_boot.empty() && own_boot == first_boot ? 0 : own - first;
}

}  // namespace

TraceFile::TraceFile(const std::string& path, int rank) : rank_(rank) {
  if (rank > 0) return;
  io::remove_unfinished(path);
  file_.emplace(path);
}

void TraceFile::write(const std::shared_ptr<Transport>& ranks) {
  const std::vector<ThreadSpans> threads = recording_.take();
  std::string events;
  try {
    if (ranks) {
      const Exchange exchange = exchange_over(ranks);
      const int64_t origin = origin_of(exchange, rank_);
      for (const std::string& of : exchange(trace_events(threads, rank_, origin)))
        events += (events.empty() ? "" : ",\n") + of;
    }
  } catch (const Error& error) {
    log_warning(fmt::format("the trace file has only the threads of this rank: {}", error.what()));
    events.clear();
  }
  if (!file_) return;
  const std::string document = trace_document(events.empty() ? trace_events(threads, rank_) : events);
  file_->write(std::as_bytes(std::span(document)));
  file_->publish();
}

}  // namespace feedline::tool
