#include "flowgraph/rows/vocabulary_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/format_count.h"
#include "feedline/error.h"

namespace feedline::flow {

VocabularyWriter::VocabularyWriter(RowFinder finder, const unpack::UnpackSpec& unpack)
    : finder_(std::move(finder)), unpack_(unpack) {
  constexpr uint64_t most = uint64_t{1} << 31;
  const Table& names = *finder_.table;
  if (const uint64_t buckets = finder_.key.unknown_buckets; unpack.out == DType::int32 && names.rows() + buckets > most)
    throw Error(Category::bad_pipeline,
                fmt::format("{} and {} of vocabulary.unknown_buckets have numbers that do not fit into INT32; lower "
                            "vocabulary.unknown_buckets, or write the dtype INT64",
                            format_count(names.rows(), "name"), format_count(buckets, "bucket")),
                Place::of_file(names.spec().keys_path));
}

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
