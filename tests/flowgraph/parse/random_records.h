// Random records and features for the parsers' tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "flowgraph/example_writer.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::test {

using flow::FeatureKind;
using flow::FeatureSpec;

using Random = std::mt19937_64;

inline uint64_t below(Random& random, uint64_t n) { return random() % n; }

inline FeatureSpec feature(const std::string& key, DType dtype, FeatureKind kind = FeatureKind::fixed,
                           Shape shape = {}) {
  FeatureSpec spec;
  spec.name = spec.key = key;
  spec.dtype = dtype;
  spec.kind = kind;
  spec.shape = shape;
  return spec;
}

inline FeatureSpec with_default(FeatureSpec spec) {
  spec.has_default = true;
  for (int64_t i = 0; i < spec.shape.elements(); i++) {
    if (spec.dtype == DType::bytes) spec.default_bytes.push_back("default " + std::to_string(i));
    if (spec.dtype == DType::float32) spec.default_floats.push_back(0.5f + static_cast<float>(i));
    if (spec.dtype == DType::int64) spec.default_ints.push_back(-1 - i);
  }
  return spec;
}

/// Returns an int64, such that all widths of its varint are equally likely.
inline int64_t any_int(Random& random) {
  const uint64_t value = random() >> below(random, 64);
  return static_cast<int64_t>(below(random, 4) == 0 ? ~value : value);
}

inline const std::vector<std::string> keys = {"",
                                              "a",
                                              "b",
                                              "bb",
                                              "xyz",
                                              "image/encoded",
                                              "a key of more than sixteen bytes",
                                              std::string(70, 'k'),
                                              "\xff\xfe",
                                              std::string("\0x", 2)};

inline std::string unknown_field(Random& random, int depth = 0) {
  const uint32_t number =
      static_cast<uint32_t>(below(random, 3) == 0 ? 4 + below(random, 1u << 28) : 4 + below(random, 12));
  switch (below(random, 5)) {
    case 0:
      return wire::tag(number, 0) + wire::varint(random() >> below(random, 64), static_cast<int>(below(random, 2)));
    case 1:
      return wire::tag(number, 1) + wire::raw(random());
    case 2:
      return wire::delimited(number, std::string(below(random, 20), 'u'));
    case 3: {
      std::string inside;
      for (uint64_t n = below(random, 3); n != 0 && depth < 4; n--) inside += unknown_field(random, depth + 1);
      return wire::tag(number, 3) + inside + wire::tag(number, 4);
    }
    default:
      return wire::tag(number, 5) + wire::raw(static_cast<uint32_t>(random()));
  }
}

/// Writes records in which one choice in `oddity` is unusual.
struct Writer {
  Random& random;
  uint64_t oddity;  // one choice in this many is unusual

  bool odd() { return below(random, oddity) == 0; }
  std::string noise() { return odd() ? unknown_field(random) : ""; }
  std::string delimited(uint32_t number, const std::string& content) {
    return wire::tag(number, 2, odd() ? static_cast<int>(below(random, 4)) : 0) +
           wire::varint(content.size(), odd() ? static_cast<int>(below(random, 3)) : 0) + content;
  }
  std::string list(int kind, uint64_t count) {
    std::string out = noise();
    std::string run;
    const bool packed = below(random, 3) != 0;
    for (uint64_t i = 0; i < count; i++) {
      if (kind == 1) {
        out += delimited(1, std::string(odd() ? below(random, 300) : 3, 'v'));
        continue;
      }
      const std::string value =
          kind == 2 ? wire::raw(static_cast<uint32_t>(random())) : wire::varint(static_cast<uint64_t>(any_int(random)));
      if (packed && !odd()) {
        run += value;
      } else {
        if (!run.empty()) out += delimited(1, std::exchange(run, {}));
        out += wire::tag(1, kind == 2 ? 5 : 0) + value;
      }
      if (odd()) out += noise();
    }
    if (!run.empty() || (packed && kind != 1)) out += delimited(1, run);
    return out + noise();
  }
  std::string feature(int kind, uint64_t count) {
    if (odd()) return noise();
    std::string out = noise() + delimited(static_cast<uint32_t>(kind), list(kind, count));
    if (odd()) out += delimited(static_cast<uint32_t>(kind), list(kind, count));
    if (odd()) out += feature(1 + static_cast<int>(below(random, 3)), count);
    return out + noise();
  }
  /// A FeatureList.
  std::string steps(int kind, uint64_t count, uint64_t values) {
    std::string out = noise();
    for (uint64_t i = 0; i < count; i++)
      out += delimited(1, feature(kind, odd() ? below(random, 60) : values)) + noise();
    return out;
  }
  std::string entry(const std::string& key, const std::string& value) {
    const std::string k = delimited(1, key), v = delimited(2, value);
    std::string inside = odd() ? v + k : k + v;
    if (odd()) inside += noise() + (odd() ? k : v);
    if (odd()) inside = odd() ? k : v;
    return delimited(1, inside + noise());
  }
  /// A map of Features, or of FeatureLists, in field `field`.
  std::string map(uint32_t field, bool lists) {
    std::string entries, out;
    for (size_t i = 0; i < keys.size(); i++) {
      if (odd()) continue;
      const size_t which = odd() ? below(random, keys.size()) : i;
      const int kind = odd() ? 1 + static_cast<int>(below(random, 3)) : 1 + static_cast<int>(which % 3);
      const uint64_t count = odd() ? below(random, 40) : which % 4;
      const uint64_t number = odd() ? below(random, 40) : which / 2;
      entries += entry(keys[which], lists ? steps(kind, number, count) : feature(kind, count)) + noise();
      if (odd()) out += delimited(field, std::exchange(entries, {}));
    }
    return out + delimited(field, entries);
  }
  std::string example() { return noise() + map(1, false) + noise(); }
  std::string sequence_example() {
    const std::string context = map(1, false), lists = map(2, true);
    return noise() + (odd() ? lists + context + map(2, true) : context + lists) + noise();
  }
};

