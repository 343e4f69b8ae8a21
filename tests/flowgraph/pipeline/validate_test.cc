// Validates pipelines: the specs that the examples become, and the message for everything that makes no sense.
#include <fmt/format.h>

#include "base/machine.h"
#include "feedline/error.h"
#include "flowgraph/example_pipelines.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/rows/row_writer.h"
#include "support/catch.h"
#include "support/npy.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::flow;

namespace {

// Does not touch the disk: every pattern becomes a file.
FileList one_each(const FilePatterns& patterns) { return {patterns.files, {}}; }

PipelineSpec resolve(std::string_view text) { return validate(parse_pipeline(text), one_each); }

// Surroundings for tests of one field.
const std::string source = "source { files: \"f\" } ";
const std::string batch = "batch { global_batch_size: 8 } ";
const std::string features =
    "feature { name: \"d\" dtype: BYTES length: 12 } feature { name: \"open\" dtype: BYTES } "
    "feature { name: \"n\" dtype: INT64 } feature { name: \"m\" dtype: INT64 } feature { name: \"x\" dtype: FLOAT32 } "
    "feature { name: \"image\" dtype: FLOAT32 shape: [4, 5, 3] } feature { name: \"square\" dtype: FLOAT32 shape: [3, "
    "3, 3] } "
    "feature { name: \"list\" dtype: INT64 kind: VARIABLE } feature { name: \"texts\" dtype: BYTES kind: VARIABLE } "
    "feature { name: \"steps\" dtype: FLOAT32 kind: FIXED_SEQUENCE } ";

PipelineSpec with_output(const std::string& output) { return resolve(source + batch + features + output); }
OutputSpec output_of(const std::string& output) { return with_output(output).outputs.at(0); }

std::string error_of(const std::string& text) {
  try {
    resolve(text);
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_pipeline);
    const std::string what = error.what();
    return what.substr(0, what.rfind(" ["));
  }
  return "no error";
}

}  // namespace

TEST_CASE("lookup: the tensor is a row of the table, and a table that is wrong is named") {
  const test::TempDir dir;
  dir.write("t.npy", test::npy("<f2", "(2, 3, 4)", std::string(48, '\0')));
  dir.write("scalars.npy", test::npy("|u1", "(2,)", "ab"));
  dir.write("big.npy", test::npy(">f4", "(1,)", "abcd"));
  const auto resolve_in = [&](const std::string& outputs) {
    return validate(parse_pipeline(source + batch + features + outputs, dir.path()), one_each);
  };
  const PipelineSpec spec = resolve_in(
      "output { name: 'a' feature: 'n' lookup { table: 't.npy' } } "
      "output { name: 'b' feature: 'n' dtype: FLOAT32 lookup { table: './t.npy' } } "
      "output { name: 'c' feature: 'open' lookup { table: 'scalars.npy' keys_file: 'k' } normalize { mean: 1 } }");
  REQUIRE(spec.tables.size() == 2);  // the first two are one; names are read when a table is opened
  CHECK(
      (spec.tables[0].dtype == DType::float16 && spec.tables[0].row_shape == Shape{3, 4} && spec.tables[0].rows == 2));
  CHECK((spec.outputs[0].dtype == DType::float16 && spec.outputs[0].shape == Shape{3, 4}));
  CHECK((spec.outputs[1].dtype == DType::float32 && spec.outputs[1].shape == Shape{3, 4}));
  CHECK((spec.outputs[2].dtype == DType::float32 && spec.outputs[2].shape == Shape{}));
  for (const OutputSpec& output : spec.outputs) CHECK(output.jobs.at(0).rows);
  CHECK(spec.rows_can_fail());

  CHECK_THROWS_WITH(resolve_in("output { name: 'o' feature: 'n' lookup { table: 'big.npy' } }"),
                    dir.file("big.npy") +
                        ": output 'o': lookup.table: its elements are big-endian ('>f4'); save array.astype('<f4') "
                        "[bad_pipeline]");
  const std::string pairs = "feature { name: 'pairs' dtype: INT64 shape: [5, 2] } ";
  const PipelineSpec several =
      resolve_in(pairs +
                 "output { name: 'a' feature: 'pairs' lookup { table: 't.npy' } } "
                 "output { name: 'b' feature: 'pairs' lookup { table: 'scalars.npy' } normalize { mean: 1 } }");
  CHECK((several.outputs[0].shape == Shape{5, 2, 3, 4} && several.outputs[0].jobs.at(0).values == 10));
  CHECK(several.outputs[0].jobs[0].unpack.shape == Shape{3, 4});
  CHECK((several.outputs[1].shape == Shape{5, 2} && several.outputs[1].dtype == DType::float32));
  CHECK_THROWS_WITH(
      resolve_in(
          "feature { name: 'axes' dtype: INT64 shape: [1, 1, 1, 1, 1, 1, 2] } output { name: 'o' feature: 'axes' "
          "lookup { table: 't.npy' } }"),
      "output 'o': feature: 'axes' has a shape of 7 axes ([1, 1, 1, 1, 1, 1, 2]), and each of its values makes 2 more "
      "([3, 4]), but an output has at most 8 axes; give the feature a shape of fewer axes [bad_pipeline]");

  const PipelineSpec known = resolve_in("output { name: 'a' feature: 'n' lookup { table: 't.npy' unknown: 1 } }");
  CHECK(std::get<LookupRows>(*known.outputs[0].jobs[0].rows).key.unknown == 1);
  for (const std::string other : {"unknown: 0", ""})
    CHECK_FALSE(known.outputs ==
                resolve_in("output { name: 'a' feature: 'n' lookup { table: 't.npy' " + other + " } }").outputs);
  for (const std::string unknown : {"2", "-1", "9223372036854775807"})
    CHECK_THROWS_WITH(
        resolve_in("output { name: 'o' feature: 'n' lookup { table: 't.npy' unknown: " + unknown + " } }"),
        "output 'o': lookup.unknown: " + unknown + "; it must be the number of a row of t.npy, 0 to 1 [bad_pipeline]");
  CHECK_THROWS_WITH(
      resolve_in("output { name: 'o' feature: 'n' lookup { table: 'none.npy' } }"),
      dir.file("none.npy") + ": output 'o': lookup.table: cannot be opened: No such file or directory [io_error]");
  CHECK_THROWS_WITH(resolve_in("output { name: 'o' feature: 'n' lookup { table: 't.npy' } layout: CHW }"),
                    Catch::Contains("output 'o': layout: it needs a shape of 3 axes"));
  CHECK_THROWS_WITH(
      resolve_in("output { name: 'o' feature: 'n' lookup { table: 't.npy' } normalize { mean: [1, 2] } }"),
      Catch::Contains("output 'o': normalize.mean: 2 values are given, but the last axis"));
  CHECK_THROWS_WITH(resolve_in("output { name: 'o' feature: 'n' lookup { table: 'scalars.npy' } } "
                               "output { name: 'f' expression { formula: 'out.o + 1' } }"),
                    Catch::Contains("out.o: formulas cannot read values that are looked up in a table"));
}

TEST_CASE("vocabulary: a number for each name, and one table for a file") {
  const test::TempDir dir;
  dir.write("t.npy", test::npy("|u1", "(2,)", "ab"));
  const std::string tags = "feature { name: 'tags' dtype: BYTES shape: [2, 3] } ";
  const PipelineSpec spec = validate(
      parse_pipeline(
          source + batch + features + tags +
              "output { name: 'a' feature: 'open' vocabulary { keys_file: 'k' } } "
              "output { name: 'b' feature: 'tags' dtype: INT32 vocabulary { keys_file: './k' unknown: -1 } } "
              "output { name: 'c' feature: 'd' dtype: INT64 vocabulary { keys_file: 'other' unknown: 0 } } "
              "output { name: 'd' feature: 'open' lookup { table: 't.npy' keys_file: 'k' } } "
              "output { name: 'e' feature: 'tags' vocabulary { keys_file: 'k' unknown_buckets: 2147483648 } } ",
          dir.path()),
      one_each);
  REQUIRE(spec.tables.size() == 3);  // the first two are one; no file of names was looked for
  CHECK((spec.tables[0].is_vocabulary() && spec.tables[0].keys_path == dir.file("k")));
  CHECK((spec.tables[1].is_vocabulary() && spec.tables[1].keys_path == dir.file("other")));
  CHECK_FALSE(spec.tables[2].is_vocabulary());
  const auto rows_of = [&](size_t output) { return std::get<VocabularyRows>(*spec.outputs[output].jobs.at(0).rows); };
  CHECK((spec.outputs[0].dtype == DType::int64 && spec.outputs[0].shape == Shape{}));
  CHECK((rows_of(0).key.table == 0 && !rows_of(0).key.unknown));
  CHECK((spec.outputs[1].dtype == DType::int32 && spec.outputs[1].shape == Shape{2, 3}));
  CHECK((rows_of(1).key.table == 0 && rows_of(1).key.unknown == -1));
  CHECK(spec.outputs[1].jobs[0].values == 6);
  CHECK((rows_of(1).key.by == TableKey::By::name && !spec.tables[0].number_names));
  CHECK((spec.outputs[2].dtype == DType::int64 && rows_of(2).key.table == 1 && rows_of(2).key.unknown == 0));
  CHECK((rows_of(4).key.table == 0 && rows_of(4).key.unknown_buckets == uint64_t{1} << 31 && !rows_of(4).key.unknown));
  CHECK(spec.rows_can_fail());
}

TEST_CASE("names that are numbers: for a feature of INT64, whose file is another table than the same file of BYTES") {
  const test::TempDir dir;
  dir.write("t.npy", test::npy("|u1", "(2,)", "ab"));
  const PipelineSpec spec =
      validate(parse_pipeline(source + batch + features +
                                  "output { name: 'a' feature: 'n' vocabulary { keys_file: 'k' } } "
                                  "output { name: 'b' feature: 'open' vocabulary { keys_file: 'k' } } "
                                  "output { name: 'c' feature: 'n' lookup { table: 't.npy' keys_file: 'k' } } "
                                  "output { name: 'd' feature: 'n' lookup { table: 't.npy' } } ",
                              dir.path()),
               one_each);
  REQUIRE(spec.tables.size() == 4);
  CHECK((spec.tables[0].number_names && !spec.tables[1].number_names && spec.tables[2].number_names &&
         !spec.tables[3].number_names));
  CHECK(std::get<VocabularyRows>(*spec.outputs[0].jobs[0].rows).key.by == TableKey::By::number_name);
  CHECK(std::get<VocabularyRows>(*spec.outputs[1].jobs[0].rows).key.by == TableKey::By::name);
  CHECK(std::get<LookupRows>(*spec.outputs[2].jobs[0].rows).key.by == TableKey::By::number_name);
  CHECK(std::get<LookupRows>(*spec.outputs[3].jobs[0].rows).key.by == TableKey::By::row);
}

