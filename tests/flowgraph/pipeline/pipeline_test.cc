// Pipelines as text: reading, overlaying, changing one field, writing.
#include "feedline/pipeline.h"

#include <filesystem>

#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "feedline_pipeline.pb.h"
#include "flowgraph/example_pipelines.h"
#include "flowgraph/pipeline/file_list.h"
#include "support/catch.h"
#include "support/process.h"
#include "support/temp_dir.h"

using namespace feedline;

namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_pipeline);
    return error.message();
  }
  return "no error";
}

void fail(const char* operation) {
  for (SyscallHook* hook : SyscallHook::all())
    if (std::string(hook->name()) == operation) return hook->fail_nth_call(1);
  FAIL("no such hook");
}

}  // namespace

TEST_CASE("what is written is read back") {
  for (const char* text : {test::chess_pipeline, test::image_pipeline, test::table_pipeline, ""}) {
    const Pipeline pipeline = parse_pipeline(text);
    CHECK(parse_pipeline(pipeline.text()).text() == pipeline.text());
  }
  CHECK(parse_pipeline("batch { global_batch_size: 8 }\nseed: 3 # three").text() ==
        "batch {\n  global_batch_size: 8\n}\nseed: 3\n");
}

TEST_CASE("an error of the text says where it is and what else could stand there") {
  const auto [text, message] = GENERATE(table<const char*, const char*>({
      {"suffle { mode: NONE }",
       "p:1:1: Pipeline has no field 'suffle'; did you mean 'shuffle'? The fields of Pipeline are: source feature "
       "filter interleave window mixture shuffle epoch batch output distribute cache errors memory parallelism seed"},
      {"batch {\n  globl_batch_size: 5\n}",
       "p:2:3: Batch has no field 'globl_batch_size'; did you mean 'global_batch_size'? The fields of Batch are: "
       "global_batch_size batch_size_per_replica last_batch_policy valid_mask"},
      {"index { mode: LAZY }",
       "p:1:1: Pipeline has no field 'index'; it is a field of source. The fields of Pipeline are: source feature "
       "filter interleave window mixture shuffle epoch batch output distribute cache errors memory parallelism seed"},
      {"batch { wobble: 5 }",
       "p:1:9: Batch has no field 'wobble'. The fields of Batch are: global_batch_size batch_size_per_replica "
       "last_batch_policy valid_mask"},
      {"# a comment {\nbatch { last_batch_policy: PADD\n}\nseed: 1",
       "p:2:28: last_batch_policy: there is no value 'PADD'; did you mean 'PAD'? The values are: DROP PARTIAL PAD"},
      {"feature { name: \"{\" dtype: FLOAT }",
       "p:1:28: dtype: there is no value 'FLOAT'; did you mean 'FLOAT16'? The values are: DTYPE_UNSET BYTES BOOL UINT8 "
       "INT8 UINT16 INT16 UINT32 INT32 INT64 FLOAT16 BFLOAT16 FLOAT32 FLOAT64"},
      {"shuffle { mode: RANDOM }",
       "p:1:17: mode: there is no value 'RANDOM'. The values are: BLOCK NONE BUFFER GLOBAL"},
      {"output { name: \"o\" unpack_bits < shape: [2, 3] scael: 1 > }",
       "p:1:48: UnpackBits has no field 'scael'; did you mean 'scale'? The fields of UnpackBits are: bit_offset width "
       "sign_extend bit_order shape channel_order scale bias"},
      {"output [{ name: \"o\" }, { nam: \"o\" }]",
       "p:1:26: Output has no field 'nam'; did you mean 'name'? The fields of Output are: name dtype feature "
       "unpack_bits decode_raw decode_image expression lookup stack custom one_hot vocabulary hash crop resize flip "
       "normalize layout internal"},
      {"seed: -1", "p:1:7: Expected integer, got: -"},
      {"seed: 1 seed: 2", "p:1:13: Non-repeated field \"seed\" is specified multiple times."},
      {"batch { global_batch_size: 1 batch_size_per_replica: 2 }",
       "p:1:52: Field \"batch_size_per_replica\" is specified along with field \"global_batch_size\", another member "
       "of oneof "
       "\"size\"."},
      {"batch { global_batch_size: 99999999999999999999 }", "p:1:28: Integer out of range (99999999999999999999)"},
      {"source { files: \"a }", "p:1:21: Unexpected end of string."},
      {"batch {", "p:1:8: Expected identifier, got: "},
      {"}", "p:1:1: Expected identifier, got: }"},
      {"\x80", "p:1:1: Interpreting non ascii codepoint 128."},
  }));
  CAPTURE(text);
  CHECK(error_of([&, t = text] { parse_pipeline(t, "", "p"); }) == message);
}

