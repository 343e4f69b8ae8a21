// What ranks compare before they begin.
#include "flowgraph/data/compare_ranks.h"

#include "feedline_pipeline.pb.h"
#include "ranks/rank_group.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("fields of a pipeline that only one rank knows are told") {
  const auto thrown = on_ranks(2, [](int rank, Exchange exchange) {
    RankGroup group(std::move(exchange), rank, 2);
    config::Pipeline pipeline;
    pipeline.mutable_batch()->set_global_batch_size(4);
    if (rank == 1) {  // a newer version of feedline
      pipeline.GetReflection()->MutableUnknownFields(&pipeline)->AddVarint(1000, 1);
      config::Batch* const batch = pipeline.mutable_batch();
      batch->GetReflection()->MutableUnknownFields(batch)->AddLengthDelimited(1001, "text");
    }
    group.run([&] { flow::compare_pipelines(group, pipeline, 1, 1, 0); });
  });
  for (const std::string& text : thrown) {
    CHECK_THAT(text, Catch::StartsWith("rank 1 differs from rank 0: "));
    CHECK_THAT(text, Catch::Contains("field 1000"));
    CHECK_THAT(text, Catch::Contains("batch.field 1001"));
  }
}