TEST_CASE("hash: a number for each value of a FIXED feature") {
  const PipelineSpec spec =
      resolve(source + batch + features +
              "feature { name: 'tags' dtype: BYTES shape: [2, 3] } "
              "output { name: 'a' feature: 'n' hash { buckets: 1 } } "
              "output { name: 'b' feature: 'tags' dtype: INT32 hash { buckets: 2147483648 } } "
              "output { name: 'c' feature: 'd' dtype: INT64 hash { buckets: 4611686018427387904 } }");
  const auto rows_of = [&](size_t output) { return std::get<HashRows>(*spec.outputs[output].jobs.at(0).rows); };
  CHECK((spec.outputs[0].dtype == DType::int64 && spec.outputs[0].shape == Shape{}));
  CHECK((rows_of(0).buckets == 1 && rows_of(0).of_numbers));
  CHECK((spec.outputs[1].dtype == DType::int32 && spec.outputs[1].shape == Shape{2, 3}));
  CHECK((rows_of(1).buckets == uint64_t{1} << 31 && !rows_of(1).of_numbers));
  CHECK(spec.outputs[1].jobs[0].values == 6);
  CHECK((spec.outputs[2].dtype == DType::int64 && rows_of(2).buckets == uint64_t{1} << 62));
  CHECK(spec.tables.empty());
}

TEST_CASE("the chess pipeline") {
  const PipelineSpec spec = resolve(test::chess_pipeline);
  REQUIRE(spec.sources.size() == 1);
  CHECK(spec.sources[0].files == std::vector<std::string>{"data/chess-*.tfrecord"});
  CHECK(spec.sources[0].compression == Compression::automatic);
  CHECK(spec.sources[0].record_limit == uint64_t{256} << 20);
  REQUIRE(spec.features.size() == 2);
  CHECK(spec.features[0].key == "d");
  CHECK(spec.features[0].length == 194);
  CHECK(spec.global_batch_size == 512);
  CHECK(spec.last_batch_policy == LastBatchPolicy::drop);
  CHECK(spec.repeat == 1);
  CHECK(spec.host_prefetch == 2);
  CHECK(spec.device_prefetch == 0);  // not set
  CHECK(spec.device_limit == 0);
  CHECK(spec.memory_limit == usable_memory() / 4);
  CHECK(spec.max_failures == -1);
  CHECK(spec.warnings.empty());

  REQUIRE(spec.outputs.size() == 4);
  const OutputSpec& board = spec.outputs[0];
  CHECK(board.shape == Shape({8, 8, 24}));
  CHECK(board.dtype == DType::float32);
  REQUIRE(board.jobs.size() == 1);
  CHECK(board.jobs[0].unpack.stored == DType::unset);
  CHECK(board.jobs[0].unpack.width == 1);
  CHECK_FALSE(board.jobs[0].unpack.lsb_first);
  CHECK(board.jobs[0].unpack.stride_bits == std::vector<int64_t>{192, 24, 0});
  CHECK(board.jobs[0].unpack.channel_axis == 2);
  CHECK(board.jobs[0].unpack.channel_bits[1] == 4);
  CHECK(board.jobs[0].unpack.channel_bits[23] == 23);
  CHECK(board.jobs[0].unpack.scale.size() == 24);
  CHECK(board.jobs[0].unpack.row_bytes() == 192);
  CHECK(spec.outputs[1].shape == Shape({10}));
  CHECK(spec.outputs[1].jobs.at(0).unpack.bit_offset == 1536);
  CHECK(spec.outputs[1].jobs.at(0).unpack.channel_axis == -1);
  CHECK(spec.outputs[2].internal);
  CHECK(spec.outputs[2].shape == Shape());
  CHECK(spec.outputs[3].jobs.at(0).column.kind == ColumnRef::Kind::expression);
  CHECK(spec.outputs[3].jobs[0].column.number == 0);
  CHECK(spec.outputs[3].jobs.at(0).unpack.stored == DType::float64);

  REQUIRE(spec.expressions.size() == 1);
  CHECK(spec.expressions[0].output == "score");
  REQUIRE(spec.expressions[0].inputs.size() == 2);
  const auto& mate = spec.expressions[0].inputs[0];
  CHECK(spec.expressions[0].program.inputs()[0].name == "out.mate");
  CHECK(mate.feature == 0);
  CHECK(mate.dtype == DType::float32);
  REQUIRE(mate.unpack);
  CHECK(mate.unpack->bit_offset == 1546);
  CHECK(mate.unpack->out == DType::float32);
  CHECK(spec.expressions[0].inputs[1].feature == 1);
  CHECK_FALSE(spec.expressions[0].inputs[1].unpack);
}

TEST_CASE("outputs and formulas find their features among many") {
  std::string text = source + batch;
  for (int i = 0; i < 300; i++) {
    const std::string n = std::to_string(i);
    text += "feature { name: 'f" + n + "' dtype: INT64 } output { name: 'o" + n + "' feature: 'f" +
            std::to_string(299 - i) + "' } output { name: 'e" + n + "' expression { formula: '2 * f" + n + " + out.o" +
            n + "' } } ";
  }
  text += "output { name: 's' stack { features: ['f7', 'f1*', 'f17', 'f7'] } dtype: INT64 }";
  const PipelineSpec spec = resolve(text);
  for (int i = 0; i < 300; i++) {
    const auto at = static_cast<size_t>(i);
    CHECK(spec.outputs[2 * at].jobs[0].column.number == 299 - i);
    const auto& inputs = spec.expressions[at].inputs;
    REQUIRE(inputs.size() == 2);
    CHECK(inputs[0].feature == i);
    CHECK(inputs[1].feature == 299 - i);
  }
  const OutputSpec& stack = spec.outputs.back();
  REQUIRE(stack.jobs.size() == 112);  // f7; f1, f10 to f19, f100 to f199
  CHECK(stack.jobs[0].column.number == 7);
  CHECK(stack.jobs[1].column.number == 1);
}

TEST_CASE("one_hot of several values: a vector for each, or for all values of a list") {
  const PipelineSpec spec =
      resolve(source + batch +
              "feature { name: 'square' dtype: INT64 shape: [2, 3] } feature { name: 'one' dtype: INT64 shape: 1 } "
              "output { name: 'a' feature: 'square' one_hot { classes: 5 } normalize { mean: [1, 2, 3, 4, 5] } } "
              "output { name: 'b' feature: 'one' dtype: UINT8 one_hot { classes: 1048576 } } ");
  CHECK((spec.outputs[0].shape == Shape{2, 3, 5} && spec.outputs[0].dtype == DType::float32));
  CHECK((spec.outputs[0].jobs.at(0).values == 6 && spec.outputs[0].jobs[0].unpack.shape == Shape{5}));
  CHECK((spec.outputs[1].shape == Shape{1, 1048576} && spec.outputs[1].jobs.at(0).values == 1));
  for (const std::string kind : {"VARIABLE", "RAGGED"}) {
    const OutputSpec one = resolve(source + batch + "feature { name: 'list' dtype: INT64 kind: " + kind +
                                   " } output { name: 'o' feature: 'list' one_hot { classes: 5 } } ")
                               .outputs.at(0);
    CHECK((one.dense() && one.shape == Shape{5} && one.jobs.at(0).values == 1));
  }
  const std::string steps = "source { files: 'f' record_type: SEQUENCE_EXAMPLE } " + batch;
  CHECK(error_of(steps + "feature { name: 'l' dtype: INT64 kind: RAGGED where: FEATURE_LIST } output { name: 'o' "
                         "feature: 'l' one_hot { classes: 3 } }") ==
        "output 'o': one_hot: it needs a feature of INT64: FIXED, whose values become a vector each, or VARIABLE or "
        "RAGGED without "
        "steps, whose values become one vector; feature 'l' is RAGGED INT64 in a feature list");
  CHECK_THAT(error_of(steps + "feature { name: 'l' dtype: INT64 kind: FIXED_SEQUENCE where: FEATURE_LIST } output { "
                              "name: 'o' feature: 'l' one_hot { classes: 3 } }"),
             Catch::Contains("feature 'l' is FIXED_SEQUENCE INT64"));
  CHECK_THAT(error_of(source + batch +
                      "feature { name: 'n' dtype: INT64 shape: 4096 } output { name: 'o' feature: 'n' "
                      "one_hot { classes: 1048576 } }"),
             Catch::Contains("each of the 4096 values of 'n' makes 1048576 elements, more than 2^31"));
}

TEST_CASE("the image pipeline") {
  const PipelineSpec spec = resolve(test::image_pipeline);
  CHECK(spec.features[0].length == 3072);  // decode_raw determines the length
  CHECK(spec.features[0].length_of == spec.outputs[0].name);
  const OutputSpec& image = spec.outputs[0];
  CHECK(image.shape == Shape({32, 32, 3}));
  REQUIRE(image.jobs.size() == 1);
  CHECK(image.jobs[0].unpack.stored == DType::uint8);
  CHECK(image.jobs[0].unpack.stride_bits == std::vector<int64_t>{256, 8, 8192});
  CHECK(image.jobs[0].unpack.channel_axis == 2);
  REQUIRE(image.jobs[0].unpack.normalize);
  CHECK(image.jobs[0].unpack.normalize->scale == 0.00392156862745098f);
  CHECK(image.jobs[0].unpack.normalize->mean == std::vector<float>{0.485f, 0.456f, 0.406f});
  CHECK(image.jobs[0].unpack.out == DType::float16);
  CHECK(image.jobs[0].unpack.row_bytes() == 3072);
  CHECK(spec.valid_mask == "valid");
  CHECK(spec.outputs[1].dtype == DType::int32);
}

TEST_CASE("index") {
  const auto index = [](const std::string& text) {
    const std::string pipeline = "source { files: \"f\" " + text + " } " + batch + features;
    return validate(parse_pipeline(pipeline, "/data"), one_each).sources[0].index;
  };
  CHECK_FALSE(index("").given);
  CHECK(index("").mode == IndexMode::build);
  CHECK(index("").stride == 16384);
  CHECK(index("").dir.empty());
  CHECK(index("index {}").given);
  CHECK(index("index { mode: REQUIRE }").mode == IndexMode::require);
  CHECK(index("index { stride: \"4KiB\" }").stride == 4096);
  CHECK(index("index { dir: \"i/../j\" }").dir == "/data/j");
  CHECK(index("index { dir: \"/i\" }").dir == "/i");
}

