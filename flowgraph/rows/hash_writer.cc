#include "flowgraph/rows/hash_writer.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "flowgraph/rows/decimal_text.h"
#include "flowgraph/rows/fingerprint.h"

namespace feedline::flow {

void HashWriter::write(std::span<const std::span<const std::byte>> values, const RowNumbers&, std::byte* out,
                       size_t stride, std::span<std::byte>, RowOutcome&) const {
  std::array<uint64_t, 64> numbers;
  std::array<const std::byte*, numbers.size()> stored;
  for (size_t i = 0; i < std::min(numbers.size(), values.size()); i++)
    stored[i] = reinterpret_cast<const std::byte*>(&numbers[i]);
  for (size_t first = 0; first < values.size(); first += numbers.size(), out += numbers.size() * stride) {
    const std::span some = values.subspan(first, std::min(numbers.size(), values.size() - first));
    for (size_t i = 0; i < some.size(); i++) {
      const std::string_view text(reinterpret_cast<const char*>(some[i].data()), some[i].size());
      numbers[i] = (of_numbers_ ? fingerprint(DecimalText(some[i]).view()) : fingerprint(text)) % buckets_;
    }
    unpack_(std::span(stored).first(some.size()), out, stride);
  }
}

}  // namespace feedline::flow
