#include "flowgraph/parse/raw_parser.h"

#include <fmt/format.h>

namespace feedline::flow {

void RawParser::Session::parse(std::span<const io::RecordView> records, std::vector<RowError>& errors) {
  for (const io::RecordView& record : records) {
    column_.as<BytesRef>()[row_] = {record.data, record.size};
    if (record_->length >= 0 && static_cast<uint64_t>(record_->length) != record.size)
      errors.push_back({row_, Category::wrong_length, 0, other_length("the record has", record.size, *record_)});
    row_++;
  }
}

}  // namespace feedline::flow