TEST_CASE("a second text laid over the first") {
  const Pipeline base = parse_pipeline(R"(
    source { files: "a" compression: GZIP } source { files: "b" }
    feature { name: "x" dtype: INT64 } feature { name: "y" dtype: FLOAT32 shape: [2] }
    batch { global_batch_size: 8 last_batch_policy: PAD valid_mask: "m" }
    output { name: "x" feature: "x" dtype: INT32 } output { name: "y" feature: "y" }
    errors { on_error: SKIP_RECORD max_failures: 3 }
    parallelism { threads: 4 }
    seed: 7)",
                                       "/here");
  SECTION("source whole, feature and output by name, new ones at the end, other messages field by field") {
    const Pipeline laid = base.overlaid(R"(
      source { files: ["c", "d"] }
      feature { name: "y" dtype: BYTES } feature { name: "z" dtype: INT64 }
      output { name: "z" feature: "z" } output { name: "x" feature: "x" }
      batch { global_batch_size: 16 }
      memory { limit: "1GiB" })");
    CHECK(laid.text() == parse_pipeline(R"(
      source { files: ["c", "d"] }
      feature { name: "x" dtype: INT64 } feature { name: "y" dtype: BYTES } feature { name: "z" dtype: INT64 }
      batch { global_batch_size: 16 last_batch_policy: PAD valid_mask: "m" }
      output { name: "x" feature: "x" } output { name: "y" feature: "y" } output { name: "z" feature: "z" }
      errors { on_error: SKIP_RECORD max_failures: 3 }
      memory { limit: "1GiB" } parallelism { threads: 4 } seed: 7)")
                             .text());
    CHECK(laid.folder() == "/here");
  }
  SECTION("two elements of one name stay two, so that the pipeline is refused") {
    const Pipeline laid = base.overlaid("feature { name: 'y' } feature { name: 'y' } output {} output {}");
    CHECK(laid.message().feature_size() == 3);
    CHECK(laid.message().output_size() == 4);
  }
  SECTION("a value that is the default replaces, too") {
    const Pipeline laid =
        base.overlaid("batch { last_batch_policy: DROP valid_mask: \"\" } errors { on_error: RAISE } seed: 0");
    CHECK(laid.message().batch().last_batch_policy() == config::Batch::DROP);
    CHECK(laid.message().batch().valid_mask().empty());
    CHECK(laid.message().batch().global_batch_size() == 8);
    CHECK(laid.message().errors().on_error() == config::Errors::RAISE);
    CHECK(laid.message().errors().max_failures() == 3);
    CHECK(laid.message().seed() == 0);
  }
  SECTION("one member of a oneof goes when another comes") {
    const Pipeline laid = base.overlaid("batch { batch_size_per_replica: 2 }");
    CHECK(laid.message().batch().size_case() == config::Batch::kBatchSizePerReplica);
  }
  SECTION("nothing changes nothing, and the base stays") {
    CHECK(base.overlaid("").text() == base.text());
    CHECK(base.overlaid("batch {}").text() == base.text());
  }
  SECTION("a bad record is reported with its name and place") {
    CHECK(error_of([&] { base.overlaid("\n batch: 5", "over.textproto"); }).starts_with("over.textproto:2:"));
  }
}

TEST_CASE("a byte order mark before a text is skipped") {
  const std::string mark = "\xEF\xBB\xBF";
  CHECK(parse_pipeline(mark + "seed: 7").message().seed() == 7);
  CHECK(parse_pipeline("seed: 7").overlaid(mark + "seed: 8").message().seed() == 8);
  CHECK(error_of([&] { parse_pipeline(mark + "sed: 7", "", "p"); }).starts_with("p:1:1: Pipeline has no field 'sed'"));
  CHECK(error_of([&] { parse_pipeline("seed: 7" + mark, "", "p"); }).starts_with("p:1:8: "));  // only at the beginning
}

