// Writes Examples, SequenceExamples and RAW records by recipes that a fuzzing engine makes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/audit.h"
#include "draw.h"
#include "flowgraph/example_writer.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::test {

/// Returns one of 16 keys. Their sizes are those at which the header of an entry, the width of a length, or the way in
/// which a key is hashed changes.
inline std::string drawn_key(Draw& draw) {
  constexpr size_t sizes[] = {1, 1, 0, 1, 1, 4, 8, 9, 17, 53, 54, 55, 58, 59, 70, 128};
  const uint64_t number = draw.below(16);
  return std::string(sizes[number], number == 3 ? '\xff' : static_cast<char>('a' + number));
}

/// Returns a number of values, steps or bytes: mostly a small one, or one from which on a length has more bytes or a
/// kernel is left.
inline int64_t drawn_size(Draw& draw) {
  constexpr int64_t bounds[] = {7, 8, 30, 31, 32, 61, 62, 122, 123, 124, 4000, 4001};
  const uint64_t number = draw.below(64);
  return number < 48 ? static_cast<int64_t>((number + 1) % 6) : bounds[number % 12];
}

/// Writes one record. Where the recipe says nothing, or its bytes have run out, the record is as writers write it, and
/// fits the features.
class RecordWriter {
 public:
  /// The values of the record follow from `seed`.
  RecordWriter(const std::vector<flow::FeatureSpec>& features, std::string_view recipe, uint64_t seed)
      : features_(features),
        draw_(reinterpret_cast<const uint8_t*>(recipe.data()), recipe.size()),
        seed_(mix64(seed)) {}

  std::string record(flow::RecordType type) {
    if (type == flow::RecordType::raw)
      return std::string(near(static_cast<uint64_t>(std::max<int64_t>(0, features_[0].length))), 'r');
    std::string record = unknown_field(deepest);
    const bool sequence = type == flow::RecordType::sequence_example;
    const uint64_t order = sequence ? draw_.below(4) : 0;
    if (order == 1 || order == 2) record += map(2, true);
    record += map(1, false);
    if (order == 3) record += map(1, false);
    if (sequence && order != 1) record += map(2, true);
    return record + unknown_field(deepest);
  }

 private:
  static constexpr size_t longest = 17 << 10;  // bytes after which a message gets no more values
  static constexpr uint64_t deepest = 100;     // levels of messages and groups that may be opened in a record

  /// Returns `usual`, or a number that a comparison with it should be tried with.
  uint64_t near(uint64_t usual) {
    if (draw_.below(4) != 3) return usual;
    const uint64_t number = draw_.near(usual);
    return number <= usual + 300 ? number : number % (usual + 2);
  }

  /// Returns a field of the message; perhaps its tag or its length is longer than it need be, or a lie.
  std::string delimited(uint32_t number, const std::string& content) {
    const uint64_t odd = draw_.below(64);
    const int padding = odd == 61 || odd == 62 ? static_cast<int>(1 + draw_.below(9)) : 0;
    const uint64_t size = odd == 63 ? draw_.near(content.size()) : content.size();
    return wire::tag(number, 2, odd == 61 ? padding : 0) + wire::varint(size, odd == 62 ? padding : 0) + content;
  }

  /// Returns nothing, or a field that no message has. `depth` is how many levels may be opened where it stands.
  std::string unknown_field(uint64_t depth) {
    const uint64_t type = draw_.below(32);
    if (type < 24) return "";
    const auto number = static_cast<uint32_t>(draw_.coin() ? draw_.near(uint64_t{1} << 29) : 4 + draw_.below(28));
    switch (type % 8) {
      case 0: {
        const auto value = draw_.any<uint64_t>();
        return wire::tag(number, 0) + wire::varint(value, static_cast<int>(draw_.below(4)));
      }
      case 1:
        return wire::tag(number, 1) + std::string(near(8), '1');
      case 2:
        return delimited(number, std::string(draw_.below(256), 'u'));
      case 5:
        return wire::tag(number, 5) + std::string(near(4), '5');
      case 6:
      case 7:
        return wire::tag(number, static_cast<uint32_t>(type % 8));
      default: {  // groups in groups; 4: and one that ends as another
        std::string begin, end;
        for (uint64_t levels = near(draw_.coin() ? depth : 1); levels != 0; levels--) {
          begin += wire::tag(number, 3);
          end += wire::tag(number, 4);
        }
        if (type % 8 == 4) {
          begin += wire::tag(number, 3);
          end.insert(0, wire::tag(number + 1, 4));
        }
        return begin + unknown_field(0) + end;
      }
    }
  }

  /// Returns a BytesList, FloatList or Int64List.
  std::string list(DType dtype, uint64_t count, int64_t length, uint64_t depth) {
    const uint64_t form = draw_.below(8);  // up to 3, all values are in one run
    const bool one_by_one = form == 4, runs_between = form == 5, padded = form == 6, cut = form == 7;
    std::string out = unknown_field(depth), run;
    if (dtype == DType::bytes) {
      const auto size = static_cast<uint64_t>(length >= 0 ? length : drawn_size(draw_)), last = near(size);
      for (uint64_t i = 0; i < count && out.size() < longest; i++)
        out += wire::delimited(1, std::string(i + 1 == count ? last : size, static_cast<char>(mix64(seed_++))));
      return out + unknown_field(depth);
    }
    const uint64_t width = dtype == DType::int64 ? draw_.below(11) : 0;  // bytes of a varint; 0: any
    for (uint64_t i = 0; i < count && out.size() + run.size() < longest; i++) {
      const uint64_t random = mix64(seed_++);
      const uint64_t bits = width == 0 ? random % 64 + 1 : std::min<uint64_t>(7 * width, 64);
      const std::string value = dtype == DType::float32
                                    ? wire::raw(static_cast<uint32_t>(random))
                                    : wire::varint((random | uint64_t{1} << 63) >> (64 - bits), padded);
      if (one_by_one || (runs_between && i % 2 == 0)) {
        if (!run.empty()) out += wire::delimited(1, std::exchange(run, {}));
        out += wire::tag(1, dtype == DType::float32 ? 5 : 0) + value;
      } else {
        run += value;
      }
    }
    if (cut) run += '\x80';
    if (!run.empty() || !one_by_one) out += delimited(1, run);
    return out + unknown_field(depth);
  }

