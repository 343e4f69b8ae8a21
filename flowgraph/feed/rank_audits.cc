#include "flowgraph/feed/rank_audits.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rank_message.h"

namespace feedline::flow {
namespace {

/// What a rank sends in place of an epoch's number, if it has not finished any epoch.
constexpr uint64_t no_epoch = UINT64_MAX;

std::string pack(const FinishedEpoch& epoch) {
  const EpochEnd& end = epoch.sums.end;
  MessageWriter out;
  out.put(end.epoch);
  out.put(end.first_step);
  out.put(epoch.sums.delivered);
  out.put(end.dropped);
  out.put(end.bad);
  out.put(end.lost);
  out.put_rows(std::span(end.doubts));
  out.put<uint8_t>(epoch.expected.sum.has_value());
  out.put(epoch.expected.sum.value_or(0));
  out.put_text(epoch.expected.why_none);
  return out.take();
}

FinishedEpoch unpack(MessageReader in) {
  FinishedEpoch epoch;
  EpochEnd& end = epoch.sums.end;
  end.epoch = in.get<uint64_t>();
  end.first_step = in.get<int64_t>();
  epoch.sums.delivered = in.get<uint64_t>();
  end.dropped = in.get<uint64_t>();
  end.bad = in.get<uint64_t>();
  end.lost = in.get<uint64_t>();
  end.doubts = in.get_rows<uint64_t>();
  const bool is_known = in.get_bool();
  const auto sum = in.get<uint64_t>();
  if (is_known) epoch.expected.sum = sum;
  epoch.expected.why_none = in.get_text();
  in.end();
  return epoch;
}

void add(const EpochSums& rank, EpochSums& sums) {
  sums.delivered += rank.delivered;
  sums.end.first_step = std::max(sums.end.first_step, rank.end.first_step);
  sums.end.dropped += rank.end.dropped;
  sums.end.bad += rank.end.bad;
  sums.end.lost += rank.end.lost;
  sums.end.doubts.insert(sums.end.doubts.end(), rank.end.doubts.begin(), rank.end.doubts.end());
}

std::string name_of(uint64_t epoch) { return epoch == no_epoch ? "none" : fmt::format("epoch {}", epoch); }

}  // namespace

std::optional<EpochAudit> judge_together(const Exchange& exchange, const std::vector<int>& parts,
                                         const std::optional<FinishedEpoch>& mine) {
  const std::vector<std::string> messages =
      exchange(pack(mine ? *mine : FinishedEpoch{.sums = {.end = {.epoch = no_epoch}}, .expected = {}}));
  if (messages.size() != parts.size())
    throw Error(Category::bad_pipeline,
                fmt::format("exchange: the function returned {} strings for {} ranks; it must return one string of "
                            "each rank",
                            messages.size(), parts.size()));
  std::vector<FinishedEpoch> all;
  for (const std::string& message : messages)
    all.push_back(unpack(MessageReader(message, static_cast<int>(all.size()))));
  if (!mine) return std::nullopt;
  EpochSums sums{.end = {.epoch = mine->sums.end.epoch}};
  std::set<int> counted;
  for (size_t rank = 0; rank < all.size(); rank++)
    if (counted.insert(parts[rank]).second) add(all[rank].sums, sums);
  EpochAudit audit = judge(sums, mine->expected);
  const auto open = [&](std::string why) {
    audit.verdict = EpochAudit::Verdict::open;
    audit.why = std::move(why);
  };
  const uint64_t first = all.front().sums.end.epoch;
  const auto other = std::ranges::find_if(all, [&](const auto& rank) { return rank.sums.end.epoch != first; });
  // Ranks expect different sums if only some of them have met bad records (EpochLedger::passes_ended_in()).
  const auto unlike =
      std::ranges::find_if(all, [&](const auto& rank) { return rank.expected.sum != mine->expected.sum; });
  if (other != all.end())
    open(fmt::format("the last epoch that rank 0 has completed is {}, but on rank {} it is {}", name_of(first),
                     other - all.begin(), name_of(other->sums.end.epoch)));
  else if (unlike != all.end() && mine->expected.sum)
    open(fmt::format("on rank {}: {}", unlike - all.begin(),
                     unlike->expected.sum ? "fewer or more passes can be compared" : unlike->expected.why_none));
  return audit;
}

}  // namespace feedline::flow
