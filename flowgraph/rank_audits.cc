#include "flowgraph/rank_audits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <tuple>
#include <vector>

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
    const auto text = [](uint64_t epoch) {
      return epoch == no_epoch().sums.end.epoch ? std::string("none") : fmt::format("epoch {}", epoch);
    };
    audit.why = fmt::format("rank 0 has last ended {}, rank {} {}", text(all.front().epoch), other - all.begin(),
                            text(other->epoch));
  }
  return audit;
}

}  // namespace

EpochAudit judge_together(Communicator& communicator, const std::vector<int>& parts, const FinishedEpoch& mine) {
  const Message message = message_of(mine.sums);
  std::vector<Message> all(static_cast<size_t>(communicator.size()));
  communicator.all_gather(std::as_bytes(std::span(&message, 1)), std::as_writable_bytes(std::span(all)), Stream::host);
  return judge_all(all, parts, mine.expected);
}

}  // namespace feedline::flow
