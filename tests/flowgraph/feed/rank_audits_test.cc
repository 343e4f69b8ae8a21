// The sums of an epoch, as ranks tell them one another.
#include "flowgraph/feed/rank_audits.h"

#include "support/catch.h"

using namespace feedline;
using namespace feedline::flow;

TEST_CASE("sums are those of as many ranks as there are") {
  FinishedEpoch mine;
  mine.sums.delivered = 5;
  mine.expected.sum = 10;
  std::string said;
  const auto answered = [&](size_t ranks, const std::string& more = "") {
    return judge_together(
        [&](std::string_view sent) {
          said = sent;
          return std::vector<std::string>(ranks, said + more);
        },
        {0, 1}, mine);
  };
  CHECK(answered(2)->verdict == EpochAudit::Verdict::holds);
  for (const size_t ranks : {0, 1, 3}) CHECK_THROWS_WITH(answered(ranks), Catch::Contains("strings for 2 ranks"));
  CHECK_THROWS_WITH(answered(2, "x"), Catch::Contains("the message of rank 0 has bytes after its end"));
}

TEST_CASE("no rank judges an epoch that another rank cannot judge") {
  FinishedEpoch whole, part, shorter;
  whole.sums.delivered = 5;
  whole.expected.sum = 10;
  part.sums.delivered = 4;  // a record was bad
  part.expected.why_none = "it had bad records";
  shorter.sums.delivered = 0;
  shorter.expected.sum = 5;
  const auto message_of = [](const FinishedEpoch& epoch) {
    std::string sent;
    const auto keep = [&](std::string_view message) { return std::vector<std::string>{sent = message}; };
    judge_together(keep, {0}, epoch);
    return sent;
  };
  const auto judged = [&](const FinishedEpoch& mine, const FinishedEpoch& other) {
    const auto both = [&](std::string_view) { return std::vector<std::string>{message_of(whole), message_of(other)}; };
    return *judge_together(both, {0, 1}, mine);
  };
  CHECK(judged(whole, whole).verdict == EpochAudit::Verdict::holds);
  CHECK(judged(whole, part).verdict == EpochAudit::Verdict::open);
  CHECK(judged(whole, part).why == "on rank 1: it had bad records");
  CHECK(judged(part, part).verdict == EpochAudit::Verdict::open);
  CHECK(judged(part, part).why == "it had bad records");
  CHECK(judged(whole, shorter).why == "on rank 1: fewer or more passes can be compared");
}
