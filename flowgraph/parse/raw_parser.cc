#include <fmt/format.h>

#include <utility>

#include "flowgraph/parse/other_length.h"
#include "flowgraph/parse/record_parser.h"

namespace feedline::flow {
namespace {

class RawSession final : public RecordParser::Session {
 public:
  RawSession(const FeatureSpec& record, const ChunkRecords& records, Arena& arena)
      : record_(record), column_{arena.take<BytesRef>(records.rows)} {}

  // Sets the next rows of the column to the records' bytes. Refuses each record whose size is not the feature's length.
  void parse(std::span<const io::RecordView> records, std::vector<RowError>& errors) override {
    for (const io::RecordView& record : records) {
      column_.as<BytesRef>()[row_] = {record.data, record.size};
      if (record_.length >= 0 && static_cast<uint64_t>(record_.length) != record.size)
        errors.push_back({row_, Category::wrong_length, 0, other_length("the record has", record.size, record_)});
      row_++;
    }
  }
  void skip_row() noexcept override {
    row_++;
    skipped_++;
  }
  std::span<const Column> columns() const noexcept override { return {&column_, 1}; }
  uint64_t layout_hits() const noexcept override { return 0; }
  std::vector<bool> seen() const override { return {row_ > skipped_}; }
  std::span<const uint64_t> lacking() const noexcept override { return {&none_, 1}; }

 private:
  static constexpr uint64_t none_ = 0;
  const FeatureSpec& record_;
  Column column_;
  uint32_t row_ = 0, skipped_ = 0;
};

class RawParser final : public RecordParser {
 public:
  explicit RawParser(FeatureSpec record) : record_(std::move(record)) {}

  uint64_t arena_bound(uint64_t rows, uint64_t /*payload_bytes*/) const noexcept override {
    return rows * sizeof(BytesRef) + alignof(BytesRef);
  }
  std::vector<std::string> feature_names(const io::RecordView&) const override { return {}; }
  std::unique_ptr<Session> begin(const ChunkRecords& records, Arena& arena) const override {
    return std::make_unique<RawSession>(record_, records, arena);
  }

 private:
  const FeatureSpec record_;
};

}  // namespace

std::unique_ptr<const RecordParser> raw_parser(std::vector<FeatureSpec> features) {
  return std::make_unique<RawParser>(std::move(features.front()));
}

}  // namespace feedline::flow
