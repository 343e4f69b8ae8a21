#include "feedline/pipeline.h"

#include "feedline/error.h"
#include "flowgraph/spec.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::flow;

namespace {

const char* const chess = R"text(
source   { files: "data/chess-*.tfrecord" }
feature  { name: "d" dtype: BYTES length: 194 }            # exactly 194 bytes in every record
feature  { name: "s" dtype: INT64 }
batch    { global_batch_size: 512 last_batch_policy: DROP }
output   { name: "board" dtype: FLOAT32 feature: "d"
           unpack_bits { shape: [8, 8, 24] channel_order: [0,4,8,12,16,20,1,5,9,13,17,21,2,6,10,14,18,22,3,7,11,15,19,23]
                         scale: [1,1,1,1,1,1,-1,-1,-1,-1,-1,-1,1,1,1,1,1,1,-1,-1,-1,-1,-1,-1] } }
output   { name: "flags" dtype: FLOAT32 feature: "d" unpack_bits { bit_offset: 1536 shape: [10] } }
output   { name: "mate"  dtype: FLOAT32 feature: "d" unpack_bits { bit_offset: 1546 } internal: true }
output   { name: "score" dtype: FLOAT64 expression { formula: "(1-out.mate)*A*tanh(s/K) + out.mate*sign(s)*(A+(1-A)/(B-1)*max(0,B-abs(s)))"
           constants { key: "A" value: 0.95 } constants { key: "K" value: 600 } constants { key: "B" value: 60 } } }
)text";

}  // namespace

TEST_CASE("the chess pipeline, resolved") {
  const PipelineSpec spec = validate(parse_pipeline(chess, "/base"), [](const FilePatterns& patterns) {
    CHECK(patterns.folder == "/base");
    CHECK(patterns.files == std::vector<std::string>{"data/chess-*.tfrecord"});
    return FileList{{"/base/data/chess-0.tfrecord"}, {}};
  });
  REQUIRE(spec.outputs.size() == 4);
  const OutputSpec& board = spec.outputs[0];
  CHECK(board.shape == Shape({8, 8, 24}));
  REQUIRE(board.unpack);
  CHECK(board.unpack->stride_bits == std::vector<int64_t>{192, 24, 0});
  CHECK(board.unpack->channel_axis == 2);
  CHECK(board.unpack->channel_bits[1] == 4);
  CHECK(board.unpack->out == DType::float32);
  CHECK(spec.outputs[1].unpack->channel_axis == -1);
  CHECK(spec.outputs[2].internal);
  CHECK(std::get<FromExpression>(spec.outputs[3].from).expression == 0);
  REQUIRE(spec.expressions.size() == 1);
  REQUIRE(spec.expressions[0].inputs.size() == 2);
  CHECK(spec.expressions[0].inputs[0].unpack->bit_offset == 1546);
  CHECK(spec.expressions[0].inputs[1].feature == 1);
  CHECK(spec.warnings.empty());
}
