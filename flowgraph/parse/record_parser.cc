#include "flowgraph/parse/record_parser.h"

#include <type_traits>
#include <utility>

namespace feedline::flow {
namespace {

AnyParser make_parser(RecordType type, const std::vector<FeatureSpec>& features) {
  switch (type) {
    case RecordType::raw:
      return AnyParser(std::in_place_type<RawParser>, features);
    case RecordType::sequence_example:
      return AnyParser(std::in_place_type<SequenceExampleParser>, features);
    case RecordType::example:
      break;
  }
  return AnyParser(std::in_place_type<ExampleParser>, features);
}

AnySession make_session(const AnyParser& any, const ChunkRecords& records, Arena& arena) {
  return std::visit(
      [&](const auto& parser) {
        using Session = typename std::remove_cvref_t<decltype(parser)>::Session;
        return AnySession(std::in_place_type<Session>, parser, records, arena);
      },
      any);
}

}  // namespace

RecordParser::RecordParser(const PipelineSpec& spec)
    : parser_(make_parser(spec.sources.front().record_type, spec.features)) {}

uint64_t RecordParser::arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept {
  return std::visit([&](const auto& parser) { return parser.arena_bound(rows, payload_bytes); }, parser_);
}

std::vector<std::string> RecordParser::feature_names(const io::RecordView& record) const {
  return std::visit([&](const auto& parser) { return parser.feature_names(record); }, parser_);
}

RecordParser::Session::Session(const RecordParser& parser, const ChunkRecords& records, Arena& arena)
    : session_(make_session(parser.parser_, records, arena)) {}

void RecordParser::Session::parse(std::span<const io::RecordView> records, std::vector<RowError>& errors) {
  std::visit([&](auto& session) { session.parse(records, errors); }, session_);
}

std::span<const Column> RecordParser::Session::columns() const noexcept {
  return std::visit([](const auto& session) { return session.columns(); }, session_);
}

uint64_t RecordParser::Session::layout_hits() const noexcept {
  return std::visit([](const auto& session) { return session.layout_hits(); }, session_);
}

std::span<const uint64_t> RecordParser::Session::lacking() const noexcept {
  return std::visit([](const auto& session) { return session.lacking(); }, session_);
}

std::vector<bool> RecordParser::Session::seen() const {
  return std::visit([](const auto& session) { return session.seen(); }, session_);
}

}  // namespace feedline::flow
