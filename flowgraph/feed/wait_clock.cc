#include "flowgraph/feed/wait_clock.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace feedline::flow {
namespace {

double seconds_since(WaitClock::Clock::time_point begin) {
  return std::chrono::duration<double>(WaitClock::Clock::now() - begin).count();
}

}  // namespace

const char* name(Stage stage) noexcept {
  constexpr const char* names[] = {"read", "inflate", "parse", "unpack", "transfer", "upload", "another replica"};
  return names[static_cast<size_t>(stage)];
}

void WaitClock::begin(size_t replica, Stage stage) { replicas_[replica].waiting = {stage, Clock::now()}; }

void WaitClock::end(size_t replica) {
  std::optional<Replica::Waiting>& waiting = replicas_[replica].waiting;
  report_.waited_s[static_cast<size_t>(waiting->stage)] += seconds_since(waiting->since);
  waiting.reset();
}

void WaitClock::note_late(size_t replica, Clock::time_point call) {
  if (!replicas_[replica].late_since) replicas_[replica].late_since = call;
}

bool WaitClock::is_long(size_t replica) const {
  const std::optional<Clock::time_point>& since = replicas_[replica].late_since;
  return since && Clock::now() - *since >= long_wait;
}

bool WaitClock::is_to_be_told(size_t replica) {
  return is_long(replica) && !std::exchange(replicas_[replica].told, true);
}

void WaitClock::given(size_t number, bool is_batch, Clock::time_point call) {
  Replica& replica = replicas_[number];
  const auto now = Clock::now();
  if (is_batch && !report_.first_batch) {
    // The report shows the time before the first batch as start-up time, not as waiting. So the waits are counted anew
    // from here.
    report_.first_batch = now;
    std::ranges::fill(report_.waited_s, 0);
    for (Replica& other : replicas_)
      if (other.waiting) other.waiting->since = now;
  }
  if (is_batch && std::exchange(replica.has_batch, true)) {
    report_.next.add(now - replica.late_since.value_or(call));
    report_.next_calls++;
    if (!replica.late_since) report_.next_ready++;
  }
  replica.late_since.reset();
  replica.told = false;
}

WaitReport WaitClock::report() const {
  WaitReport report = report_;
  for (const Replica& replica : replicas_)
    if (replica.waiting)
      report.waited_s[static_cast<size_t>(replica.waiting->stage)] += seconds_since(replica.waiting->since);
  return report;
}

}  // namespace feedline::flow
