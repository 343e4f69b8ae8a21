// Compares the Example parser with libprotobuf, for any records and any requested features.
//
// An input is a byte that gives the number of features, 3 bytes for each feature, and then records, each after its size
// (a byte; 0xff: up to the end). There are several records because the parser learns from one for the next. All of them
// are parsed several times because the parser learns the shape of a whole record when its size comes again.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "flowgraph/parse/example_reference.h"

namespace {

using feedline::DType;
using feedline::Shape;
using feedline::flow::FeatureKind;
using feedline::flow::FeatureSpec;

FeatureSpec feature_of(const uint8_t* bytes) {
  FeatureSpec spec;
  spec.name = spec.key = std::string(bytes[0] % 4 == 0 ? 0 : 1, static_cast<char>('a' + bytes[0] / 4 % 8));
  constexpr DType dtypes[] = {DType::bytes, DType::float32, DType::int64};
  spec.dtype = dtypes[bytes[1] % 3];
  spec.kind = static_cast<FeatureKind>(bytes[1] / 3 % 4);
  const int64_t count = bytes[2] % 4;
  if (spec.kind == FeatureKind::fixed) {
    if (count != 1) spec.shape = Shape{count};
    spec.has_default = (bytes[1] & 0x80) != 0;
    for (int64_t i = 0; spec.has_default && i < spec.shape.elements(); i++) {
      if (spec.dtype == DType::bytes) spec.default_bytes.push_back("default");
      if (spec.dtype == DType::float32) spec.default_floats.push_back(0.5f);
      if (spec.dtype == DType::int64) spec.default_ints.push_back(-1);
    }
  } else {
    if (spec.kind == FeatureKind::fixed_sequence && count > 1) spec.shape = Shape{count};
    if (bytes[2] & 0x40) spec.max_values = bytes[2] / 4 % 8;
  }
  if (bytes[2] & 0x80) spec.length = bytes[2] / 4 % 8;
  return spec;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint8_t* end = data + size;
  std::vector<FeatureSpec> features;
  const int count = data != end ? *data++ % 8 : 0;
  for (int i = 0; i < count && end - data >= 3; i++, data += 3) features.push_back(feature_of(data));
  std::vector<std::string> records;
  while (data != end) {
    size_t length = *data++;
    if (length == 0xff || length > static_cast<size_t>(end - data)) length = static_cast<size_t>(end - data);
    records.emplace_back(reinterpret_cast<const char*>(data), length);
    data += length;
  }
  const std::vector<std::string> once = records;
  for (int again = 0; again < 3; again++) records.insert(records.end(), once.begin(), once.end());
  const std::string difference = feedline::test::compare_with_protobuf(features, records);
  if (!difference.empty()) {
    std::fprintf(stderr, "%s\n", difference.c_str());
    std::abort();
  }
  return 0;
}
