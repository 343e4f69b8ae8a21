#include "flowgraph/parse/record_parser.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "flowgraph/example_writer.h"
#include "support/catch.h"

namespace feedline::test {
namespace {

using flow::Arena;
using flow::BytesRef;
using flow::PipelineSpec;
using flow::RecordParser;
using flow::RecordType;
using flow::RowError;

PipelineSpec pipeline(RecordType type, const std::string& feature, int64_t length = -1) {
  PipelineSpec spec;
  spec.sources.emplace_back().record_type = type;
  auto& only = spec.features.emplace_back();
  only.name = only.key = feature;
  only.dtype = DType::bytes;
  only.length = length;
  return spec;
}

std::vector<io::RecordView> views(const std::vector<std::string>& records) {
  std::vector<io::RecordView> views;
  for (const std::string& record : records)
    views.push_back({reinterpret_cast<const std::byte*>(record.data()), static_cast<uint32_t>(record.size()), 0});
  return views;
}

uint64_t bytes_in(const std::vector<std::string>& records) {
  uint64_t bytes = 0;
  for (const std::string& record : records) bytes += record.size();
  return bytes;
}

/// Parses the records in blocks of `block`. The arena begins at an odd address and has exactly the size of its bound.
struct Parsed {
  Parsed(const PipelineSpec& spec, const std::vector<std::string>& records, size_t block = 2)
      : parser(flow::record_parser(spec)),
        memory(1 + parser->arena_bound(records.size(), bytes_in(records))),
        arena(std::span(memory).subspan(1)),
        session(parser->begin({static_cast<uint32_t>(records.size()), bytes_in(records)}, arena)) {
    const std::vector<io::RecordView> all = views(records);
    for (size_t i = 0; i < all.size(); i += block)
      session->parse(std::span(all).subspan(i, std::min(block, all.size() - i)), errors);
  }
  std::string text(size_t row) const {
    const BytesRef& ref = session->columns()[0].as<BytesRef>()[row];
    return {reinterpret_cast<const char*>(ref.data), ref.size};
  }

  std::unique_ptr<const RecordParser> parser;
  std::vector<std::byte> memory;
  Arena arena;
  std::unique_ptr<RecordParser::Session> session;
  std::vector<RowError> errors;
};

TEST_CASE("a row that is skipped counts in nothing") {
  for (const RecordType type : {RecordType::example, RecordType::sequence_example, RecordType::raw}) {
    const auto parser = flow::record_parser(pipeline(type, "record"));
    std::vector<std::byte> memory(parser->arena_bound(2, 100));
    Arena arena(memory);
    const auto session = parser->begin({.rows = 2, .payload_bytes = 100}, arena);
    session->skip_row();
    CHECK(session->seen() == std::vector<bool>{false});
    CHECK(session->lacking()[0] == 0);
    const std::vector<std::string> records = {
        type == RecordType::raw ? "raw" : wire::example(wire::entry("record", wire::bytes_feature({"raw"})))};
    std::vector<RowError> errors;
    session->parse(views(records), errors);
    CHECK(errors.empty());
    CHECK(session->columns()[0].as<BytesRef>()[1].size == 3);
    CHECK(session->seen() == std::vector<bool>{true});
  }
}

TEST_CASE("a raw record is its bytes, without a copy") {
  const std::vector<std::string> records = {"one", "", "three"};
  const Parsed parsed(pipeline(RecordType::raw, "record"), records);
  CHECK(parsed.errors.empty());
  REQUIRE(parsed.session->columns().size() == 1);
  for (size_t row = 0; row < records.size(); row++) CHECK(parsed.text(row) == records[row]);
  CHECK(static_cast<const void*>(parsed.session->columns()[0].as<BytesRef>()[2].data) == records[2].data());
  CHECK(parsed.session->layout_hits() == 0);
  CHECK(parsed.session->seen() == std::vector<bool>{true});
  CHECK(parsed.parser->feature_names(views(records)[0]).empty());
}

TEST_CASE("a raw record of another length is refused, and the rows around it are good") {
  const std::vector<std::string> records = {"abc", "four", "def", "", "ghi"};
  const Parsed parsed(pipeline(RecordType::raw, "record", 3), records);
  REQUIRE(parsed.errors.size() == 2);
  CHECK(parsed.errors[0].row == 1);
  CHECK(parsed.errors[0].category == Category::wrong_length);
  CHECK(parsed.errors[0].feature == 0);
  CHECK(parsed.errors[0].message ==
        "the record has 4 bytes, but 'length' is 3; change 'length', or remove it if records differ in length");
  CHECK(parsed.errors[1].row == 3);
  CHECK(parsed.text(0) == "abc");
  CHECK(parsed.text(2) == "def");
  CHECK(parsed.text(4) == "ghi");
}

TEST_CASE("nothing is seen before the first record") {
  for (const RecordType type : {RecordType::raw, RecordType::example})
    CHECK(Parsed(pipeline(type, "record"), {}).session->seen() == std::vector<bool>{false});
}

TEST_CASE("records are parsed by the pipeline's record type") {
  std::vector<std::string> records;
  for (const char* value : {"abc", "def", "ghi"})
    records.push_back(wire::example(wire::entry("x", wire::bytes_feature({value}))));
  const Parsed examples(pipeline(RecordType::example, "x", 3), records);
  CHECK(examples.errors.empty());
  CHECK(examples.text(0) == "abc");
  CHECK(examples.text(2) == "ghi");
  CHECK(examples.session->layout_hits() == 2);
  CHECK(examples.session->seen() == std::vector<bool>{true});
  CHECK(examples.parser->feature_names(views(records)[0]) == std::vector<std::string>{"x"});
  CHECK(Parsed(pipeline(RecordType::raw, "record"), records).text(1) == records[1]);

  const Parsed refused(pipeline(RecordType::example, "x"), {"no Example"});
  REQUIRE(refused.errors.size() == 1);
  CHECK(refused.errors[0].category == Category::malformed_proto);
}

}  // namespace
}  // namespace feedline::test