TEST_CASE("an empty value clears a field, and so turns a stage off") {
  const Pipeline base = parse_pipeline(R"(
    source { files: "a" } feature { name: "x" dtype: INT64 } filter: "x > 0" interleave { cycle_length: 2 }
    window { size: 3 } mixture { stop: ALL_DATASETS_EXHAUSTED } shuffle { mode: BUFFER buffer_size: 9 seed: 4 }
    epoch { repeat: 2 } batch { global_batch_size: 8 valid_mask: "m" } seed: 5)");
  Pipeline less = base;
  for (const char* stage : {"filter", "interleave", "window", "mixture", "shuffle", "epoch"})
    less = less.with(stage, "");
  const std::string rest =
      "source { files: 'a' } feature { name: 'x' dtype: INT64 } batch { global_batch_size: 8 valid_mask: 'm' } seed: 5";
  CHECK(less.text() == parse_pipeline(rest).text());
  CHECK(!base.with("shuffle.seed", " ").message().shuffle().has_seed());
  CHECK(base.with("shuffle.seed", "").message().shuffle().buffer_size() == 9);
  CHECK(base.with("batch.valid_mask", "").message().batch().valid_mask().empty());
  CHECK(base.with("source.files", "").message().source(0).files().empty());
  // An empty value does not turn on a stage that was off, and unknown fields are still refused.
  CHECK(less.with("shuffle.seed", "").text() == less.text());
  CHECK(error_of([&] { less.with("shuffle.sede", ""); }).starts_with("shuffle.sede: Shuffle has no field 'sede'"));
  // Nor does it take the place of another member of a oneof.
  const Pipeline chess = parse_pipeline(test::chess_pipeline);
  for (const char* path : {"output.board.expression.formula", "output.board.decode_raw.shape"})
    CHECK(chess.with(path, "").text() == chess.text());
}

TEST_CASE("one field by its path") {
  const Pipeline base = parse_pipeline(test::chess_pipeline);
  CHECK(base.with("batch.last_batch_policy", "PAD").message().batch().last_batch_policy() == config::Batch::PAD);
  CHECK(base.with("batch.last_batch_policy", "DROP").message().batch().last_batch_policy() == config::Batch::DROP);
  CHECK(base.with("batch.batch_size_per_replica", "4").message().batch().batch_size_per_replica() == 4);
  CHECK(base.with("seed", "0").message().seed() == 0);
  CHECK(base.with("memory.limit", "2GiB").message().memory().limit() == "2GiB");
  CHECK(base.with("memory.limit", "\"2GiB\"").message().memory().limit() == "2GiB");
  CHECK(base.with("source.files", "my \"data\"\\*").message().source(0).files(0) == "my \"data\"\\*");
  CHECK(base.with("source", "files: \"a\" compression: ZLIB").message().source_size() == 1);
  CHECK(base.with("output.board.dtype", "FLOAT16").message().output(0).dtype() == config::FLOAT16);
  CHECK(base.with("output.board.unpack_bits.shape", "[64, 24]").message().output(0).unpack_bits().shape_size() == 2);
  CHECK(base.with("feature.d.length", "200").message().feature(0).length() == 200);
  const Pipeline dotted = parse_pipeline("feature { name: \"a\" } feature { name: \"a.b\" }");
  CHECK(dotted.with("feature.a.b.length", "3").message().feature(1).length() == 3);

  // A whole element, which keeps its name and place.
  const Pipeline replaced = base.with("output.board", "feature: 'd' decode_raw { shape: 200 }");
  REQUIRE(replaced.message().output_size() == base.message().output_size());
  CHECK(replaced.message().output(0).name() == "board");
  CHECK(replaced.message().output(0).has_decode_raw());
  CHECK_FALSE(replaced.message().output(0).has_unpack_bits());
  CHECK(replaced.with("output.board", "name: 'board' feature: 'd'").message().output(0).feature() == "d");
  CHECK(dotted.with("feature.a.b", "dtype: INT64").message().feature(1).name() == "a.b");
  CHECK(dotted.with("feature.a.b", "dtype: INT64").message().feature(1).length() == 0);
  CHECK(dotted.with("feature.a.b", "").message().feature_size() == dotted.message().feature_size() - 1);
  CHECK(error_of([&] { base.with("output.board", "name: 'other' feature: 'd'"); }) ==
        "output.board: the value has the name 'other', but the name must stay 'board'; leave 'name' out of the value");
  CHECK(error_of([&] { base.with("output.board", "featur: 'd'"); }).starts_with("output.board: "));
  CHECK(error_of([&] { base.with("output.board", "} output { feature: 'd'"); }) ==
        "output.board: the value must be one element; write the fields of one element");
  CHECK(error_of([&] { base.with("batch.last_batch_polcy", "PAD"); })
            .starts_with(
                "batch.last_batch_polcy: Batch has no field 'last_batch_polcy'; did you mean 'last_batch_policy'?"));
  CHECK(error_of([&] { base.with("batch.last_batch_policy", "PADD"); }) ==
        "batch.last_batch_policy: last_batch_policy: there is no value 'PADD'; did you mean 'PAD'? The values are: "
        "DROP PARTIAL PAD");
  CHECK(error_of([&] { base.with("output.bord.dtype", "INT8"); }) ==
        "output.bord.dtype: there is no output 'bord'; did you mean 'board'?");
  CHECK(error_of([&] { base.with("output.new", "feature: 'd'"); })
            .starts_with("output.new: there is no output 'new'; only a second pipeline text can add a new one; and "
                         "Output has no field 'new'"));
  CHECK(error_of([&] { parse_pipeline(std::string_view("batch\0", 6), "", "p"); }) ==
        "p: this is not a text, and so it is not a pipeline; to write a pipeline for TFRecord files, use `feedline "
        "inspect --pipeline FILE...`");
  CHECK(
      error_of([&] { parse_pipeline(std::string((size_t{64} << 20) + 1, ' '), "", "p"); }) ==
      "p: the text has more than 67108864 bytes, the most that a pipeline may have; check that this is the right file");
  CHECK(error_of([&] { base.with("seed.x", "1"); }) ==
        "seed.x: 'seed' does not have fields; remove what follows it in the path");
  CHECK(error_of([&] { base.with("", "1"); }).starts_with(": Pipeline has no field ''."));
  CHECK(error_of([&] { base.with("seed", "1 batch { global_batch_size: 1 }"); }) ==
        "seed: the value also sets other fields; write a value for this field only");
}

