#include "flowgraph/feed/rank_audits.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/rank_message.h"

namespace feedline::flow {
namespace {

/// What a rank sends in place of an epoch's number, if it has not finished any epoch.
constexpr uint64_t no_epoch = UINT64_MAX;

std::string pack(const EpochSums& sums) {
  const EpochEnd& end = sums.end;
  MessageWriter out;
  out.put(end.epoch);
  out.put(end.first_step);
  out.put(sums.delivered);
  out.put(end.dropped);
  out.put(end.bad);
  out.put(end.lost);
  out.put_rows(std::span(end.doubts));
  return out.take();
}

EpochSums unpack(MessageReader in) {
  EpochSums sums;
  EpochEnd& end = sums.end;
  end.epoch = in.get<uint64_t>();
  end.first_step = in.get<int64_t>();
  sums.delivered = in.get<uint64_t>();
  end.dropped = in.get<uint64_t>();
  end.bad = in.get<uint64_t>();
  end.lost = in.get<uint64_t>();
  end.doubts = in.get_rows<uint64_t>();
  in.end();
  return sums;
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
  const std::vector<std::string> messages = exchange(pack(mine ? mine->sums : EpochSums{.end = {.epoch = no_epoch}}));
  if (messages.size() != parts.size())
    throw Error(Category::bad_pipeline,
                fmt::format("exchange: the function returned {} strings for {} ranks; it must return one string of "
                            "each rank",
                            messages.size(), parts.size()));
  std::vector<EpochSums> all;
  for (const std::string& message : messages)
    all.push_back(unpack(MessageReader(message, static_cast<int>(all.size()))));
  if (!mine) return std::nullopt;
  EpochSums sums{.end = {.epoch = mine->sums.end.epoch}};
  std::set<int> counted;
  for (size_t rank = 0; rank < all.size(); rank++)
    if (counted.insert(parts[rank]).second) add(all[rank], sums);
  EpochAudit audit = judge(sums, mine->expected);
  const uint64_t first = all.front().end.epoch;
  const auto other = std::ranges::find_if(all, [&](const EpochSums& rank) { return rank.end.epoch != first; });
  if (other != all.end()) {
    audit.verdict = EpochAudit::Verdict::open;
    audit.why = fmt::format("the last epoch that rank 0 has completed is {}, but on rank {} it is {}", name_of(first),
                            other - all.begin(), name_of(other->end.epoch));
  }
  return audit;
}

}  // namespace feedline::flow