TEST_CASE("the table pipeline") {
  const PipelineSpec spec = resolve(test::table_pipeline);
  CHECK(spec.sources[0].name == "2024");
  CHECK(spec.sources[0].compression == Compression::gzip);
  CHECK(spec.sources[0].record_limit == 1 << 20);
  CHECK(spec.sources[1].files.size() == 2);
  CHECK(spec.features[0].default_ints == std::vector<int64_t>{-1});
  CHECK(std::isnan(spec.features[1].default_floats.at(0)));
  CHECK(spec.features[2].default_ints == std::vector<int64_t>{0, 0, 0});
  CHECK(spec.features[3].key == "text/words");
  CHECK(spec.features[3].max_values == 100);
  CHECK(spec.features[4].kind == FeatureKind::ragged);
  CHECK(spec.features[5].default_floats == std::vector<float>{-1});
  CHECK(spec.batch_size_per_replica == 32);
  CHECK(spec.global_batch_size == 0);
  CHECK(spec.repeat == -1);
  CHECK(spec.on_error == OnError::skip_record);
  CHECK(spec.max_failures == 10);
  CHECK(spec.max_failure_rate == 0.01);
  CHECK(spec.memory_limit == 256 << 20);
  CHECK(spec.threads == 3);
  CHECK(spec.host_prefetch == 4);
  CHECK(spec.shuffle.seed == 42);

  const std::vector<DenseJob>& stack = spec.outputs[0].jobs;
  CHECK(spec.outputs[0].shape == Shape({2}));
  REQUIRE(stack.size() == 2);
  for (int i = 0; i < 2; i++) {
    CHECK(stack[i].column.kind == ColumnRef::Kind::feature);
    CHECK(stack[i].column.number == i);
    CHECK(stack[i].offset == i * size_of(spec.outputs[0].dtype));
  }
  CHECK(stack[0].unpack.stored == DType::int64);
  CHECK(stack[1].unpack.stored == DType::float32);
  CHECK(stack[1].unpack.normalize->mean == std::vector<float>{10});
  CHECK(stack[1].unpack.normalize->std == std::vector<float>{5});
  CHECK(spec.outputs[1].shape == Shape({3}));
  CHECK(spec.outputs[1].dtype == DType::int64);
  CHECK(spec.outputs[2].variable);
  CHECK(spec.outputs[2].dtype == DType::bytes);
  CHECK_FALSE(spec.outputs[2].unpack_value);
  CHECK(spec.outputs[3].variable);
  CHECK(spec.outputs[3].unpack_value->out == DType::int32);
  CHECK(spec.outputs[4].padded);
  CHECK(spec.outputs[4].shape == Shape({2}));
  CHECK(spec.outputs[5].jobs.at(0).column.kind == ColumnRef::Kind::reserved);
  CHECK(spec.outputs[5].jobs[0].column.what == Reserved::offset);
  CHECK(spec.outputs[5].dtype == DType::int64);
  CHECK(spec.outputs[6].dtype == DType::boolean);
  CHECK(spec.expressions[0].program.inputs().size() == 2);
}

TEST_CASE("no outputs: every feature as it is") {
  const PipelineSpec spec = resolve(source + batch + features);
  REQUIRE(spec.outputs.size() == spec.features.size());
  CHECK(spec.outputs[0].name == "d");
  CHECK(spec.outputs[0].dtype == DType::uint8);  // bytes of one length become a tensor
  CHECK(spec.outputs[0].shape == Shape({12}));
  CHECK(spec.outputs[1].dtype == DType::bytes);
  CHECK_FALSE(spec.outputs[1].dense());
  CHECK(spec.outputs[5].shape == Shape({4, 5, 3}));
  CHECK(spec.warnings.empty());
}

TEST_CASE("bytes of a known length, several in a record") {
  const PipelineSpec spec = resolve(source + batch + "feature { name: \"b\" dtype: BYTES shape: [2, 3] length: 4 }");
  CHECK(spec.outputs[0].shape == Shape({2, 3, 4}));
  CHECK(spec.outputs[0].jobs.at(0).unpack.shape == Shape({4}));
  const OutputSpec kept = output_of("output { name: \"o\" feature: \"d\" dtype: BYTES }");
  CHECK(kept.dtype == DType::bytes);
  CHECK_FALSE(kept.dense());
}

TEST_CASE("records that are no message are one feature") {
  const std::string raw = "source { files: \"f\" record_type: RAW } " + batch;
  const PipelineSpec spec = resolve(raw);
  REQUIRE(spec.features.size() == 1);
  CHECK(spec.features[0].name == "record");
  CHECK(spec.features[0].length == -1);
  CHECK(spec.outputs[0].dtype == DType::bytes);
  CHECK(resolve(raw + "feature { name: \"record\" dtype: BYTES length: 9 }").outputs[0].shape == Shape({9}));
  CHECK(resolve(raw + "output { name: \"o\" feature: \"record\" decode_raw { stored: INT16 shape: [5] } }")
            .features[0]
            .length == 10);
  CHECK(error_of(raw + "feature { name: \"d\" dtype: BYTES }") ==
        "feature 'd': a source of record_type RAW has only the feature 'record', the bytes of the record; remove the "
        "other features");
  CHECK(error_of(raw + "feature { name: \"record\" dtype: BYTES kind: VARIABLE }") ==
        "feature 'record': with record_type RAW this feature must have the dtype BYTES, and may set only 'length'; "
        "remove the other settings");
  // A filter or window.key has another result for records that are read as messages.
  const std::string by_key =
      batch + "feature { name: \"record\" dtype: BYTES length: 9 } window { size: 2 key: \"record\" }";
  CHECK(resolve("source { files: \"f\" record_type: RAW } " + by_key).filter_text !=
        resolve("source { files: \"f\" } " + by_key).filter_text);
}

TEST_CASE("a pattern with a NUL character stacks no feature") {
  CHECK(error_of(source + batch + features + "output { name: \"o\" stack { features: \"n\\000*\" } }")
            .starts_with("output 'o': stack.features: no feature matches 'n"));
}

TEST_CASE("features of SequenceExamples lie in the context or in feature lists") {
  const std::string sequences = "source { files: \"f\" record_type: SEQUENCE_EXAMPLE } " + batch;
  const PipelineSpec spec = resolve(
      sequences +
      "feature { name: \"x\" dtype: INT64 } feature { name: \"steps\" key: \"x\" dtype: FLOAT32 where: FEATURE_LIST "
      "kind: FIXED_SEQUENCE shape: 3 required: true } feature { name: \"any\" dtype: BYTES where: FEATURE_LIST kind: "
      "RAGGED } feature { name: \"frames\" dtype: BYTES where: FEATURE_LIST shape: [8, 2] length: 5 }");
  CHECK(spec.sources[0].record_type == RecordType::sequence_example);
  CHECK(spec.features[0].where == Where::context);
  CHECK(spec.features[0].place() == "context/x");
  CHECK(spec.features[1].place() == "feature_lists/x");
  CHECK_FALSE(spec.features[1].may_lack());
  CHECK_FALSE(spec.features[1].nested());
  CHECK(spec.outputs[1].padded);
  CHECK(spec.features[2].nested());
  CHECK(spec.features[2].may_lack());
  CHECK(spec.outputs[2].variable);
  CHECK(spec.outputs[3].dense());
  CHECK(spec.outputs[3].shape == Shape({8, 2, 5}));
  CHECK(error_of(sequences + "feature { name: \"x\" dtype: INT64 where: FEATURE_LIST }") ==
        "feature 'x': shape: it is missing; give the number of steps, and then the shape of one step, or write kind: "
        "FIXED_SEQUENCE if the number of steps differs between records");
  CHECK(error_of(sequences + "feature { name: \"x\" dtype: INT64 where: FEATURE_LIST shape: 0 }") ==
        "feature 'x': shape: [0] has an axis of 0; an axis must be at least 1");
  CHECK(error_of(sequences + "feature { name: \"x\" dtype: INT64 } feature { name: \"y\" key: \"x\" dtype: INT64 }") ==
        "feature 'y': key: another feature already reads 'x'; remove one of the two features; several outputs can be "
        "made from one feature");
}

TEST_CASE("outputs are plain values: equal if pipelines say the same, and different in whatever they say") {
  const auto outputs = [](const std::string& what) {
    return resolve(source + batch + "feature { name: \"i\" dtype: BYTES } feature { name: \"n\" dtype: INT64 } " + what)
        .outputs;
  };
  const std::vector<std::string> texts = {
      "output { name: 'o' feature: 'n' one_hot { classes: 3 } }",
      "output { name: 'o' feature: 'n' one_hot { classes: 4 } }",
      "output { name: 'o' feature: 'n' one_hot { classes: 3 } dtype: INT64 }",
      "output { name: 'o' feature: 'n' one_hot { classes: 3 on_value: 2 } }",
      "output { name: 'o' feature: 'n' one_hot { classes: 3 off_value: 2 } }",
      "output { name: 'o' feature: 'n' one_hot { classes: 3 ignore_outside: true } }",
      "output { name: 'o' feature: 'i' vocabulary { keys_file: 'k' } }",
      "output { name: 'o' feature: 'i' vocabulary { keys_file: 'k' unknown: 0 } }",
      "output { name: 'o' feature: 'i' vocabulary { keys_file: 'k' unknown: -1 } }",
      "output { name: 'o' feature: 'i' vocabulary { keys_file: 'k' unknown_buckets: 1 } }",
      "output { name: 'o' feature: 'i' vocabulary { keys_file: 'k' unknown_buckets: 2 } }",
      "output { name: 'o' feature: 'i' vocabulary { keys_file: 'k' } dtype: INT32 }",
      "output { name: 'o' feature: 'i' hash { buckets: 5 } }",
      "output { name: 'o' feature: 'i' hash { buckets: 6 } }",
      "output { name: 'o' feature: 'i' hash { buckets: 5 } dtype: INT32 }",
      "output { name: 'o' feature: 'n' hash { buckets: 5 } }",
      "output { name: 'o' feature: 'i' decode_image {} crop { size: [5, 7] } }",
      "output { name: 'o' feature: 'i' decode_image {} crop { size: [5, 8] } }",
      "output { name: 'o' feature: 'i' decode_image { dct: FAST } crop { size: [5, 7] } }",
      "output { name: 'o' feature: 'i' decode_image {} crop { size: [5, 7] mode: RANDOM } }",
      "output { name: 'o' feature: 'i' decode_image {} crop { size: [5, 7] mode: RANDOM group: 'g' } }",
      "output { name: 'o' feature: 'i' decode_image {} crop { size: [5, 7] } normalize { mean: 1 } }",
      "output { name: 'o' feature: 'i' decode_image {} crop { size: [5, 7] } flip { probability: 1 } }"};
  for (size_t a = 0; a < texts.size(); a++)
    for (size_t b = 0; b < texts.size(); b++) {
      INFO(texts[a] << " and " << texts[b]);
      CHECK((outputs(texts[a]) == outputs(texts[b])) == (a == b));
    }
}

