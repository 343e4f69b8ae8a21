#include "flowgraph/rows/one_hot_writer.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/load.h"
#include "unpack/unpack.h"

namespace feedline::flow {

OneHotWriter::OneHotWriter(const OneHotRows& rows)
    : classes_(rows.unpack.shape.elements()),
      ignores_outside_(rows.ignores_outside),
      element_(size_of(rows.unpack.out)),
      cold_(static_cast<size_t>(classes_) * element_),
      hot_(cold_.size()) {
  const unpack::Unpacker unpacker(rows.unpack);
  for (const auto& [row, value] : {std::pair{&cold_, rows.off}, {&hot_, rows.on}}) {
    const std::vector<double> values(static_cast<size_t>(classes_), value);
    const auto* const begin = reinterpret_cast<const std::byte*>(values.data());
    unpacker({&begin, 1}, row->data());
  }
}

void OneHotWriter::write(std::span<const std::span<const std::byte>> values, const RowNumbers&, std::byte* out,
                         size_t stride, std::span<std::byte>, RowOutcome& outcome) const {
  for (size_t row = 0; row < values.size(); row++, out += stride) {
    std::memcpy(out, cold_.data(), cold_.size());
    for (std::span left = values[row]; !left.empty(); left = left.subspan(sizeof(int64_t))) {
      const auto number = load<int64_t>(left.data());
      if (number >= 0 && number < classes_) {
        const size_t at = static_cast<size_t>(number) * element_;
        std::memcpy(out + at, hot_.data() + at, element_);
      } else if (!ignores_outside_) {
        outcome.failed.push_back(
            {static_cast<uint32_t>(row), Category::wrong_value, -1,
             fmt::format("the class is {}, but one_hot.classes is {}, which allows 0 to {}; correct "
                         "one_hot.classes or the data, or write one_hot.ignore_outside",
                         number, classes_, classes_ - 1)});
        break;
      }
    }
  }
}

}  // namespace feedline::flow