  /// Returns a Feature.
  std::string feature(const flow::FeatureSpec& spec, uint64_t values) {
    constexpr DType dtypes[] = {DType::bytes, DType::float32, DType::int64};
    const uint64_t depth = deepest - (spec.in_list() ? 4 : 3);
    DType dtype = spec.dtype;
    std::string feature;
    const auto add = [&](uint64_t count) {
      const auto number = static_cast<uint32_t>(std::find(dtypes, dtypes + 3, dtype) - dtypes) + 1;
      feature += delimited(number, list(dtype, count, spec.length, depth - 1));
    };
    switch (draw_.below(32)) {
      case 31:
        return "";
      case 30:
        dtype = draw_.one_of(dtypes);
        break;
      case 29:  // two lists, which are merged
        add(draw_.below(values + 1));
        break;
      case 28:  // a list that the next one replaces
        dtype = draw_.one_of(dtypes);
        add(values);
        dtype = spec.dtype;
        break;
      case 27:
        feature = unknown_field(depth);
        break;
    }
    add(values);
    return feature;
  }

  /// Returns how many values a record may have of a feature; if there is no such number, that of three steps.
  static uint64_t most_values(const flow::FeatureSpec& spec) {
    if (spec.max_values >= 0 && spec.max_values <= 4001) return static_cast<uint64_t>(spec.max_values);
    return 3 * static_cast<uint64_t>(spec.shape.elements());
  }

  /// Returns a FeatureList.
  std::string steps(const flow::FeatureSpec& spec) {
    auto each = static_cast<uint64_t>(spec.shape.elements());
    uint64_t steps = most_values(spec) / std::max<uint64_t>(1, each);
    if (spec.kind == flow::FeatureKind::fixed) {
      steps = static_cast<uint64_t>(spec.shape[0]);
      each /= steps;
    } else if (spec.nested()) {
      const uint64_t form = draw_.below(4);
      if (form == 2) steps = 2, each = most_values(spec) / 2;
      if (form == 3) each = 0;
    }
    steps = near(steps);
    const uint64_t last = near(each);
    const bool alike = !draw_.coin();
    const Draw form = draw_;
    std::string out;
    for (uint64_t i = 0; i < steps && out.size() < longest; i++) {
      if (alike) draw_ = form;
      out += delimited(1, feature(spec, i + 1 == steps ? last : each));
      out += unknown_field(deepest - 3);
    }
    return out;
  }

  /// Returns the value of an entry: a Feature or a FeatureList.
  std::string value(const flow::FeatureSpec& spec) {
    if (spec.in_list()) return delimited(2, steps(spec));
    const bool shaped = spec.kind == flow::FeatureKind::fixed || (spec.max_values < 0 && !draw_.coin());
    return delimited(2, feature(spec, near(shaped ? static_cast<uint64_t>(spec.shape.elements()) : most_values(spec))));
  }

  std::string entry(const flow::FeatureSpec& spec, const std::string& key) {
    std::string entry = delimited(1, key);
    const uint64_t odd = draw_.below(32);
    if (odd == 30) entry.clear();                            // no key
    if (odd == 29) entry += delimited(1, drawn_key(draw_));  // another key, which counts
    if (odd == 26) entry += unknown_field(deepest - 2);
    if (odd == 31)
      entry.insert(0, value(spec));  // the value before the key
    else if (odd != 28)              // no value
      entry += value(spec);
    if (odd == 27) entry += value(spec);  // two values, which are merged
    if (odd == 26) entry += unknown_field(deepest - 2);
    return delimited(1, entry);
  }

  /// Returns the map of Features, or of FeatureLists, in field `field`.
  std::string map(uint32_t field, bool lists) {
    std::string entries, out;
    std::set<std::string> written;
    // A recipe is short, and there may be many features.
    const size_t first = draw_.below(8) == 7 ? draw_.below(features_.size()) : 0;
    for (const flow::FeatureSpec& spec : std::span(features_).subspan(first)) {
      if (spec.in_list() != lists) continue;
      const uint64_t odd = draw_.below(32);
      if (odd == 31 || (!written.insert(spec.key).second && odd < 16)) continue;
      if (odd == 30) entries += entry(spec, spec.key);
      if (odd == 29) entries += unknown_field(deepest - 1);
      if (odd == 28) out += delimited(field, std::exchange(entries, {}));
      if (odd == 27) entries += entry(spec, drawn_key(draw_));
      entries += entry(spec, spec.key);
    }
    return out + delimited(field, entries);
  }

  const std::vector<flow::FeatureSpec>& features_;
  Draw draw_;
  uint64_t seed_;
};

}  // namespace feedline::test
