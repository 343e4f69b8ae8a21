// The inputs of the parsers' fuzz targets: a byte that gives the number of features, 3 bytes for each feature, and then
// records, each after its size (a byte; 0xff: up to the end). There are several records because the parsers learn from
// one for the next. All of them are parsed several times because the Example parser learns the shape of a whole record
// when its size comes again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "flowgraph/pipeline/spec.h"

namespace feedline::test {

/// Returns the feature that 3 bytes describe. With `sequences` some features are in feature lists.
inline flow::FeatureSpec feature_of(const uint8_t* bytes, bool sequences) {
  flow::FeatureSpec spec;
  spec.name = spec.key = std::string(bytes[0] % 4 == 0 ? 0 : 1, static_cast<char>('a' + bytes[0] / 4 % 8));
  if (sequences) spec.where = (bytes[0] & 0x80) == 0 ? flow::Where::feature_list : flow::Where::context;
  constexpr DType dtypes[] = {DType::bytes, DType::float32, DType::int64};
  spec.dtype = dtypes[bytes[1] % 3];
  spec.kind = static_cast<flow::FeatureKind>(bytes[1] / 3 % 4);
  const int64_t count = bytes[2] % 4;
  if (spec.kind == flow::FeatureKind::fixed) {
    if (count != 1) spec.shape = Shape{count};
    if (spec.in_list()) spec.shape = Shape{1 + count % 2, 1 + count / 2};
    spec.has_default = (bytes[1] & 0x80) != 0;
    for (int64_t i = 0; spec.has_default && i < spec.shape.elements(); i++) {
      if (spec.dtype == DType::bytes) spec.default_bytes.push_back("default");
      if (spec.dtype == DType::float32) spec.default_floats.push_back(0.5f);
      if (spec.dtype == DType::int64) spec.default_ints.push_back(-1);
    }
  } else {
    if (spec.kind == flow::FeatureKind::fixed_sequence && count > 1) spec.shape = Shape{count};
    if (bytes[2] & 0x40) spec.max_values = bytes[2] / 4 % 8;
    spec.required = (bytes[1] & 0x80) != 0;
  }
  if (bytes[2] & 0x80) spec.length = bytes[2] / 4 % 8;
  return spec;
}

struct ParserInput {
  ParserInput(const uint8_t* data, size_t size, bool sequences) {
    const uint8_t* end = data + size;
    const int count = data != end ? *data++ % 8 : 0;
    for (int i = 0; i < count && end - data >= 3; i++, data += 3) features.push_back(feature_of(data, sequences));
    while (data != end) {
      size_t length = *data++;
      if (length == 0xff || length > static_cast<size_t>(end - data)) length = static_cast<size_t>(end - data);
      records.emplace_back(reinterpret_cast<const char*>(data), length);
      data += length;
    }
    const std::vector<std::string> once = records;
    for (int again = 0; again < 3; again++) records.insert(records.end(), once.begin(), once.end());
  }

  std::vector<flow::FeatureSpec> features;
  std::vector<std::string> records;
};

}  // namespace feedline::test