TEST_CASE("pictures in steps: one shape if records have as many, otherwise padded with zeros") {
  const std::string sequences = "source { files: \"f\" record_type: SEQUENCE_EXAMPLE } " + batch;
  const auto of = [&](const std::string& feature) {
    return sequences + "feature { name: \"f\" dtype: BYTES where: FEATURE_LIST " + feature +
           " } output { name: \"o\" feature: \"f\" decode_image {} crop { size: [5, 7] } layout: CHW dtype: FLOAT32 }";
  };
  const OutputSpec padded = resolve(of("kind: FIXED_SEQUENCE")).outputs.at(0);
  CHECK((padded.padded && !padded.dense() && padded.steps));
  CHECK(padded.shape == Shape({3, 5, 7}));
  CHECK(padded.dtype == DType::float32);
  const OutputSpec fixed = resolve(of("shape: 4")).outputs.at(0);
  CHECK((fixed.dense() && fixed.jobs[0].rows && fixed.jobs[0].values == 4));
  CHECK(fixed.shape == Shape({4, 3, 5, 7}));
  CHECK(make_row_writer(*padded.steps, {})->heap_bytes() > 0);
  for (const std::string& wrong :
       {std::string("kind: RAGGED"), std::string("shape: [4, 2]"), std::string("kind: FIXED_SEQUENCE shape: 2")})
    CHECK_THAT(error_of(of(wrong)),
               Catch::StartsWith("output 'o': decode_image: it needs a feature of BYTES; for one picture in each "
                                 "record FIXED without a shape, for several pictures FIXED with a shape of one axis, "
                                 "or FIXED_SEQUENCE without a shape; feature 'f' is "));
  CHECK(error_of(of("kind: FIXED_SEQUENCE default_value { bytes_value: \"x\" }")) ==
        "output 'o': decode_image: rows are padded with zeros; remove default_value from feature 'f'");
}

TEST_CASE("the dtype of an output is that of what it is made from") {
  const auto [text, dtype] = GENERATE(table<const char*, DType>({
      {"feature: \"n\"", DType::int64},
      {"feature: \"x\"", DType::float32},
      {"feature: \"x\" normalize { scale: 2 }", DType::float32},
      {"feature: \"n\" normalize { scale: 2 }", DType::float32},
      {"feature: \"@file\"", DType::int64},
      {"expression { formula: \"n\" }", DType::float64},
      {"stack { features: [\"n\", \"m\"] }", DType::int64},
      {"feature: \"d\" unpack_bits {}", DType::uint8},
      {"feature: \"d\" unpack_bits { width: 8 sign_extend: true }", DType::int8},
      {"feature: \"d\" unpack_bits { width: 9 }", DType::uint16},
      {"feature: \"d\" unpack_bits { width: 16 sign_extend: true }", DType::int16},
      {"feature: \"d\" unpack_bits { width: 17 }", DType::uint32},
      {"feature: \"d\" unpack_bits { width: 32 sign_extend: true }", DType::int32},
      {"feature: \"d\" unpack_bits { scale: 2 }", DType::float32},
      {"feature: \"d\" unpack_bits { bias: 2 }", DType::float32},
      {"feature: \"d\" unpack_bits { normalize_here: 1 }", DType::unset},
      {"feature: \"d\" decode_raw { shape: 12 }", DType::uint8},
      {"feature: \"d\" decode_raw { stored: BFLOAT16 shape: 6 }", DType::bfloat16},
      {"feature: \"d\" decode_raw { stored: INT32 shape: 3 big_endian: true }", DType::int32},
  }));
  CAPTURE(text);
  const std::string output = fmt::format("output {{ name: \"o\" {} }}", text);
  if (dtype == DType::unset)
    CHECK_THROWS_AS(output_of(output), Error);
  else
    CHECK(output_of(output).dtype == dtype);
}

TEST_CASE("layouts become strides, and channels follow") {
  const auto unpack = [](const char* text) {
    return output_of(fmt::format("output {{ name: \"o\" {} }}", text)).jobs.at(0).unpack;
  };
  SECTION("HWC to CHW") {
    const auto spec =
        unpack("feature: \"d\" decode_raw { shape: [2, 3, 2] layout: HWC } layout: CHW normalize { mean: [1, 2] }");
    CHECK(spec.shape == Shape({2, 2, 3}));
    CHECK(spec.stride_bits == std::vector<int64_t>{8, 48, 16});
    CHECK(spec.channel_axis == 0);
  }
  SECTION("as stored") {
    const auto spec = unpack("feature: \"d\" decode_raw { shape: [2, 3, 2] layout: CHW } normalize { mean: [1, 2] }");
    CHECK(spec.shape == Shape({2, 3, 2}));
    CHECK(spec.channel_axis == 0);
  }
  SECTION("a single mean applies to all channels") {
    CHECK(unpack("feature: \"d\" decode_raw { shape: [2, 3, 2] layout: CHW } normalize { mean: 1 }").channel_axis ==
          -1);
  }
  SECTION("bits have their channels last, which of three axes is HWC") {
    const auto spec = unpack(
        "feature: \"d\" unpack_bits { shape: [4, 5, 3] channel_order: [2, 1, 0] scale: [1, 2, 3] width: 1 } layout: "
        "CHW");
    CHECK(spec.shape == Shape({3, 4, 5}));
    CHECK(spec.stride_bits == std::vector<int64_t>{0, 15, 3});
    CHECK(spec.channel_bits == std::vector<int64_t>{2, 1, 0});
    CHECK(spec.channel_axis == 0);
  }
  SECTION("without a layout several means go along the last axis") {
    CHECK(unpack("feature: \"image\" normalize { mean: [1, 2, 3] }").channel_axis == 2);
    CHECK(unpack("feature: \"d\" decode_raw { shape: [3, 4] } normalize { std: [1, 2, 3, 4] }").channel_axis == 1);
    CHECK(unpack("feature: \"d\" unpack_bits { shape: [3, 4] bias: [1, 2, 3, 4] }").channel_axis == 1);
  }
}

TEST_CASE("formulas in an order in which each needs only those before it") {
  const PipelineSpec spec = with_output(
      "output { name: \"a\" dtype: INT8 expression { formula: \"out.b + out.c\" } }"
      "output { name: \"b\" expression { formula: \"out.c * 2\" } }"
      "output { name: \"c\" dtype: FLOAT16 expression { formula: \"x + n\" } internal: true }");
  REQUIRE(spec.expressions.size() == 3);
  CHECK(spec.expressions[0].output == "c");
  CHECK(spec.expressions[1].output == "b");
  CHECK(spec.expressions[2].output == "a");
  CHECK(spec.outputs[0].jobs.at(0).column.number == 2);
  CHECK(spec.outputs[2].jobs.at(0).column.number == 0);
  CHECK(spec.expressions[2].inputs[1].expression == 0);
  CHECK(spec.expressions[2].inputs[1].dtype == DType::float16);
}

TEST_CASE("an only CPU set") {
  CHECK(resolve(source + batch + features + "parallelism { cpu_set: \"\" }").cpu_set.empty());
  CHECK(error_of(source + batch + features + "parallelism { cpu_set: \"1000-1001\" }")
            .starts_with("parallelism.cpu_set: this process may not use CPU 1000; choose from the CPUs that it may "
                         "use: "));
}

TEST_CASE("warnings") {
  const auto [text, warning] = GENERATE(table<const char*, const char*>({
      {"output { name: \"o\" stack { features: [\"n\", \"m\", \"x\"] } dtype: INT8 } output { name: \"a\" feature: "
       "\"list\" } "
       "output { name: \"b\" feature: \"texts\" } output { name: \"c\" feature: \"steps\" } output { name: \"e\" "
       "feature: \"d\" }",
       "feature 'open', 'image', 'square': read and checked in every record, but no output is made from them; remove "
       "them if the check is not needed"},
      {"output { name: \"o\" feature: \"d\" unpack_bits { shape: 3 channel_order: [0, 0, 2] } }",
       "output 'o': unpack_bits.channel_order: channel 0 is named twice, so at least one channel is not delivered"},
      {"output { name: \"o\" feature: \"n\" } output { name: \"i\" feature: \"n\" internal: true }",
       "output 'i': it is internal, but no formula reads it; remove the output, or 'internal'"},
      {"errors { max_failures: 3 }",
       "errors: max_failures and max_failure_rate have no effect with on_error RAISE, which stops at the first bad "
       "record; remove them, or write on_error: SKIP_RECORD or SKIP_FILE"},
  }));
  CHECK(with_output(text).warnings.at(0) == warning);
}

TEST_CASE("a file in two sources is warned of, unless each takes a part of it") {
  const auto warnings = [](const std::string& sources) { return resolve(sources + batch + features).warnings; };
  CHECK(warnings("source { files: 'f' } source { files: 'g' }").empty());
  CHECK(warnings("source { files: 'f' } source { name: 'b' files: ['g', 'f'] }") ==
        std::vector<std::string>{"source 'b': files: 'f' is in source[0], too, so both sources feed the same records; "
                                 "give each source its own files or its own 'range'"});
  CHECK(
      warnings("source { files: ['f', 'g'] } source { files: 'h' range: '0:10' } source { files: ['f', 'g', 'h'] }") ==
      std::vector<std::string>{"source[2]: files: 'f' and 1 other file are in source[0], too, so both sources feed the "
                               "same records; give each source its own files or its own 'range'",
                               "source[2]: files: 'h' is in source[1], too, so both sources feed the same records; "
                               "give each source its own files or its own 'range'"});
  std::string many;
  for (int i = 0; i < 600; i++) many += "source { files: 'f' } ";
  REQUIRE(warnings(many).size() == 3);
  CHECK(warnings(many).back().ends_with("its own 'range' (and 596 more pairs of sources share files)"));
  CHECK(warnings("source { files: 'f' range: '0%:50%' } source { files: 'f' range: '50%:100%' }").empty());
  CHECK(warnings("source { files: 'f' num_shards: 2 } source { files: 'f' num_shards: 2 shard_id: 1 }").empty());
}