inline std::vector<FeatureSpec> random_features(Random& random) {
  std::vector<FeatureSpec> features;
  const bool bounded = below(random, 3) == 0;  // then the columns have room for max_values of each list
  for (uint64_t n = 1 + below(random, 12); n != 0; n--) {
    const size_t which = below(random, keys.size());
    const size_t kind = below(random, 8) == 0 ? below(random, 3) : which % 3;
    constexpr DType dtypes[] = {DType::bytes, DType::float32, DType::int64};
    FeatureSpec spec = feature(keys[which], dtypes[kind], static_cast<FeatureKind>(below(random, 4)));
    if (spec.kind == FeatureKind::fixed) {
      spec.shape = which % 4 == 1 ? Shape{} : Shape{static_cast<int64_t>(which % 4)};
      if (below(random, 2) == 0) spec = with_default(spec);
    } else if (spec.kind == FeatureKind::fixed_sequence) {
      spec.shape = Shape{1 + static_cast<int64_t>(below(random, 2))};
    }
    if (bounded || below(random, 4) == 0) spec.max_values = static_cast<int64_t>(below(random, 6));
    if (below(random, 4) == 0) spec.length = 3;
    if (spec.kind == FeatureKind::fixed)
      spec.max_values = -1;
    else
      spec.required = below(random, 4) == 0;
    features.push_back(spec);
  }
  return features;
}

/// Returns features of which most are in feature lists. Those of kind fixed have the shape that Writer gives them.
inline std::vector<FeatureSpec> random_sequence_features(Random& random) {
  std::vector<FeatureSpec> features = random_features(random);
  for (FeatureSpec& spec : features) {
    spec.where = below(random, 4) == 0 ? flow::Where::context : flow::Where::feature_list;
    if (!spec.in_list() || spec.kind != FeatureKind::fixed) continue;
    const auto which = static_cast<int64_t>(std::find(keys.begin(), keys.end(), spec.key) - keys.begin());
    FeatureSpec fixed =
        feature(spec.key, spec.dtype, spec.kind, {std::max<int64_t>(1, which / 2), std::max<int64_t>(1, which % 4)});
    fixed.where = spec.where;
    fixed.length = spec.length;
    spec = spec.has_default ? with_default(fixed) : fixed;
  }
  return features;
}

inline void mutate(Random& random, std::string& record) {
  for (uint64_t n = 1 + below(random, 3); n != 0 && !record.empty(); n--) {
    const size_t at = below(random, record.size());
    switch (below(random, 5)) {
      case 0:
        record[at] = static_cast<char>(random());
        break;
      case 1:
        record[at] = static_cast<char>(record[at] ^ (1 << below(random, 8)));
        break;
      case 2:
        record.insert(at, 1, static_cast<char>(random()));
        break;
      case 3:
        record.erase(at, 1);
        break;
      default:
        record.resize(at);
    }
  }
}

}  // namespace feedline::test
