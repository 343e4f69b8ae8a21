#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tool/convert/convert.h"
#include "tool/convert/example_writer.h"
#include "tool/convert/npy_reader.h"

namespace feedline::tool {
namespace {

/// How the elements of a NumPy type are stored in records.
struct Stored {
  const char* npy;    // the type as NumPy writes it, without byte order
  Kind kind;          // bytes_list: as the bytes of the row
  const char* dtype;  // the name of the type in decode_raw, if it is stored as bytes
};
constexpr Stored stored[] = {
    {"i8", Kind::int64_list, ""},       {"f4", Kind::float_list, ""},        {"f8", Kind::float_list, ""},
    {"u1", Kind::bytes_list, "UINT8"},  {"b1", Kind::bytes_list, "BOOL"},    {"i1", Kind::bytes_list, "INT8"},
    {"u2", Kind::bytes_list, "UINT16"}, {"i2", Kind::bytes_list, "INT16"},   {"u4", Kind::bytes_list, "UINT32"},
    {"i4", Kind::bytes_list, "INT32"},  {"f2", Kind::bytes_list, "FLOAT16"},
};

/// Returns the T at `at`, which need not be aligned.
template <typename T>
T load(const std::byte* at, bool big_endian) {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), at, sizeof(T));
  if (big_endian) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

/// One array that becomes a feature.
class NpyColumn {
 public:
  NpyColumn(std::string key, const std::string& path) : key_(std::move(key)), array_(path) {
    const auto found =
        std::find_if(std::begin(stored), std::end(stored), [&](const Stored& s) { return array_.type() == s.npy; });
    if (found == std::end(stored))
      refuse_input(path, fmt::format("the elements have the type '{}', which a feature cannot hold; save the array as "
                                     "bool, int8 to int64, uint8 to uint32, or float16 to float64",
                                     array_.descr()));
    stored_ = *found;
  }

  const NpyReader& array() const { return array_; }
  /// Returns about how many bytes the feature takes in a record.
  uint64_t record_bytes() const { return array_.row_bytes() / (array_.type() == "f8" ? 2 : 1) + key_.size() + 24; }

  /// Sets feature number `feature` of the record to the next row of the array. `number` is the number of this row.
  void write_next(ExampleWriter& example, size_t feature, uint64_t number) {
    const auto row = array_.next();
    const bool big = array_.byte_order() == '>';
    if (stored_.kind == Kind::bytes_list) return example.set_bytes(feature, row);
    const size_t size = array_.element_bytes();
    ints_.clear();
    floats_.clear();
    for (size_t at = 0; at < row.size(); at += size) {
      if (stored_.kind == Kind::int64_list)
        ints_.push_back(load<int64_t>(&row[at], big));
      else
        floats_.push_back(size == 4 ? load<float>(&row[at], big) : rounded(load<double>(&row[at], big), number));
    }
    stored_.kind == Kind::int64_list ? example.set_ints(feature, ints_) : example.set_floats(feature, floats_);
  }

  void check_unchanged() const { array_.check_unchanged(); }

  TextFeature text() const {
    TextFeature text{.key = key_, .kind = stored_.kind};
    const std::string shape = fmt::format("{}", fmt::join(array_.row_shape(), ", "));
    if (stored_.kind != Kind::bytes_list) {
      text.shape = array_.row_shape();
      if (array_.type() == "f8") text.remark = "float64 in the array, rounded to float32";
      return text;
    }
    text.length = static_cast<int64_t>(array_.row_bytes());
    text.made = {fmt::format("decode_raw {{ stored: {}{}{} }}", stored_.dtype,
                             array_.byte_order() == '>' ? " big_endian: true" : "",
                             shape.empty() ? "" : " shape: [" + shape + "]")};
    text.remark = fmt::format("rows of {} [{}]", stored_.dtype, shape);
    return text;
  }

 private:
  float rounded(double value, uint64_t row) const {
    const std::optional<float> found = to_float32(value);
    if (!found)
      refuse_input(
          array_.path(),
          fmt::format("row {} has {}, which is not in the range of float32; scale or clip the array", row, value));
    return *found;
  }

  const std::string key_;
  NpyReader array_;
  Stored stored_{};
  std::vector<int64_t> ints_;
  std::vector<float> floats_;
};

}  // namespace

Converted convert_npy(const std::vector<std::pair<std::string, std::string>>& arrays, const ConvertTarget& target) {
  std::vector<NpyColumn> columns;
  std::vector<std::string> keys;
  for (const auto& [key, path] : arrays) {
    columns.emplace_back(key, path);
    keys.push_back(key);
  }
  const NpyReader& first = columns.front().array();
  uint64_t record_bytes = 0;
  for (const NpyColumn& column : columns) {
    if (column.array().rows() != first.rows())
      refuse_input(column.array().path(),
                   fmt::format("has {} rows, but {} has {} rows; all arrays need the same number of rows",
                               column.array().rows(), first.path(), first.rows()));
    record_bytes += column.record_bytes();
  }
  if (first.rows() == 0) refuse_input(first.path(), "has no rows");

  OutputFolder out(target.folder);
  Converted result;
  ExampleWriter example(keys);
  const uint64_t bytes = first.rows() * record_bytes;
  Progress progress("writing", bytes);
  ShardWriter writer(out, target, "data", first.rows(), bytes, progress);
  for (uint64_t row = 0; row < first.rows(); row++) {
    for (size_t f = 0; f < columns.size(); f++) columns[f].write_next(example, f, row);
    writer.write(example.finish(), first.path());
  }
  for (const NpyColumn& column : columns) column.check_unchanged();
  result.sets.push_back(writer.finish());
  progress.done();

  std::vector<TextFeature> features;
  std::vector<std::string> comments;
  for (const NpyColumn& column : columns) {
    features.push_back(column.text());
    comments.push_back(
        fmt::format("{}: rows of {}", text_literal(features.back().key), text_literal(column.array().path())));
  }
  publish(out, result, comments, features);
  return result;
}

}  // namespace feedline::tool