TEST_CASE("fields that make no sense are refused by name") {
  struct Case {
    std::string text;
    const char* message;
  };
  const auto whole = [](const char* text, const char* message) { return Case{text, message}; };
  const auto besides = [](const char* text, const char* message) {
    return Case{source + batch + features + text, message};
  };
  const auto feature = [](const char* text, const char* message) {
    return Case{source + batch + "feature { " + text + " }", message};
  };
  const auto output = [](const char* text, const char* message) {
    return Case{source + batch + features + "output { name: \"o\" " + text + " }", message};
  };
  const Case cases[] = {
      whole("", "batch: the number of rows is missing; give batch.global_batch_size or batch.batch_size_per_replica"),
      whole("batch { global_batch_size: 8 }",
            "source: it is missing; name the files: source { files: \"data/*.tfrecord\" }"),
      whole("batch { global_batch_size: 0 }", "batch.global_batch_size: 0 rows; it must be 1 to 2147483647"),
      whole("batch { batch_size_per_replica: -1 }",
            "batch.batch_size_per_replica: -1 rows; it must be 1 to 2147483647"),
      whole("batch { global_batch_size: 8 } source {}", "source: files: no path is given; name paths or patterns"),
      whole("batch { global_batch_size: 8 } source { files: \"a\" }",
            "feature: it is missing; name what to read from each record: feature { name: \"...\" dtype: ... }"),
      whole("batch { global_batch_size: 8 } source { name: \"a\" files: \"a\" } source { name: \"a\" files: \"a\" }",
            "source 'a': name: another source has this name; give each source a name of its own"),
      whole("batch { global_batch_size: 8 } source { files: \"a\" } source { files: \"b\" record_type: RAW }",
            "source[1]: record_type: it is RAW, but source[0] has EXAMPLE; give all sources the same record_type"),
      whole("batch { global_batch_size: 8 } source { files: \"a\" } source { files: \"b\" feature { name: \"x\" dtype: "
            "INT64 } } "
            "feature { name: \"y\" dtype: INT64 }",
            "source[1]: feature: the features differ from those of source[0], which is not supported yet; give all "
            "sources the same features, best outside of 'source'"),
      whole("batch { global_batch_size: 8 } source { files: \"a\" record_limit: \"much\" }",
            "source: record_limit: 'much' is not a whole number of bytes from 0 to 2^62 - 1; write a number and a unit "
            "up to TiB, as in 4096, 256KiB, 1.5GiB or 100MB"),

      whole("batch { global_batch_size: 8 } source { files: \"a\" index { stride: \"15\" } }",
            "source: index.stride: 15 bytes; it must be 16 bytes to 1 TiB"),

      // Stages, sources, and what this version does not support.
      besides("filter: \"nn > 0\"", "filter: unknown name 'nn'. The known names are: n m x\n  nn > 0\n  ^"),
      besides("interleave {}",
              "interleave.cycle_length: 0; it must be 1 or more, because it is the number of files that are open at "
              "once"),
      besides("window { size: 3 key: \"nn\" }",
              "window.key: there is no feature 'nn'; the features are: d open n m x image square list texts steps"),
      besides("mixture { stop: CYCLE_FOREVER }",
              "mixture.stop: with CYCLE_FOREVER an epoch has no end of its own; write epoch.steps, or choose a "
              "different mixture.stop"),
      besides("mixture {} epoch { steps: 9 }",
              "epoch.steps: mixture.stop FIRST_DATASET_EXHAUSTED already decides where an epoch ends; write "
              "mixture.stop: CYCLE_FOREVER, or remove epoch.steps"),
      besides("mixture {} epoch { repeat: -1 }",
              "epoch.repeat: -1 repeats without end, but mixture.stop FIRST_DATASET_EXHAUSTED ends each epoch; write a "
              "positive epoch.repeat, or mixture.stop: CYCLE_FOREVER with epoch.steps"),
      besides("mixture {} source { files: \"g\" weight: 0 }",
              "source[0].weight: it is missing, but other sources have a weight; give every source a weight, or remove "
              "all weights"),
      besides("mixture {} source { files: \"g\" weight: 2 }",
              "source[0].weight: it is missing, but other sources have a weight; give every source a weight, or remove "
              "all weights"),
      besides("shuffle { mode: GLOBAL lanes: 2 }", "shuffle.lanes: it has no effect with mode GLOBAL; leave it out"),
      besides("shuffle { mode: BUFFER }",
              "shuffle.mode: BUFFER needs the size of the buffer; give shuffle.buffer_size or shuffle.buffer_bytes"),
      besides("shuffle { shuffle_files: true }",
              "shuffle.shuffle_files: it has no effect with mode BLOCK; leave it out"),
      besides("shuffle { buffer_size: -3 }", "shuffle.buffer_size: -3 is negative; write 1 or more, or leave it out"),
      besides("shuffle { lanes: -3 }", "shuffle.lanes: -3 is negative; write 1 or more, or leave it out"),
      besides("shuffle { buffer_size: 3 buffer_bytes: \"3MiB\" }",
              "shuffle.buffer_size: shuffle.buffer_bytes is given, too; remove one of the two"),
      besides("shuffle { mode: NONE }", "no error"),
      besides("shuffle { mode: NONE buffer_size: 9 buffer_bytes: '9' block_size: '1KiB' lanes: 3 shuffle_files: true }",
              "no error"),
      besides("epoch { steps: -1 }", "epoch.steps: -1; it must be 1 to 1099511627776, or left out"),
      besides("distribute { timeout: '5s' }",
              "distribute.timeout: this version does not support it yet; remove it (set the timeout of the "
              "communicator instead: TcpOptions or MpiOptions)"),
      besides("cache {}", "cache: limit: it is missing; say how many bytes the cache may take, such as \"20GiB\""),
      besides("memory { device_limit: \"0\" }",
              "memory.device_limit: 0 bytes is not a valid size; write a size above 0"),
      besides("parallelism { device_prefetch: 5000 }", "parallelism.device_prefetch: 5000; it must be 1 to 1024"),
      besides(
          "source { files: \"g\" index { mode: LAZY } }",
          "source: index.mode: LAZY does not support sources with a different index.mode, because it counts the "
          "records while it feeds them; remove sources with a different index.mode, or write source.index.mode: BUILD"),
      besides(
          "source { files: \"g\" weight: 2 }",
          "source.weight: it has no effect, because sources are read one after another; write mixture {} to draw from "
          "them by weight, or remove the weights"),
      besides("source { files: \"g\" range: \"9\" }",
              "source[1]: range: '9' has no colon; write where the range begins and ends, as in \"0%:90%\" or "
              "\"0:50000\""),
      besides("source { files: \"g\" num_shards: -2 }",
              "source[1]: num_shards: -2 is negative; write 1 or more, or leave it out"),
      besides("source { name: \"s\" files: \"g\" num_shards: 2 shard_id: 2 }",
              "source 's': shard_id: 2; with num_shards 2 it must be 0 to 1; correct shard_id or num_shards"),
      besides("source { files: \"g\" record_type: SEQUENCE_EXAMPLE }",
              "source[1]: record_type: it is SEQUENCE_EXAMPLE, but source[0] has EXAMPLE; give all sources the same "
              "record_type"),
      feature(
          "name: \"f\" dtype: INT64 where: FEATURE_LIST",
          "feature 'f': where: only SequenceExamples have feature lists; write source.record_type: SEQUENCE_EXAMPLE, "
          "or remove 'where'"),
      feature("name: \"f\" dtype: INT64 required: true",
              "feature 'f': required: a FIXED feature is required in every record unless it has a default_value; "
              "remove 'required'"),
      output("feature: \"d\" decode_image {}",
             "output 'o': decode_image: the size of the tensor would depend on the picture; give resize.size or "
             "crop.size; with resize.shorter, give crop.size and crop.after_resize"),
      output("feature: \"d\" decode_image {} resize { shorter: 9 }",
             "output 'o': decode_image: the size of the tensor would depend on the picture; give resize.size or "
             "crop.size; with resize.shorter, give crop.size and crop.after_resize"),
      output("feature: \"d\" decode_image { channels: 2 }",
             "output 'o': decode_image.channels: 2; it must be 1 (grey) or 3 (red, green, blue)"),
      output("feature: \"d\" decode_image { max_pixels: -1 }",
             "output 'o': decode_image.max_pixels: -1; it must be 1 to 536870912"),
      output("feature: \"d\" decode_image { bit_depth: 12 }",
             "output 'o': decode_image.bit_depth: 12; it must be 8 or 16"),
      output("feature: \"d\" decode_image { max_pixels: 99 } crop { size: [10, 10] }",
             "output 'o': crop.size: 10 x 10 pixels are more than decode_image.max_pixels, which is 99; raise "
             "decode_image.max_pixels, or lower crop.size"),
      output("feature: \"d\" decode_image {} crop {}", "output 'o': crop.size: it is missing; give height and width"),
      output("feature: \"d\" decode_image {} crop { size: 3 }",
             "output 'o': crop.size: 1 numbers are given; give height and width"),
      output("feature: \"d\" decode_image {} crop { size: [3, 0] }",
             "output 'o': crop.size: 0; height and width must be 1 to 65535 pixels"),
      output("feature: \"d\" decode_image {} crop { size: [3, 3] after_resize: true }",
             "output 'o': crop.after_resize: there is no 'resize'; add 'resize', or remove crop.after_resize"),
      output("feature: \"d\" decode_image {} crop { size: [3, 3] padding: -1 }",
             "output 'o': crop.padding: -1; it must be 0 to 65535 pixels"),
      output("feature: \"d\" decode_image {} crop { size: [3, 3] fill: 3 }",
             "output 'o': crop.fill: it is the value of padded pixels, but there is no padding; give crop.padding, or "
             "remove crop.fill"),
      output("feature: \"d\" decode_image {} crop { size: [3, 3] padding: 1 fill: 256 }",
             "output 'o': crop.fill: 256; it must be 0 to 255"),
      output("feature: \"d\" decode_image {} crop { size: [3, 3] group: 'g' }",
             "output 'o': crop.group: a group shares random choices, but this crop is not random; write crop.mode: "
             "RANDOM, or remove crop.group"),
      output("feature: \"d\" decode_image {} crop { size: [3, 3] padding: 1 after_resize: true } resize { shorter: 9 }",
             "output 'o': crop.padding: it is only for a crop before 'resize'; remove crop.padding or "
             "crop.after_resize"),
      output("feature: \"d\" decode_image {} crop { random_area {} } resize { size: [3, 3] }",
             "output 'o': crop.random_area: the area is random, but crop.mode is CENTER; write crop.mode: RANDOM"),
      output("feature: \"d\" decode_image {} crop { mode: RANDOM random_area {} }",
             "output 'o': crop.random_area: its windows differ in size; give resize.size"),
      output("feature: \"d\" decode_image {} crop { mode: RANDOM random_area {} size: [3, 3] } resize { size: [3, 3] }",
             "output 'o': crop.size: it cannot be combined with crop.random_area; remove one of the two"),
      output("feature: \"d\" decode_image {} crop { mode: RANDOM random_area { scale: [0.5, 2] } } resize { size: [3, "
             "3] }",
             "output 'o': crop.random_area.scale: give two numbers, the smallest and the largest, above 0 and at most "
             "1"),
      output("feature: \"d\" decode_image {} resize { size: [3, 3] } flip { probability: 1.5 }",
             "output 'o': flip.probability: 1.5; it must be 0 to 1"),
      output("feature: \"d\" decode_image {} resize {}",
             "output 'o': resize: its size is missing; give resize.size, or resize.shorter"),
      output("feature: \"d\" decode_image {} resize { size: [3, 3] shorter: 3 }",
             "output 'o': resize.shorter: resize.size is given, too; remove one of them"),
      output("feature: \"d\" decode_image {} crop { size: [3, 3] } resize { shorter: 3 }",
             "output 'o': resize.shorter: the crop comes before the resize and already has a fixed size; give "
             "crop.after_resize, or resize.size in place of resize.shorter"),
      output("feature: \"d\" decode_image {} resize { size: [3, 3] antialias: true filter: AREA }",
             "output 'o': resize.antialias: it is only for resize.filter: BILINEAR; remove resize.antialias"),
      output("feature: \"d\" decode_raw { shape: [2, 2, 3] } flip {}",
             "output 'o': decode_raw.layout: 'crop', 'resize' and 'flip' need the order of the axes; write HWC or CHW"),
      output("feature: \"d\" decode_raw { shape: [3, 2, 2] layout: HWC } flip {}",
             "output 'o': decode_raw.shape: the picture has 2 channels, but 'crop', 'resize' and 'flip' work only on "
             "pictures of 1 or 3 channels; remove them"),
      output("feature: \"d\" decode_raw { stored: FLOAT32 shape: [3, 1, 1] layout: HWC } flip {}",
             "output 'o': decode_raw.stored: it is FLOAT32, but 'crop', 'resize' and 'flip' work only on pictures of "
             "UINT8; remove them, or store the pictures as UINT8"),
      output(
          "feature: \"d\" decode_raw { shape: [2, 2, 3] layout: HWC } crop { size: [3, 2] }",
          "output 'o': crop.size: the picture is 2 pixels high and 2 pixels wide before the crop, but crop.size is 3 x "
          "2; resize the picture first (crop.after_resize), set crop.padding, or set a smaller crop.size"),
      output("feature: \"open\" decode_raw { shape: [1, 65536, 3] layout: HWC } flip {}",
             "output 'o': decode_raw.shape: 65536; height and width of a picture must be 1 to 65535 pixels"),
      output("one_hot { classes: 3 }", "output 'o': feature: one_hot needs a feature of INT64; name one"),
      output("feature: \"x\" one_hot { classes: 3 }",
             "output 'o': one_hot: it needs a feature of INT64: FIXED, whose values become a vector each, or VARIABLE "
             "or RAGGED without steps, whose values become one vector; feature 'x' is FIXED FLOAT32"),
      output("feature: \"steps\" one_hot { classes: 3 }",
             "output 'o': one_hot: it needs a feature of INT64: FIXED, whose values become a vector each, or VARIABLE "
             "or RAGGED without steps, whose values become one vector; feature 'steps' is FIXED_SEQUENCE FLOAT32"),
      output("feature: \"n\" one_hot {}", "output 'o': one_hot.classes: 0; it must be 1 to 1048576"),
      output("feature: \"n\" one_hot { classes: 3 on_value: 1e5 } dtype: FLOAT16",
             "output 'o': one_hot.on_value: 100000 is infinite in FLOAT16; give a smaller number"),
      output("feature: \"n\" one_hot { classes: 3 on_value: nan }",
             "output 'o': one_hot.on_value: nan is not a finite number"),
      output("feature: \"n\" one_hot { classes: 3 off_value: -inf } dtype: INT8",
             "output 'o': one_hot.off_value: -inf is not a finite number"),
      output(
          "feature: \"n\" one_hot { classes: 3 on_value: 0.9 } dtype: INT32",
          "output 'o': one_hot.on_value: 0.9 is not a number of INT32; write the dtype FLOAT32, or a number that INT32 "
          "holds"),
      output(
          "feature: \"n\" one_hot { classes: 3 off_value: -1 } dtype: UINT8",
          "output 'o': one_hot.off_value: -1 is not a number of UINT8; write the dtype FLOAT32, or a number that UINT8 "
          "holds"),
      output("feature: \"n\" one_hot { classes: 3 on_value: 1e19 } dtype: INT64",
             "output 'o': one_hot.on_value: 1e+19 is not a number of INT64; write the dtype FLOAT32, or a number that "
             "INT64 "
             "holds"),
      output("lookup { table: 't.npy' }", "output 'o': feature: lookup needs a feature of BYTES or INT64; name one"),
      output("feature: \"x\" lookup { table: 't.npy' }",
             "output 'o': lookup: it needs a feature of BYTES or INT64 that is FIXED, so that every record has as many "
             "values; feature 'x' is FIXED FLOAT32"),
      output("feature: \"list\" lookup { table: 't.npy' }",
             "output 'o': lookup: it needs a feature of BYTES or INT64 that is FIXED, so that every record has as many "
             "values; feature 'list' is VARIABLE INT64"),
      output("feature: \"n\" lookup {}", "output 'o': lookup.table: it is missing; name the .npy file"),
      output(
          "feature: \"open\" lookup { table: 't.npy' }",
          "output 'o': lookup.keys_file: feature 'open' is BYTES, so rows are looked up by name; give a file with one "
          "name on each line, in the order of the rows"),
      output("feature: \"n\" lookup { table: 't\\000.npy' }",
             "output 'o': lookup.table: it is not a file name, because it has a NUL character"),
      output("feature: \"n\" lookup { table: 't.npy' resident: true on_device: true }",
             "output 'o': lookup.resident: lookup.on_device already puts the table into the memory of each device; "
             "remove lookup.resident"),
      output("vocabulary { keys_file: 'k' }",
             "output 'o': feature: vocabulary needs a feature of BYTES or INT64; name one"),
      output("feature: \"x\" vocabulary { keys_file: 'k' }",
             "output 'o': vocabulary: it needs a feature of BYTES or INT64 that is FIXED, so that every record has as "
             "many values; feature 'x' is FIXED FLOAT32"),
      output("feature: \"texts\" vocabulary { keys_file: 'k' }",
             "output 'o': vocabulary: it needs a feature of BYTES or INT64 that is FIXED, so that every record has as "
             "many values; feature 'texts' is VARIABLE BYTES"),
      output("feature: \"open\" vocabulary {}",
             "output 'o': vocabulary.keys_file: it is missing; give a file with one name on each line"),
      output("feature: \"open\" vocabulary { keys_file: 'k\\000' }",
             "output 'o': vocabulary.keys_file: it is not a file name, because it has a NUL character"),
      output("feature: \"open\" vocabulary { keys_file: 'k' } normalize {}",
             "output 'o': normalize: numbers of names only stand for something; remove 'normalize'"),
      output("feature: \"open\" vocabulary { keys_file: 'k' } layout: HWC",
             "output 'o': layout: numbers of names have no layout; remove 'layout'"),
      output("feature: \"open\" vocabulary { keys_file: 'k' } dtype: FLOAT32",
             "output 'o': dtype: it is FLOAT32, but numbers of names are INT64 or INT32; write one of the two"),
      output(
          "feature: \"open\" vocabulary { keys_file: 'k' unknown: 2147483648 } dtype: INT32",
          "output 'o': vocabulary.unknown: 2147483648 does not fit into INT32; it must be -2147483648 to 2147483647, "
          "or the dtype INT64"),
      output("feature: \"open\" vocabulary { keys_file: 'k' unknown_buckets: -1 }",
             "output 'o': vocabulary.unknown_buckets: -1; it must be 0 to 2147483648"),
      output("feature: \"open\" vocabulary { keys_file: 'k' unknown_buckets: 2147483649 }",
             "output 'o': vocabulary.unknown_buckets: 2147483649; it must be 0 to 2147483648"),
      output("feature: \"open\" vocabulary { keys_file: 'k' unknown_buckets: 3 unknown: 0 }",
             "output 'o': vocabulary.unknown_buckets: names that the file does not have become vocabulary.unknown; "
             "remove one of the two"),
      output("feature: \"open\" vocabulary { keys_file: 'k' } crop {}",
             "output 'o': crop: it is only for pictures of decode_image and decode_raw; remove it"),
      Case{source + batch + features +
               "output { name: 'v' feature: 'open' vocabulary { keys_file: 'k' } } "
               "output { name: 'o' expression { formula: 'out.v + 1' } }",
           "output 'o': expression.formula: out.v: formulas cannot read values that are looked up in a table or a "
           "vocabulary, or hashed"},
      output("hash { buckets: 5 }", "output 'o': feature: hash needs a feature of BYTES or INT64; name one"),
      output("feature: \"x\" hash { buckets: 5 }",
             "output 'o': hash: it needs a feature of BYTES or INT64 that is FIXED, so that every record has as many "
             "values; feature 'x' is FIXED FLOAT32"),
      output("feature: \"list\" hash { buckets: 5 }",
             "output 'o': hash: it needs a feature of BYTES or INT64 that is FIXED, so that every record has as many "
             "values; feature 'list' is VARIABLE INT64"),
      output("feature: \"n\" hash {}", "output 'o': hash.buckets: 0; it must be 1 to 4611686018427387904"),
      output("feature: \"n\" hash { buckets: -1 }",
             "output 'o': hash.buckets: -1; it must be 1 to 4611686018427387904"),
      output("feature: \"n\" hash { buckets: 4611686018427387905 }",
             "output 'o': hash.buckets: 4611686018427387905; it must be 1 to 4611686018427387904"),
      output("feature: \"n\" hash { buckets: 2147483649 } dtype: INT32",
             "output 'o': hash.buckets: numbers below 2147483649 do not fit into INT32; it must be at most 2147483648, "
             "or the dtype INT64"),
      output("feature: \"n\" hash { buckets: 5 } normalize {}",
             "output 'o': normalize: numbers of buckets only stand for something; remove 'normalize'"),
      output("feature: \"n\" hash { buckets: 5 } layout: HWC",
             "output 'o': layout: numbers of buckets have no layout; remove 'layout'"),
      output("feature: \"n\" hash { buckets: 5 } dtype: UINT32",
             "output 'o': dtype: it is UINT32, but numbers of buckets are INT64 or INT32; write one of the two"),
      output("custom {}",
             "output 'o': custom: this version does not support it yet; remove it (use unpack_bits, decode_raw, "
             "'expression' or 'stack' instead)"),
      output("feature: \"image\" crop {}",
             "output 'o': crop: it is only for pictures of decode_image and decode_raw; remove it"),
      output("feature: \"image\" resize {}",
             "output 'o': resize: it is only for pictures of decode_image and decode_raw; remove it"),
      output("feature: \"image\" flip {}",
             "output 'o': flip: it is only for pictures of decode_image and decode_raw; remove it"),

      // Texts and numbers of any kind.
      Case{source + features + "batch { global_batch_size: 8 valid_mask: \"\\377\" }",
           "batch.valid_mask: the text is not UTF-8"},
      feature("name: \"\\355\\240\\200\" dtype: INT64", "feature: name: the text is not UTF-8"),
      besides("errors { on_error: 7 }", "errors.on_error: 7 is not a value of OnError"),
      besides("epoch { repeat: -2 }",
              "epoch.repeat: -2 is not valid; write the number of passes in an epoch, 1 or more, or -1 to repeat "
              "without end"),
      besides("errors { max_failures: -1 }",
              "errors.max_failures: -1 is negative; write 1 or more, or leave it out to allow any number of failures"),
      besides("errors { max_failure_rate: 1.5 }",
              "errors.max_failure_rate: 1.5; it must be 0 to 1, the share of the records that may be bad"),
      besides("errors { max_failure_rate: nan }",
              "errors.max_failure_rate: nan; it must be 0 to 1, the share of the records that may be bad"),
      besides("memory { limit: \"-1\" }",
              "memory.limit: '-1' is not a whole number of bytes from 0 to 2^62 - 1; write a number and a unit up to "
              "TiB, as in 4096, 256KiB, 1.5GiB or 100MB"),
      besides("memory { limit: \"5EiB\" }",
              "memory.limit: '5EiB' is not a whole number of bytes from 0 to 2^62 - 1; write a number and a unit up to "
              "TiB, as in 4096, 256KiB, 1.5GiB or 100MB"),
      besides("memory { limit: \"0\" }", "memory.limit: 0 bytes is not a valid size; write a size above 0"),
      besides("parallelism { threads: -1 }", "parallelism.threads: -1; it must be 1 to 4096"),
      besides("parallelism { host_prefetch: 5000 }", "parallelism.host_prefetch: 5000; it must be 1 to 1024"),
      besides("parallelism { cpu_set: \"0-\" }",
              "parallelism.cpu_set: '0-' is not a list of CPUs; write numbers and ranges, as in \"0-3,8\""),
      besides("parallelism { cpu_set: \"3-1\" }",
              "parallelism.cpu_set: '3-1' is not a list of CPUs; write numbers and ranges, as in \"0-3,8\""),
      besides("parallelism { cpu_set: \"0,\" }",
              "parallelism.cpu_set: '0,' is not a list of CPUs; write numbers and ranges, as in \"0-3,8\""),
      besides("parallelism { cpu_set: \"0;1\" }",
              "parallelism.cpu_set: '0;1' is not a list of CPUs; write numbers and ranges, as in \"0-3,8\""),

      // Features.
      feature("dtype: INT64", "feature: name: it is missing; give the feature a name"),
      besides("feature {}", "feature[10]: name: it is missing; give the feature a name"),
      besides("feature { name: \"n\" dtype: INT64 }",
              "feature 'n': name: another feature has this name; give each feature a name of its own"),
      besides("feature { name: \"k\" key: \"n\" dtype: INT64 }",
              "feature 'k': key: another feature already reads 'n'; remove one of the two features; several outputs "
              "can be made from one feature"),
      feature("name: \"@n\" dtype: INT64",
              "feature '@n': name: names that begin with @ are reserved (@record @file @offset @source); choose "
              "another name"),
      feature("name: \"f\"",
              "feature 'f': dtype: it is missing; write BYTES, FLOAT32 or INT64, as the records have it"),
      feature("name: \"f\" dtype: UINT8",
              "feature 'f': dtype: records hold only BYTES, FLOAT32 or INT64; write one of these, and give an output "
              "the dtype UINT8"),
      feature("name: \"f\" dtype: INT64 shape: [2, -1]",
              "feature 'f': shape: [2, -1] has an axis of -1; an axis must be at least 0"),
      feature("name: \"f\" dtype: INT64 shape: [1,1,1,1,1,1,1,1,1]",
              "feature 'f': shape: [1, 1, 1, 1, 1, 1, 1, 1, 1] has 9 axes, but at most 8 are supported"),
      feature("name: \"f\" dtype: INT64 kind: FIXED_SEQUENCE shape: [1,1,1,1,1,1,1,1]",
              "feature 'f': shape: [1, 1, 1, 1, 1, 1, 1, 1] has 8 axes, but at most 7 are supported"),
      feature("name: \"f\" dtype: INT64 kind: FIXED_SEQUENCE shape: [0]",
              "feature 'f': shape: [0] has an axis of 0; an axis must be at least 1"),
      feature("name: \"f\" dtype: INT64 shape: [4294967296, 4294967296]",
              "feature 'f': shape: [4294967296, 4294967296] has more than 2^31 elements"),
      feature("name: \"f\" dtype: INT64 kind: VARIABLE shape: [2]",
              "feature 'f': shape: a VARIABLE feature has no shape; remove 'shape'"),
      feature("name: \"f\" dtype: BYTES length: -1",
              "feature 'f': length: -1 is negative; write 1 or more bytes, or leave it out"),
      feature("name: \"f\" dtype: BYTES length: 4294967296",
              "feature 'f': length: 4294967296 bytes is more than the largest record has, 2 GiB; write a smaller "
              "length"),
      feature(
          "name: \"f\" dtype: INT64 length: 8",
          "feature 'f': length: only a feature of BYTES has a length, but this feature is INT64; remove 'length', and "
          "give the number of values by 'shape'"),
      feature(
          "name: \"f\" dtype: INT64 kind: RAGGED max_values: 18014398509481984",
          "feature 'f': max_values: 18014398509481984 values are more than a record of 2 GiB can have; give fewer, or "
          "leave it out"),
      feature(
          "name: \"f\" dtype: INT64 shape: [536870912]",
          "feature 'f': shape: it has 536870912 values in each record, but at most 134217728 are supported; write a "
          "smaller shape"),
      feature("name: \"f\" dtype: INT64 kind: RAGGED max_values: -5",
              "feature 'f': max_values: -5 is negative; write 1 or more, or leave it out"),
      feature("name: \"f\" dtype: INT64 max_values: 5",
              "feature 'f': max_values: a FIXED feature has as many values as its 'shape' says; remove max_values"),
      feature("name: \"f\" dtype: INT64 default_value { float32_value: 1 }",
              "feature 'f': default_value: it is not of the feature's dtype, INT64; write default_value { int64_value: "
              "... }"),
      feature("name: \"f\" dtype: BYTES default_value {}",
              "feature 'f': default_value: it is not of the feature's dtype, BYTES; write default_value { bytes_value: "
              "... }"),
      feature("name: \"f\" dtype: INT64 shape: 3 default_value { int64_value: 1 } default_value { int64_value: 1 }",
              "feature 'f': default_value: 2 values are given; give one value, or 3 values, one for each element of "
              "shape [3]"),
      feature(
          "name: \"f\" dtype: INT64 kind: RAGGED default_value { int64_value: 1 }",
          "feature 'f': default_value: a RAGGED feature cannot have a default, because a record that lacks the feature "
          "has no values; remove default_value"),
      feature("name: \"f\" dtype: INT64 kind: FIXED_SEQUENCE default_value { int64_value: 1 } default_value { "
              "int64_value: 1 }",
              "feature 'f': default_value: 2 values are given, but padding is a single value; give one value"),
      feature("name: \"f\" dtype: BYTES length: 3 default_value { bytes_value: \"ab\" }",
              "feature 'f': default_value: it has 2 bytes, but 'length' is 3; give a value of that length"),
      feature("name: \"f\" dtype: INT64 shape: [5000, 5000] default_value { int64_value: 1 }",
              "feature 'f': default_value: shape [5000, 5000] has more than 4194304 elements, the most that a feature "
              "with a default may have; remove default_value, or use a smaller shape"),

      // Outputs.
      besides("output {}", "output: name: it is missing; give the output a name"),
      besides("output { name: \"a\" feature: \"n\" } output {}",
              "output[1]: name: it is missing; give the output a name"),
      besides("output { name: \"a\" feature: \"n\" } output { name: \"a\" feature: \"m\" }",
              "output 'a': name: another output has this name; give each output a name of its own"),
      besides("output { name: \"a.values\" feature: \"n\" } output { name: \"a\" feature: \"list\" }",
              "output 'a': name: another output has a tensor with the name 'a.values', too; rename one of the two "
              "outputs"),
      besides("output { name: \"a\" feature: \"n\" internal: true }",
              "output: all outputs are internal, so nothing would be delivered; remove 'internal' from one output"),
      Case{source + features + "output { name: \"a\" feature: \"n\" } batch { global_batch_size: 8 valid_mask: \"a\" }",
           "batch.valid_mask: there is an output 'a' already; choose another name for the mask"},
      output("",
             "output 'o': feature: the output does not say what it is made from; write 'feature', 'expression' or "
             "'stack'"),
      output("feature: \"imag\"",
             "output 'o': feature: there is no feature 'imag'; did you mean 'image'? The features are: d open n m x "
             "image square list texts steps"),
      output("feature: \"@line\"",
             "output 'o': feature: there is no '@line'; the reserved names are @record @file @offset @source"),
      output("feature: \"n\" expression { formula: \"n\" }",
             "output 'o': feature: an output is made either from 'feature' or by 'expression'; remove one of the two"),
      output("feature: \"n\" stack { features: \"n\" }",
             "output 'o': feature: an output is made either from 'feature' or by 'stack'; remove one of the two"),
      output("feature: \"n\" dtype: BYTES",
             "output 'o': dtype: BYTES cannot be made from numbers; write a type of numbers, such as FLOAT32"),
      output("feature: \"open\" dtype: UINT8",
             "output 'o': dtype: it is UINT8, but the feature is BYTES; convert it to numbers with decode_raw or "
             "unpack_bits"),
      output("feature: \"d\" dtype: FLOAT32",
             "output 'o': dtype: it is FLOAT32, but the feature is BYTES; convert it to numbers with decode_raw or "
             "unpack_bits"),
      output("feature: \"d\" normalize {}",
             "output 'o': normalize: the feature is BYTES; convert it to numbers with decode_raw or unpack_bits"),
      output("feature: \"d\" layout: HWC",
             "output 'o': layout: the feature is BYTES; convert it to numbers with decode_raw or unpack_bits"),
      output("feature: \"list\" layout: HWC",
             "output 'o': layout: feature 'list' is VARIABLE INT64, which has no layout; remove 'layout'"),
      output("feature: \"n\" layout: HWC", "output 'o': layout: it needs a shape of 3 axes, not []"),
      output("feature: \"image\" layout: CHW",
             "output 'o': layout: the order of the stored axes is not known; with decode_raw, write decode_raw.layout; "
             "otherwise remove 'layout' to deliver the axes as they are stored"),

      // unpack_bits.
      output("unpack_bits {}", "output 'o': feature: unpack_bits needs a feature of BYTES; name one"),
      output("feature: \"n\" unpack_bits {}",
             "output 'o': unpack_bits: it needs one BYTES value in each record; feature 'n' is FIXED INT64"),
      output("feature: \"texts\" unpack_bits {}",
             "output 'o': unpack_bits: it needs one BYTES value in each record; feature 'texts' is VARIABLE BYTES"),
      output("feature: \"open\" unpack_bits { bit_offset: 9 shape: 8 }",
             "output 'o': unpack_bits: the length of feature 'open' must be known; write length: 3 in feature 'open', "
             "or more if other bytes follow"),
      output("feature: \"d\" unpack_bits { width: 33 }", "output 'o': unpack_bits.width: 33; it must be 1 to 32 bits"),
      output("feature: \"d\" unpack_bits { width: -1 }", "output 'o': unpack_bits.width: -1; it must be 1 to 32 bits"),
      output("feature: \"d\" unpack_bits { shape: [0] }",
             "output 'o': unpack_bits.shape: [0] has an axis of 0; an axis must be at least 1"),
      output("feature: \"d\" unpack_bits { bit_offset: 90 shape: [2, 2] width: 2 }",
             "output 'o': unpack_bits: 8 bits from bit 90 on are needed, but feature 'd' has 96 bits (12 bytes); "
             "correct 'shape', 'width' or bit_offset of unpack_bits, or the feature's 'length'"),
      output("feature: \"d\" unpack_bits { bit_offset: -1 }",
             "output 'o': unpack_bits.bit_offset: -1 is negative; write 0 or more"),
      output(
          "feature: \"d\" unpack_bits { bit_offset: 9223372036854775807 shape: 5 }",
          "output 'o': unpack_bits: 5 bits from bit 9223372036854775807 on are needed, but feature 'd' has 96 bits (12 "
          "bytes); correct 'shape', 'width' or bit_offset of unpack_bits, or the feature's 'length'"),
      output("feature: \"d\" unpack_bits { channel_order: 0 }",
             "output 'o': unpack_bits.channel_order: a scalar has no channels; give unpack_bits.shape"),
      output("feature: \"d\" unpack_bits { shape: [2, 3] channel_order: [0, 1] }",
             "output 'o': unpack_bits.channel_order: 2 channel numbers are given, but shape [2, 3] has 3 channels; "
             "give one number for each channel"),
      output("feature: \"d\" unpack_bits { shape: [2, 3] channel_order: [0, 1, 3] }",
             "output 'o': unpack_bits.channel_order: there is no channel 3; the stored channels are 0 to 2"),
      output("feature: \"d\" unpack_bits { shape: [2, 3] scale: [1, 2] }",
             "output 'o': unpack_bits.scale: 2 values are given, but shape [2, 3] has 3 channels; give 1 value or 3 "
             "values"),
      output("feature: \"d\" unpack_bits { bias: [1, 2] }",
             "output 'o': unpack_bits.bias: 2 values are given, but this output has no axis of channels; give one "
             "value"),
      output("feature: \"d\" unpack_bits { bias: inf }", "output 'o': unpack_bits.bias: inf is not a finite float32"),
      output("feature: \"d\" unpack_bits { shape: [2, 3] } layout: CHW",
             "output 'o': layout: it needs a shape of 3 axes, not [2, 3]"),

      // decode_raw.
      output("feature: \"x\" decode_raw {}",
             "output 'o': decode_raw: it needs one BYTES value in each record; feature 'x' is FIXED FLOAT32"),
      output("feature: \"d\" decode_raw { stored: BYTES shape: 12 }",
             "output 'o': decode_raw.stored: BYTES is not a type of numbers; write the type of the stored numbers, "
             "such as UINT8"),
      output("feature: \"d\" decode_raw { stored: INT16 shape: [3, 3] }",
             "output 'o': decode_raw.shape: shape [3, 3] of INT16 takes 18 bytes, but feature 'd' has 12 bytes; "
             "correct decode_raw.shape, decode_raw.stored or the feature's 'length'"),
      output("feature: \"open\" decode_raw { shape: [3] } } output { name: \"p\" feature: \"open\" decode_raw { shape: "
             "[4] }",
             "output 'p': decode_raw.shape: shape [4] of UINT8 takes 4 bytes, but feature 'open' has 3 bytes; correct "
             "decode_raw.shape, decode_raw.stored or the feature's 'length'"),
      output("feature: \"d\" decode_raw { shape: [12] layout: HWC }",
             "output 'o': decode_raw.layout: it needs a shape of 3 axes, not [12]"),
      output("feature: \"d\" decode_raw { shape: [2, 2, 3] } layout: CHW",
             "output 'o': layout: the order of the stored axes is not known; with decode_raw, write decode_raw.layout; "
             "otherwise remove 'layout' to deliver the axes as they are stored"),
      feature("name: \"f\" dtype: BYTES default_value { bytes_value: \"ab\" } } output { name: \"o\" feature: \"f\" "
              "decode_raw { shape: 3 }",
              "feature 'f': default_value: it has 2 bytes, but output 'o' decodes 3 bytes; give a value of that "
              "length"),

      // normalize.
      output("feature: \"x\" normalize { mean: [1, 2] }",
             "output 'o': normalize.mean: 2 values are given, but this output has no axis of channels; give one value"),
      output("feature: \"list\" normalize { mean: [1, 2] }",
             "output 'o': normalize.mean: 2 values are given, but this output has no axis of channels; give one value"),
      output("feature: \"image\" normalize { mean: [1, 2] }",
             "output 'o': normalize.mean: 2 values are given, but the last axis of shape [4, 5, 3] is 3; give 1 value "
             "or 3 values"),
      output("feature: \"square\" normalize { std: [1, 2, 3] }",
             "output 'o': normalize.std: 3 values fit both the first and the last axis of shape [3, 3, 3], and it is "
             "not known which axis has the channels; give one value, or with decode_raw write decode_raw.layout"),
      output("feature: \"image\" normalize { std: 0 }", "output 'o': normalize.std: 0; it must be above 0"),
      output("feature: \"image\" normalize { std: 1e-60 }", "output 'o': normalize.std: 0; it must be above 0"),
      output("feature: \"image\" normalize { scale: 1e60 }",
             "output 'o': normalize.scale: 1e+60 is not a finite float32"),
      output("feature: \"image\" normalize { mean: nan }", "output 'o': normalize.mean: nan is not a finite float32"),
      output("expression { formula: \"n\" } normalize {}",
             "output 'o': normalize: it cannot be combined with 'expression'; write the arithmetic into the formula"),

      // stack.
      output("stack {}", "output 'o': stack.features: it is empty; name at least one feature"),
      output(
          "stack { features: \"k\" }",
          "output 'o': stack.features: there is no feature 'k'. The features are: d open n m x image square list texts "
          "steps"),
      output("stack { features: \"k*\" }", "output 'o': stack.features: no feature matches 'k*'"),
      output("stack { features: [\"n\", \"x\"] }",
             "output 'o': dtype: feature 'n' is INT64 and 'x' is FLOAT32; write the dtype of the output"),
      output("stack { features: [\"n\", \"d\"] }",
             "output 'o': stack.features: feature 'd' is FIXED BYTES; only features with one number in each record can "
             "be stacked"),
      output("stack { features: [\"image\"] }",
             "output 'o': stack.features: feature 'image' is FIXED FLOAT32 [4, 5, 3]; only features with one number in "
             "each record can be stacked"),
      output("stack { features: [\"n\", \"m\"] } normalize { mean: [1, 2, 3] }",
             "output 'o': normalize.mean: 3 values are given, but the last axis of shape [2] is 2; give 1 value or 2 "
             "values"),
      output("stack { features: [\"n\", \"m\"] } layout: HWC",
             "output 'o': layout: it needs a shape of 3 axes, not [2]"),

      // Formulas.
      output("expression {}", "output 'o': expression.formula: the formula is empty\n  \n  ^"),
      output("expression { formula: \"n + mm\" }",
             "output 'o': expression.formula: unknown name 'mm'. The known names are: n m x\n  n + mm\n      ^"),
      output(
          "expression { formula: \"2 * list\" }",
          "output 'o': expression.formula: feature 'list' is VARIABLE INT64; a formula can read only features with one "
          "number in each record"),
      output("expression { formula: \"n + mm\" } } output { name: \"p\" expression { formula: \"n\" } } output { name: "
             "\"row\" feature: \"@record\"",
             "output 'o': expression.formula: unknown name 'mm'. The known names are: n m x out.p\n  n + mm\n      ^"),
      output("expression { formula: \"2 * image/height\" } } feature { name: \"image/height\" dtype: INT64",
             "output 'o': expression.formula: unknown name 'image'; names in formulas have only letters, digits and _; "
             "give the feature such a name, and its present name as the key: name: \"image_height\" key: "
             "\"image/height\"\n  2 * image/height\n      ^"),
      output("expression { formula: \"out.o + 1\" }",
             "output 'o': expression.formula: the formula reads its own result: out.o -> out.o"),
      output("expression { formula: \"out.b\" } } output { name: \"b\" expression { formula: \"out.o\" }",
             "output 'o': expression.formula: the formula reads its own result: out.o -> out.b -> out.o"),
      output("expression { formula: \"out.b\" } } output { name: \"b\" feature: \"image\"",
             "output 'o': expression.formula: out.b: a formula can read only outputs with one number in each record, "
             "and this output is of shape [4, 5, 3]"),
      output("expression { formula: \"out.b\" } } output { name: \"b\" feature: \"open\"",
             "output 'o': expression.formula: out.b: a formula can read only outputs with one number in each record, "
             "and this output is BYTES"),
      output(
          "expression { formula: \"out.b\" } } output { name: \"b\" feature: \"list\"",
          "output 'o': expression.formula: out.b: a formula can read only outputs with one number in each record, and "
          "this output is of varying length"),
      output("expression { formula: \"out.b\" } } output { name: \"b\" feature: \"@file\"",
             "output 'o': expression.formula: out.b: formulas cannot read @record, @file, @offset and @source"),
      output("expression { formula: \"A\" constants { key: \"2A\" value: 1 } }",
             "output 'o': expression.formula: constant '2A': a name has only letters, digits and _, does not begin "
             "with a digit, and is not 'and', 'or' or 'not'"),
      output("expression { formula: \"n\" constants { key: \"n\" value: 1 } }",
             "output 'o': expression.formula: 'n' is a constant and a feature; rename the constant"),
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    CHECK(error_of(c.text) == c.message);
  }
}
