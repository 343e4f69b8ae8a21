#include "flowgraph/parse/raw_parser.h"

#include <fmt/format.h>

namespace feedline::flow {

void RawParser::Session::parse(std::span<const io::RecordView> records, std::vector<RowError>& errors) {
  for (const io::RecordView& record : records) {
    column_.as<BytesRef>()[row_] = {record.data, record.size};
    if (length_ >= 0 && static_cast<uint64_t>(length_) != record.size)
      errors.push_back(
          {row_, Category::wrong_length, 0,
           fmt::format("the record has {} bytes, length wants {}; change length, or remove it if records differ",
                       record.size, length_)});
    row_++;
  }
}

}  // namespace feedline::flow
