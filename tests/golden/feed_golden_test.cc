// Compares the whole feed with TensorFlow's answers: golden cases from their files to the tensors of one batch, and the
// chess and image cases up to what a trainer is given.
//
// Cases with an oddity concern the scanner and the parser, and are tested there (records_golden_test,
// parse_golden_test). Every case without one goes through a Feeder here, as a user would write it.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <map>
#include <optional>

#include "feedline/feeder.h"
#include "io/records/crc32c.h"
#include "manifest.h"
#include "support/catch.h"

namespace feedline::test {
namespace {

std::string quoted(const std::string& bytes) {
  std::string out = "\"";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out + "\"";
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string feature_text(const GoldenFeature& feature, size_t number) {
  const std::map<std::string, std::string> kinds = {
      {"fixed", "FIXED"}, {"var", "VARIABLE"}, {"ragged", "RAGGED"}, {"fixed_sequence", "FIXED_SEQUENCE"}};
  const std::map<std::string, std::string> dtypes = {{"bytes", "BYTES"}, {"float32", "FLOAT32"}, {"int64", "INT64"}};
  std::string text = fmt::format("feature {{ name: 'f{}' key: {} dtype: {} kind: {}", number, quoted(feature.name),
                                 dtypes.at(feature.dtype), kinds.at(feature.kind));
  if (feature.where == "feature_list") {
    text += " where: FEATURE_LIST";
    if (feature.kind == "fixed_sequence" && !feature.allow_missing) text += " required: true";
  }
  for (const int64_t axis : feature.shape) text += fmt::format(" shape: {}", axis);
  if (!feature.default_value.is_null())
    for (const auto& value : feature.default_value) {
      if (feature.dtype == "bytes")
        text += fmt::format(" default_value {{ bytes_value: {} }}", quoted(from_hex(value)));
      if (feature.dtype == "float32") text += fmt::format(" default_value {{ float32_value: {} }}", value.get<float>());
      if (feature.dtype == "int64") text += fmt::format(" default_value {{ int64_value: {} }}", value.get<int64_t>());
    }
  return text + " }\n";
}

std::string source_text(const GoldenCase& golden) {
  std::string text = "source { compression: " + golden.compression;
  if (golden.parse == "records") text += " record_type: RAW";
  if (golden.parse == "sequence_example") text += " record_type: SEQUENCE_EXAMPLE";
  for (const std::string& file : golden.files) text += fmt::format(" files: \"{}\"", file);
  return text + " }\n";
}

struct Fed {
  std::vector<Batch> batches;
  std::optional<Error> error;
};

// Returns all good rows as one batch, and the error after them.
Fed feed(const GoldenCase& golden, const std::string& more) {
  Options options;
  options.deliver_before_error = true;
  Feeder feeder(parse_pipeline(source_text(golden) + more + "epoch { allow_empty: true } " +
                               fmt::format("batch {{ global_batch_size: {} last_batch_policy: PARTIAL }}",
                                           golden.parse == "records" ? 4096 : std::max<uint64_t>(1, golden.records))),
                options);
  Fed fed;
  try {
    while (auto batch = feeder.next()) fed.batches.push_back(std::move(batch));
  } catch (const Error& error) {
    fed.error = error;
  }
  return fed;
}

void check_array(const GoldenCase& golden, const std::string& wanted_name, const TensorView& got) {
  const auto wanted = golden.arrays.find(wanted_name);
  if (wanted == golden.arrays.end()) return;
  INFO("array " << wanted_name);
  CHECK(std::vector<int64_t>(got.shape.begin(), got.shape.end()) == wanted->second.shape);
  CHECK(io::crc32c({static_cast<const std::byte*>(got.data), got.size_bytes()}) == wanted->second.crc32c);
}

bool run_parsed(const GoldenCase& golden) {
  std::string text;
  std::map<std::string, int> keys;
  for (size_t i = 0; i < golden.features.size(); i++) {
    if (keys[golden.features[i].name]++ > 0) return false;  // one key with two shapes needs two pipelines
    text += feature_text(golden.features[i], i);
  }
  const Fed fed = feed(golden, text);
  if (!golden.error.category.empty() && golden.error.stage == "parse") {
    REQUIRE(fed.error);
    CHECK(name(fed.error->category()) == golden.error.category);
    CHECK(fed.error->place().record == golden.error.failing_records.front());
    return true;
  }
  CHECK(!fed.error);
  if (golden.records == 0) return true;
  REQUIRE(fed.batches.size() == 1);
  const Batch& batch = fed.batches.front();
  CHECK(batch.valid_count() == static_cast<int64_t>(golden.records));
  for (size_t i = 0; i < golden.features.size(); i++) {
    const std::string f = fmt::format("f{}", i);
    for (const NamedTensor& tensor : batch.tensors()) {
      if (tensor.name == f) check_array(golden, f + ".dense", tensor.tensor);
      for (const char* part : {".values", ".row_splits", ".bytes", ".offsets"})
        if (tensor.name == f + part) check_array(golden, f + part, tensor.tensor);
      // Two levels: these are TensorFlow's names if it has a ragged tensor, too.
      if (tensor.name == f + ".row_splits") check_array(golden, f + ".row_splits0", tensor.tensor);
      if (tensor.name == f + ".step_splits") check_array(golden, f + ".row_splits1", tensor.tensor);
    }
  }
  return true;
}

void run_records(const GoldenCase& golden) {
  const Fed fed = feed(golden, "");
  std::string payloads;
  int64_t rows = 0;
  for (const Batch& batch : fed.batches) {
    const auto bytes = batch.at("record.bytes").as<char>();
    payloads.append(bytes.begin(), bytes.end());
    rows += batch.valid_count();
  }
  if (golden.error.records_exact) {
    CHECK(rows == static_cast<int64_t>(golden.records));
    Sha256 sha256;
    sha256.update(std::as_bytes(std::span(payloads)));
    CHECK(sha256.hex() == golden.payload_sha256);
  }
  REQUIRE(fed.error.has_value() == !golden.error.category.empty());
  if (!fed.error) return;
  std::vector<std::string> accepted = golden.error.also_acceptable;
  // The flipped bit of shards/fourth_damaged is in a length: see records_golden_test.
  accepted.push_back(golden.name == "shards/fourth_damaged" ? "bad_length_crc" : golden.error.category);
  CHECK_THAT(accepted, Catch::VectorContains(std::string(name(fed.error->category()))));
}

int64_t ulps_apart(double a, double b) {
  const auto ordered = [](double x) {
    const auto bits = std::bit_cast<int64_t>(x);
    return bits < 0 ? INT64_MIN - bits : bits;
  };
  return std::abs(ordered(a) - ordered(b));
}

void run_chess(const GoldenCase& golden) {
  const std::string text = fmt::format(
      R"text(feature {{ name: "d" dtype: BYTES length: 194 }}  feature {{ name: "s" dtype: INT64 }}
output {{ name: "board" dtype: INT8 feature: "d"
  unpack_bits {{ shape: [8, 8, 24] channel_order: [0,4,8,12,16,20,1,5,9,13,17,21,2,6,10,14,18,22,3,7,11,15,19,23]
    scale: [1,1,1,1,1,1,-1,-1,-1,-1,-1,-1,1,1,1,1,1,1,-1,-1,-1,-1,-1,-1] }} }}
output {{ name: "flags" dtype: INT8 feature: "d" unpack_bits {{ bit_offset: 1536 shape: [10] }} }}
output {{ name: "mate" dtype: FLOAT32 feature: "d" unpack_bits {{ bit_offset: 1546 }} internal: true }}
output {{ name: "score" dtype: FLOAT64 expression {{
  formula: "(1-out.mate)*A*tanh(s/K) + out.mate*sign(s)*(A+(1-A)/(B-1)*max(0,B-abs(s)))"
  constants {{ key: "A" value: {} }} constants {{ key: "K" value: {} }} constants {{ key: "B" value: {} }} }} }}
)text",
      golden.post.at("A").get<double>(), golden.post.at("K").get<double>(), golden.post.at("B").get<double>());
  const Fed fed = feed(golden, text);
  if (!golden.error.category.empty()) {
    REQUIRE(fed.error);
    CHECK(name(fed.error->category()) == golden.error.category);
    return;
  }
  REQUIRE(fed.batches.size() == 1);
  check_array(golden, "out.board", fed.batches[0].at("board"));
  check_array(golden, "out.flags", fed.batches[0].at("flags"));
  const auto arrays = load_npz(golden.npz);
  const auto wanted = arrays.at("out.score").as<double>();
  const auto got = fed.batches[0].at("score").as<double>();
  REQUIRE(wanted.size() == got.size());
  int64_t furthest = 0;
  for (size_t i = 0; i < got.size(); i++) furthest = std::max(furthest, ulps_apart(wanted[i], got[i]));
  CHECK(furthest <= 8);
}

void run_images(const GoldenCase& golden) {
  const auto shape = golden.post.at("shape").get<std::vector<int64_t>>();
  const std::string layout = golden.post.at("layout");
  const auto list = [&](const char* field) { return golden.post.at(field).dump(); };
  std::string text;
  int64_t bytes = 1;
  for (const int64_t axis : shape) bytes *= axis;
  const bool is_raw = golden.post.at("encoding") == "raw";
  const auto axes = layout == "HWC" ? fmt::format("[{}, {}, {}]", shape[0], shape[1], shape[2])
                                    : fmt::format("[{}, {}, {}]", shape[2], shape[0], shape[1]);
  for (const std::string image : golden.post.at("features")) {
    const std::string decode = is_raw ? fmt::format("decode_raw {{ stored: UINT8 shape: {} layout: {} }}", axes, layout)
                                      : fmt::format("decode_image {{ channels: {} }} resize {{ size: [{}, {}] }}",
                                                    shape[2], shape[0], shape[1]);
    const std::string length = is_raw ? fmt::format("length: {}", bytes) : "";
    text += fmt::format(
        "feature {{ name: '{0}' dtype: BYTES {1} }} output {{ name: '{0}' dtype: FLOAT32 feature: '{0}' {2} "
        "normalize {{ scale: {3} mean: {4} std: {5} }} layout: CHW }}\n",
        image, length, decode, golden.post.at("scale").get<double>(), list("mean"), list("std"));
    if (!is_raw) text += fmt::format("output {{ name: '{0} pixels' feature: '{0}' {1} }}\n", image, decode);
  }
  const Fed fed = feed(golden, text);
  if (!golden.error.category.empty()) {
    REQUIRE(fed.error);
    CHECK(name(fed.error->category()) == golden.error.category);
    return;
  }
  REQUIRE(fed.batches.size() == 1);
  const auto arrays = load_npz(golden.npz);
  for (const std::string image : golden.post.at("features")) {
    if (!is_raw) check_array(golden, "out." + image + ".pixels", fed.batches[0].at(image + " pixels"));
    const TensorView got = fed.batches[0].at(image);
    const std::string name = "out." + image + ".nchw";
    const GoldenArray& expected = golden.arrays.at(name);
    CHECK(std::vector<int64_t>(got.shape.begin(), got.shape.end()) == expected.shape);
    if (!expected.stored) {
      check_array(golden, name, got);
      continue;
    }
    const auto wanted = arrays.at(name).as<float>();
    const auto values = got.as<float>();
    REQUIRE(wanted.size() == values.size());
    float furthest = 0;
    for (size_t i = 0; i < values.size(); i++) furthest = std::max(furthest, std::fabs(wanted[i] - values[i]));
    CHECK(furthest <= 1e-6f);
  }
}

}  // namespace

TEST_CASE("golden cases through the whole feed") {
  std::map<std::string, int> run, skipped;
  for (const GoldenCase& golden : golden_cases()) {
    INFO(golden.name << ": " << golden.description);
    bool done = false;
    try {
      if (golden.oddity.is_null() && golden.parse == "records") {
        run_records(golden);
        done = true;
      } else if (golden.oddity.is_null() && (golden.parse == "example" || golden.parse == "sequence_example")) {
        done = run_parsed(golden);
      }
      if (golden.group == "chess") run_chess(golden);
      if (golden.group == "images") run_images(golden);
    } catch (const std::exception& error) {
      FAIL_CHECK("threw: " << error.what());
    }
    (done ? run : skipped)[golden.group]++;
  }
  for (const auto& [group, count] : run) fmt::print("{}: {} run, {} skipped\n", group, count, skipped[group]);
  // Skipped are cases with an oddity or parsed record by record, and cases that ask for one key twice.
  CHECK(run == std::map<std::string, int>{{"chess", 7},
                                          {"compression", 40},
                                          {"framing", 106},
                                          {"images", 11},
                                          {"proto", 131},
                                          {"sequence", 22},
                                          {"shards", 6}});
}

}  // namespace feedline::test