TEST_CASE("a pipeline names the same files when the process has gone to another folder") {
  const test::TempDir here, there;
  here.write("p.textproto", "source { files: 'a' }");
  std::filesystem::create_directory(here.file("sub"));
  CHECK(test::in_child([&] {
          std::filesystem::current_path(here.path());
          const Pipeline loaded = load_pipeline("p.textproto");
          const Pipeline parsed = parse_pipeline("source { files: 'a' }"), in_sub = parse_pipeline("", "sub");
          std::filesystem::current_path(there.path());
          return !(loaded.folder() == here.path() && parsed.folder() == here.path() &&
                   in_sub.folder() == here.file("sub") && in_sub.overlaid("seed: 1").folder() == here.file("sub"));
        }) == 0);
}

TEST_CASE("a pipeline of absolute paths needs no working directory") {
  const test::TempDir folder;
  folder.write("a.rec", "");
  const std::string gone = folder.file("gone");
  std::filesystem::create_directory(gone);
  CHECK(test::in_child([&] {
          std::filesystem::current_path(gone);
          std::filesystem::remove(gone);
          const Pipeline pipeline = parse_pipeline("source { files: 'a' }");
          if (flow::list_files({"source", pipeline.folder(), {folder.file("a.*")}, {}}).files.size() != 1) return 1;
          try {
            flow::list_files({"source", pipeline.folder(), {"a"}, {}});
          } catch (const Error& error) {
            return error.category() == Category::io_error &&
                           error.message().starts_with(
                               "source.files: 'a' is relative to the working directory, which "
                               "cannot be determined: No such file or directory; change to a folder")
                       ? 0
                       : 2;
          }
          return 3;
        }) == 0);
}

TEST_CASE("a pipeline from a file knows its folder") {
  const test::TempDir folder;
  const std::string file = folder.write("p.textproto", test::chess_pipeline);
  CHECK(load_pipeline(file).folder() == folder.path());
  CHECK(load_pipeline(file).text() == parse_pipeline(test::chess_pipeline).text());
  folder.write("bad.textproto", "batch: 1");
  CHECK(
      error_of([&] { load_pipeline(folder.file("bad.textproto")); }).starts_with(folder.file("bad.textproto") + ":1:"));

  const auto io_error_of = [](const std::string& path) {
    try {
      load_pipeline(path);
    } catch (const Error& error) {
      CHECK(error.category() == Category::io_error);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(io_error_of("/nowhere/p") == "/nowhere/p: cannot open the pipeline: No such file or directory [io_error]");
  CHECK(io_error_of(folder.path()) == folder.path() + ": cannot read the pipeline: Is a directory [io_error]");
  fail("open_pipeline");
  CHECK(io_error_of(file) == file + ": cannot open the pipeline: Too many open files [io_error]");
  fail("read_pipeline");
  CHECK(io_error_of(file) == file + ": cannot read the pipeline: Input/output error [io_error]");
}
