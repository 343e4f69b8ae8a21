// Tests the Example parser with files that other programs wrote. Every value of every feature must be what TensorFlow
// reads, as the manifest (real.json) records it.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "feedline/records.h"
#include "flowgraph/parse/example_reference.h"
#include "flowgraph/parse/record_parser.h"
#include "manifest.h"
#include "support/catch.h"
#include "support/skip.h"

namespace feedline::test {
namespace {

using flow::BytesRef;
using flow::ValuesRef;

std::vector<std::string> read_records(const std::string& file) {
  std::vector<std::string> records;
  RecordReader reader(file);
  Record record;
  while (reader.next(record) == ReadResult::record) {
    records.emplace_back(reinterpret_cast<const char*>(record.payload.data()), record.payload.size());
  }
  return records;
}

std::vector<flow::FeatureSpec> features_of(const nlohmann::json& file) {
  std::vector<flow::FeatureSpec> features;
  for (const nlohmann::json& seen : file.at("features")) {
    const std::string kind = seen.at("kind");
    if (kind == "unset") continue;
    flow::FeatureSpec spec;
    spec.name = spec.key = seen.at("name");
    spec.dtype = kind == "bytes_list" ? DType::bytes : kind == "float_list" ? DType::float32 : DType::int64;
    spec.kind = flow::FeatureKind::variable;
    features.push_back(spec);
  }
  return features;
}

void hash(Sha256& sha256, const void* bytes, size_t size) {
  sha256.update({static_cast<const std::byte*>(bytes), size});
}

void check(const std::string& folder, const nlohmann::json& file) {
  const std::vector<flow::FeatureSpec> features = features_of(file);
  const std::vector<std::string> records = read_records(folder + "/" + file.at("file").get<std::string>());
  REQUIRE(records.size() == file.at("records").get<size_t>());
  REQUIRE(compare_with_protobuf(features, records) == "");

  const auto parser = flow::example_parser(features);
  std::vector<io::RecordView> views;
  uint64_t payload = 0;
  for (const std::string& record : records) {
    views.push_back({reinterpret_cast<const std::byte*>(record.data()), static_cast<uint32_t>(record.size()), 0});
    payload += record.size();
  }
  std::vector<std::byte> memory(parser->arena_bound(records.size(), payload));
  flow::Arena arena(memory);
  const auto session = parser->begin({static_cast<uint32_t>(records.size()), payload}, arena);
  std::vector<flow::RowError> errors;
  session->parse(views, errors);
  REQUIRE(errors.empty());
  fmt::print("{}: {} of {} records by a learned layout\n", file.at("path").get<std::string>(), session->layout_hits(),
             records.size());
  for (size_t i = 0; i < features.size(); i++) {
    INFO("feature " << features[i].name);
    Sha256 sha256;
    for (size_t row = 0; row < records.size(); row++) {
      const ValuesRef& values = session->columns()[i].as<ValuesRef>()[row];
      if (features[i].dtype != DType::bytes) {
        hash(sha256, values.values, values.count * size_of(features[i].dtype));
        continue;
      }
      for (size_t n = 0; n < values.count; n++) {
        const BytesRef& ref = static_cast<const BytesRef*>(values.values)[n];
        hash(sha256, &ref.size, sizeof(ref.size));
        hash(sha256, ref.data, ref.size);
      }
    }
    CHECK(sha256.hex() == file.at("values_sha256").at(features[i].name).get<std::string>());
  }
}

TEST_CASE("Examples of other people's programs") {
  const std::string folder = FEEDLINE_SHARED_REAL;
  if (!std::filesystem::exists(folder + "/real.json")) return skip("no folder of real files: " + folder);
  std::ifstream in(folder + "/real.json");
  const nlohmann::json manifest = nlohmann::json::parse(in);
  size_t checked = 0;
  for (const nlohmann::json& file : manifest.at("files")) {
    if (file.at("message") != "Example") continue;
    INFO(file.at("file").get<std::string>());
    check(folder, file);
    checked++;
  }
  CHECK(checked == 6);
}

}  // namespace
}  // namespace feedline::test
