#include "flowgraph/rows/vocabulary_writer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace feedline::flow {

VocabularyWriter::VocabularyWriter(RowFinder finder, const unpack::UnpackSpec& unpack)
    : finder_(std::move(finder)), unpack_(unpack) {}

void VocabularyWriter::write(std::span<const std::span<const std::byte>> values, const RowNumbers&, std::byte* out,
                             size_t stride, std::span<std::byte>, RowOutcome& outcome) const {
  std::array<int64_t, Table::most_at_once> numbers;
  std::array<const std::byte*, Table::most_at_once> stored;
  for (size_t i = 0; i < std::min(numbers.size(), values.size()); i++)
    stored[i] = reinterpret_cast<const std::byte*>(&numbers[i]);
  for (size_t first = 0; first < values.size(); first += numbers.size(), out += numbers.size() * stride) {
    const std::span some = values.subspan(first, std::min(numbers.size(), values.size() - first));
    finder_.find(some, numbers, first, outcome);
    unpack_(std::span(stored).first(some.size()), out, stride);
  }
}

}  // namespace feedline::flow
