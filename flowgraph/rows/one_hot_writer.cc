#include "flowgraph/rows/one_hot_writer.h"

#include <fmt/format.h>

#include <cstring>

#include "unpack/unpack.h"

namespace feedline::flow {

OneHotWriter::OneHotWriter(const unpack::UnpackSpec& unpack)
    : classes_(unpack.shape.elements()),
      element_(size_of(unpack.out)),
      cold_(static_cast<size_t>(classes_) * element_),
      hot_(cold_.size()) {
  const unpack::Unpacker unpacker(unpack);
  for (auto [row, byte] : {std::pair{&cold_, std::byte{0}}, {&hot_, std::byte{1}}}) {
    const std::vector<std::byte> bytes(static_cast<size_t>(classes_), byte);
    const std::byte* const begin = bytes.data();
    unpacker({&begin, 1}, row->data());
  }
}

void OneHotWriter::write(std::span<const std::span<const std::byte>> values, const RowNumbers&, std::byte* out,
                         size_t stride, std::span<std::byte>, RowOutcome& outcome) const {
  for (size_t row = 0; row < values.size(); row++, out += stride) {
    int64_t number;
    std::memcpy(&number, values[row].data(), sizeof number);
    if (number < 0 || number >= classes_) {
      outcome.failed.push_back({static_cast<uint32_t>(row), Category::wrong_value, -1,
                                fmt::format("the class is {}, but one_hot.classes is {}, which allows 0 to {}; correct "
                                            "one_hot.classes, or the data",
                                            number, classes_, classes_ - 1)});
      continue;
    }
    const size_t at = static_cast<size_t>(number) * element_;
    std::memcpy(out, cold_.data(), cold_.size());
    std::memcpy(out + at, hot_.data() + at, element_);
  }
}

}  // namespace feedline::flow
