// The data of the fuzz target `feed`: records whose structure is drawn, the files that hold them, and what the documents
// say that a feed makes of each record. It is written without regard to speed, and without the library's parser.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/audit.h"
#include "draw.h"
#include "feedline/error.h"
#include "feedline/records.h"
#include "flowgraph/example_writer.h"
#include "flowgraph/pipeline/spec.h"
#include "io/records/crc32c.h"

namespace feedline::test {

using flow::FeatureKind;
using flow::FeatureSpec;
using Values = std::vector<std::string>;  // numbers as they lie in memory

/// What a record holds of a feature: one step, or if it is in a list any number of them.
struct Held {
  struct Step {
    DType dtype = DType::unset;  // unset: it has no kind, and no values
    Values values = {};
  };
  bool there = true;
  std::vector<Step> steps = {};
};

struct DrawnRecord {
  int64_t id = 0, n = 0;   // the first two features, but for RAW
  std::vector<Held> held;  // by feature
  bool malformed = false;
  std::string payload = {};
  uint32_t file = 0;
  uint64_t offset = 0;
  bool counted = true;       // it was good when the data was counted
  int64_t number = -1;       // of the good records of its source
  bool damaged = false;      // it was damaged afterwards
  bool may_be_lost = false;  // what its file is compressed to was damaged afterwards
};

/// Returns feature number `number` after the first two: any if `dense` is false, else one that makes a dense output.
inline FeatureSpec drawn_feature(Draw& draw, size_t number, bool sequence, bool dense) {
  FeatureSpec feature;
  feature.name = feature.key = std::string("abcde").substr(number, 1);
  feature.dtype = draw.one_of({DType::int64, DType::float32, DType::bytes});
  if (!dense) feature.kind = static_cast<FeatureKind>(draw.below(4));
  if (sequence) feature.where = draw.coin() ? flow::Where::feature_list : flow::Where::context;
  const bool fixed = feature.kind == FeatureKind::fixed, padded = feature.kind == FeatureKind::fixed_sequence;
  if (fixed || padded) {
    const uint64_t least = feature.in_list() || padded ? 1 : 0;
    std::vector<int64_t> axes(feature.in_list() && fixed ? 1 + draw.below(2) : draw.below(3));
    for (int64_t& axis : axes) axis = static_cast<int64_t>(least + (1 + draw.below(4 - least)) % (4 - least));
    feature.shape = Shape(axes);
  }
  if (!fixed && draw.coin()) feature.max_values = static_cast<int64_t>(1 + draw.below(8));
  if (feature.dtype == DType::bytes && (dense || draw.coin())) feature.length = static_cast<int64_t>(1 + draw.below(9));
  if (!fixed) feature.required = draw.coin();
  if ((fixed && feature.shape.elements() > 0 && feature.shape.elements() < 9 && draw.coin()) ||
      (padded && draw.coin())) {
    feature.has_default = true;
    const int64_t count = fixed ? feature.shape.elements() : 1;
    const size_t length = feature.length >= 0 ? static_cast<size_t>(feature.length) : draw.below(12);
    for (int64_t i = 0; i < count; i++) {
      if (feature.dtype == DType::bytes) feature.default_bytes.emplace_back(length, static_cast<char>('A' + i));
      if (feature.dtype == DType::float32) feature.default_floats.push_back(static_cast<float>(i) - 2.5f);
      if (feature.dtype == DType::int64) feature.default_ints.push_back(i - 3);
    }
  }
  return feature;
}

/// Returns the default of a feature, value by value.
inline Values defaults_of(const FeatureSpec& feature) {
  Values values = feature.default_bytes;
  for (const float value : feature.default_floats) values.push_back(wire::raw(value));
  for (const int64_t value : feature.default_ints) values.push_back(wire::raw(value));
  return values;
}

/// Returns the feature as pipeline text.
inline std::string text_of(const FeatureSpec& feature) {
  constexpr const char* kinds[] = {"FIXED", "VARIABLE", "FIXED_SEQUENCE", "RAGGED"};
  std::string text = "feature { name: '" + feature.name + "' dtype: " + std::string(name(feature.dtype)) +
                     " kind: " + kinds[static_cast<size_t>(feature.kind)];
  if (feature.in_list()) text += " where: FEATURE_LIST";
  for (const int64_t axis : feature.shape) text += " shape: " + std::to_string(axis);
  if (feature.length >= 0) text += " length: " + std::to_string(feature.length);
  if (feature.max_values >= 0) text += " max_values: " + std::to_string(feature.max_values);
  if (feature.required) text += " required: true";
  for (const std::string& value : feature.default_bytes) text += " default_value { bytes_value: '" + value + "' }";
  for (const float value : feature.default_floats)
    text += " default_value { float32_value: " + std::to_string(value) + " }";
  for (const int64_t value : feature.default_ints)
    text += " default_value { int64_value: " + std::to_string(value) + " }";
  return text + " } ";
}

/// Returns a value that only this key has, most likely.
inline std::string value_of(DType dtype, uint64_t key, size_t length) {
  const uint64_t bits = mix64(key) >> mix64(~key) % 64;  // varints of every size
  if (dtype == DType::int64) return wire::raw(bits);
  if (dtype == DType::float32) return wire::raw(static_cast<float>(static_cast<int64_t>(bits)));
  std::string bytes;
  for (size_t i = 0; bytes.size() < length; i++) bytes += wire::raw(mix64(key + (i << 32)));
  bytes.resize(length);
  return bytes;
}

/// Returns what a record has of a feature. Most of what is drawn fits the feature, and some is just beyond it.
inline Held drawn_held(Draw& draw, const FeatureSpec& feature, uint64_t key) {
  Held held;
  const bool odd = draw.below(8) == 7;
  const auto near = [&](uint64_t bound) { return static_cast<size_t>(std::min<uint64_t>(draw.near(bound), 40)); };
  if (odd && draw.coin()) held.there = false;
  const auto elements = static_cast<size_t>(feature.shape.elements());
  const bool fixed = feature.kind == FeatureKind::fixed;
  const bool shaped = fixed || feature.kind == FeatureKind::fixed_sequence;
  const bool bounded = feature.max_values >= 0 && draw.below(4) == 3;
  const uint64_t size = draw.below(8);  // 6: many values, which may not be planned for; 7: and their bytes are few
  const size_t several = bounded    ? near(static_cast<uint64_t>(feature.max_values) / (shaped ? elements : 1))
                         : size < 6 ? size % 4
                                    : draw.below(41);
  size_t steps = 1, each = fixed ? elements : shaped ? several * elements : several;
  if (feature.in_list()) {
    steps = fixed ? static_cast<size_t>(feature.shape[0]) : several;
    each = fixed ? elements / steps : shaped ? elements : draw.below(3);
    if (odd && draw.coin()) steps = near(steps);
  }
  held.steps.assign(steps, {feature.dtype});
  const size_t strange = odd ? draw.below(steps + 1) : steps;
  for (size_t s = 0; s < steps; s++) {
    Held::Step& step = held.steps[s];
    size_t count = each;
    if (s == strange && draw.coin()) count = near(each);
    if (s == strange && draw.below(4) == 3)
      step.dtype = draw.one_of({DType::unset, DType::int64, DType::float32, DType::bytes});
    for (size_t v = 0; v < count && step.dtype != DType::unset; v++) {
      size_t length = feature.length >= 0 ? static_cast<size_t>(feature.length) : 0;
      if (step.dtype == DType::bytes && (feature.length < 0 || (s == strange && v == 0)))
        length = size == 7 ? 0 : draw.below(16) == 15 ? near(4096 / 8) * 8 : near(length);
      if (size == 7 && step.dtype == DType::int64)
        step.values.push_back(wire::raw(static_cast<int64_t>(v)));
      else
        step.values.push_back(value_of(step.dtype, key << 16 ^ s << 8 ^ v, length));
    }
  }
  return held;
}

inline std::string message_of(const Held::Step& step, bool packed) {
  std::vector<float> floats;
  std::vector<int64_t> ints;
  const auto as = [](const std::string& value, auto number) {
    std::memcpy(&number, value.data(), sizeof number);
    return number;
  };
  for (const std::string& value : step.values) {
    if (step.dtype == DType::float32) floats.push_back(as(value, float{}));
    if (step.dtype == DType::int64) ints.push_back(as(value, int64_t{}));
  }
  return step.dtype == DType::bytes     ? wire::bytes_feature(step.values)
         : step.dtype == DType::float32 ? wire::float_feature(floats, packed)
         : step.dtype == DType::int64   ? wire::int64_feature(ints, packed)
                                        : "";
}

/// Returns the record as an Example, or as a SequenceExample.
inline std::string payload_of(const std::vector<FeatureSpec>& features, const DrawnRecord& record, bool sequence) {
  std::string context, lists;
  for (size_t f = 0; f < features.size(); f++) {
    const Held& held = record.held[f];
    if (!held.there) continue;
    std::string steps;
    for (const Held::Step& step : held.steps) {
      const std::string message = message_of(step, (record.id + static_cast<int64_t>(f)) % 5 != 0);
      steps += features[f].in_list() ? wire::delimited(1, message) : message;
    }
    (features[f].in_list() ? lists : context) += wire::entry(features[f].key, steps);
  }
  std::string payload = wire::delimited(1, context) + (sequence ? wire::delimited(2, lists) : "");
  if (record.malformed) payload += "\x0a\x7f";  // 127 bytes that are not there
  return payload;
}

/// Returns whether the record has none of the feature.
inline bool lacks(const FeatureSpec& feature, const Held& held) {
  return !held.there || (!feature.in_list() && held.steps[0].dtype == DType::unset);
}

/// Returns whether a record's values are as docs/pipeline.md wants them.
inline bool fits(const FeatureSpec& feature, const Held& held) {
  if (lacks(feature, held)) return feature.kind == FeatureKind::fixed ? feature.has_default : !feature.required;
  const bool fixed = feature.kind == FeatureKind::fixed, padded = feature.kind == FeatureKind::fixed_sequence;
  const auto elements = static_cast<size_t>(feature.shape.elements());
  size_t all = 0;
  for (const Held::Step& step : held.steps) {
    all += step.values.size();
    const bool no_kind = feature.in_list() && step.dtype == DType::unset;
    if (step.dtype != feature.dtype && !(no_kind && feature.nested())) return false;
    if (feature.in_list() && fixed && step.values.size() != elements / static_cast<size_t>(feature.shape[0]))
      return false;
    if (feature.in_list() && padded && step.values.size() != elements) return false;
    for (const std::string& value : step.values)
      if (feature.length >= 0 && value.size() != static_cast<size_t>(feature.length)) return false;
  }
  if (fixed)
    return all == elements && (!feature.in_list() || held.steps.size() == static_cast<size_t>(feature.shape[0]));
  const auto most =
      feature.max_values >= 0 ? static_cast<size_t>(feature.max_values) : std::numeric_limits<size_t>::max();
  return all <= most && (!padded || all % elements == 0) && (!feature.nested() || held.steps.size() <= most);
}

/// Returns the values of a good row, step by step.
inline std::vector<Values> steps_of(const FeatureSpec& feature, const Held& held) {
  std::vector<Values> steps;
  if (!lacks(feature, held))
    for (const Held::Step& step : held.steps) steps.push_back(step.values);
  else if (feature.kind == FeatureKind::fixed)
    steps.push_back(defaults_of(feature));
  return steps;
}
inline Values flat(const std::vector<Values>& steps) {
  Values all;
  for (const Values& step : steps) all.insert(all.end(), step.begin(), step.end());
  return all;
}
inline std::string joined(const Values& values) {
  std::string all;
  for (const std::string& value : values) all += value;
  return all;
}

inline uint32_t crc_of(std::string_view bytes) { return io::mask_crc(io::crc32c(std::as_bytes(std::span(bytes)))); }
inline std::string frame_of(const std::string& payload) {
  const std::string length = wire::raw(uint64_t{payload.size()});
  return length + wire::raw(crc_of(length)) + payload + wire::raw(crc_of(payload));
}

/// Returns the bytes as a gzip or zlib stream of many deflate blocks. At level 0 its size depends only on that of
/// `bytes`.
inline std::string compressed(const std::string& bytes, Compression format, int level) {
  if (format == Compression::none) return bytes;
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, format == Compression::gzip ? 31 : 15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    std::abort();
  constexpr size_t of_block = 512;
  std::string out(2 * bytes.size() + bytes.size() / of_block * 20 + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  for (size_t left = bytes.size(); left > of_block; left -= of_block) {
    stream.avail_in = of_block;
    if (deflate(&stream, Z_SYNC_FLUSH) != Z_OK) std::abort();
  }
  stream.avail_in = static_cast<uInt>(bytes.data() + bytes.size() - reinterpret_cast<const char*>(stream.next_in));
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace feedline::test
