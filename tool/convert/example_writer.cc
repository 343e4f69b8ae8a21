#include "tool/convert/example_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "feedline/error.h"

namespace feedline::tool {

proto::Feature& ExampleWriter::begin(size_t feature) {
  if (!set_[feature]) {
    auto& entry = *record_.mutable_features()->add_feature();
    entry.set_key(keys_[feature]);
    set_[feature] = entry.mutable_value();
  }
  return *set_[feature];
}

void ExampleWriter::set_bytes(size_t feature, std::span<const std::string_view> values) {
  auto& list = *begin(feature).mutable_bytes_list();
  list.clear_value();
  for (const std::string_view value : values) list.add_value(value.data(), value.size());
}

void ExampleWriter::set_floats(size_t feature, std::span<const float> values) {
  begin(feature).mutable_float_list()->mutable_value()->Assign(values.begin(), values.end());
}

void ExampleWriter::set_ints(size_t feature, std::span<const int64_t> values) {
  begin(feature).mutable_int64_list()->mutable_value()->Assign(values.begin(), values.end());
}

std::span<const std::byte> ExampleWriter::finish() {
  auto& entries = *record_.mutable_features()->mutable_feature();
  std::sort(entries.pointer_begin(), entries.pointer_end(), [](auto* a, auto* b) { return a->key() < b->key(); });
  const size_t bytes = record_.ByteSizeLong();
  if (bytes <= INT_MAX) record_.SerializeToString(&bytes_);
  record_.Clear();
  set_.assign(set_.size(), nullptr);
  if (bytes > INT_MAX)
    throw Error(Category::bad_pipeline,
                fmt::format("a record would have {} bytes, but an Example has at most {}", bytes, INT_MAX));
  return std::as_bytes(std::span(bytes_));
}

}  // namespace feedline::tool
