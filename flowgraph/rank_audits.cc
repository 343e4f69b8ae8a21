#include "flowgraph/rank_audits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/thread.h"

namespace feedline::flow {
namespace {

/// The sums of an epoch as ranks send them.
struct Message {
  uint64_t epoch = 0;
  int64_t first_step = 0;
  uint64_t delivered = 0, dropped = 0, bad = 0, lost = 0;
  uint64_t doubts = 0;  // how many of these there are
  std::array<uint64_t, doubts_tried + 1> doubt = {};
};

Message message_of(const EpochSums& sums) {
  const EpochEnd& end = sums.end;
  Message message{.epoch = end.epoch,
                  .first_step = end.first_step,
                  .delivered = sums.delivered,
                  .dropped = end.dropped,
                  .bad = end.bad,
                  .lost = end.lost,
                  .doubts = std::min(end.doubts.size(), std::tuple_size_v<decltype(Message::doubt)>)};
  std::copy_n(end.doubts.begin(), message.doubts, message.doubt.begin());
  return message;
}

void add(const Message& message, EpochSums& sums) {
  sums.delivered += message.delivered;
  sums.end.first_step = std::max(sums.end.first_step, message.first_step);
  sums.end.dropped += message.dropped;
  sums.end.bad += message.bad;
  sums.end.lost += message.lost;
  const auto doubts = std::span(message.doubt).first(std::min<uint64_t>(message.doubts, message.doubt.size()));
  sums.end.doubts.insert(sums.end.doubts.end(), doubts.begin(), doubts.end());
}

EpochAudit judge_all(const std::vector<Message>& all, const std::vector<int>& parts, const ExpectedAudit& expected) {
  EpochSums sums{.end = {.epoch = all.front().epoch}};
  for (size_t rank = 0; rank < all.size(); rank++)
    if (std::find(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(rank), parts[rank]) ==
        parts.begin() + static_cast<ptrdiff_t>(rank))
      add(all[rank], sums);
  EpochAudit audit = judge(sums, expected);
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const Message& message) { return message.epoch != all.front().epoch; });
  if (other != all.end()) {
    audit.verdict = EpochAudit::Verdict::open;
    audit.why = fmt::format("rank 0 has ended epoch {}, rank {} epoch {}", all.front().epoch, other - all.begin(),
                            other->epoch);
  }
  return audit;
}

}  // namespace

struct RankAudits::State {
  State(std::shared_ptr<Communicator> between, std::vector<int> parts_of_ranks)
      : communicator(std::move(between)), parts(std::move(parts_of_ranks)) {}

  struct Epoch {
    Message mine;
    ExpectedAudit expected;
  };

  const std::shared_ptr<Communicator> communicator;
  const std::vector<int> parts;
  std::mutex mutex;  // guards from here
  std::condition_variable changed;
  std::deque<Epoch> waiting;  // that this rank has ended and that were not yet gathered
  bool gathering = false;
  bool closed = false;
  bool lost = false;
  std::optional<EpochAudit> last;
  uint64_t differing = 0;
};

RankAudits::RankAudits(std::shared_ptr<Communicator> communicator, std::vector<int> parts)
    : state_(std::make_shared<State>(std::move(communicator), std::move(parts))) {
  try {
    thread_ = start_thread("feedline-audit", [state = state_] { run(state); });
  } catch (const std::system_error& error) {
    throw Error(Category::io_error,
                fmt::format("the thread that adds up the ranks' audits cannot be started: {}", error.what()));
  }
}

RankAudits::~RankAudits() {
  bool gathering = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    gathering = state_->gathering;
  }
  state_->changed.notify_all();
  gathering ? thread_.detach() : thread_.join();
}

void RankAudits::add(const EpochSums& mine, const ExpectedAudit& expected) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->waiting.push_back({message_of(mine), expected});
  }
  state_->changed.notify_all();
}

std::optional<EpochAudit> RankAudits::of_epoch(uint64_t epoch) const {
  const std::lock_guard lock(state_->mutex);
  return state_->last && state_->last->epoch == epoch ? state_->last : std::nullopt;
}

bool RankAudits::lost() const {
  const std::lock_guard lock(state_->mutex);
  return state_->lost;
}

uint64_t RankAudits::differing() const {
  const std::lock_guard lock(state_->mutex);
  return state_->differing;
}

void RankAudits::run(const std::shared_ptr<State>& state) {
  std::vector<Message> all(static_cast<size_t>(state->communicator->size()));
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->closed || !state->waiting.empty(); });
    if (state->closed) return;
    const State::Epoch epoch = std::move(state->waiting.front());
    state->waiting.pop_front();
    state->gathering = true;
    lock.unlock();
    try {
      state->communicator->all_gather(std::as_bytes(std::span(&epoch.mine, 1)), std::as_writable_bytes(std::span(all)),
                                      Stream::host);
    } catch (const std::exception&) {
      // A rank is lost, or has left: next() tells of that. What this epoch comes to stays open.
      lock.lock();
      state->gathering = false;
      state->lost = true;
      return;
    }
    lock.lock();
    state->gathering = false;
    state->last = judge_all(all, state->parts, epoch.expected);
    state->last->epoch = epoch.mine.epoch;
    if (state->last->verdict == EpochAudit::Verdict::differs) state->differing++;
  }
}

}  // namespace feedline::flow
