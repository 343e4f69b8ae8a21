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
