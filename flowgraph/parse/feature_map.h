// Reads the features of a record out of a map<string, Feature> or a map<string, FeatureList>.
//
// message Features { map<string, Feature> feature = 1; }   (tensorflow/core/example/feature.proto)
// message FeatureLists { map<string, FeatureList> feature_list = 1; }
//
// An entry is predicted from the entry before it (record_layout.h). If it looks as predicted, its payload goes straight
// into a column. Otherwise the general parser reads it, and the layout learns it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flowgraph/parse/feature_keys.h"
#include "flowgraph/parse/feature_values.h"
#include "flowgraph/parse/record_layout.h"
#include "flowgraph/parse/wire.h"
#include "flowgraph/pipeline/spec.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

/// Says what the pipeline wants from one map of a record. Immutable.
class FeatureMap {
 public:
  /// The map has the features in feature lists if `lists` is true, otherwise all other features. `targets` has the
  /// FeatureTarget of each of `features`, in the same order, and must outlive this object.
  FeatureMap(const std::vector<FeatureSpec>& features, std::span<const FeatureTarget> targets, bool lists);

  /// Returns the maximum number of arena bytes that the lists of values need for each byte of this map's payload.
  uint64_t arena_per_byte() const noexcept { return arena_per_byte_; }

  /// Adds to `names` the keys of the map in field `field` of the record, which the record may have several times. Adds
  /// each key once, in the order of the record, with `prefix` before it. Too slow for the hot path.
  static void add_names(const io::RecordView& record, uint32_t field, const std::string& prefix,
                        std::vector<std::string>& names);

 private:
  friend class FeatureMapReader;
  RequestedKey request(size_t key) const;

  std::span<const FeatureTarget> targets_;
  FeatureKeys keys_;
  std::vector<RequestedKey> requested_;  // by the number of the key
  uint64_t arena_per_byte_ = 0;
};

/// Reads one map of many records into the columns, record by record. Only one thread may use it at a time.
class FeatureMapReader {
 public:
  /// The tag of an entry of the map.
  static constexpr uint32_t entry_tag = wire::tag(1, wire::delimited);

  /// `map` and `values` must outlive the reader.
  FeatureMapReader(const FeatureMap& map, FeatureValues& values);

  /// Begins a record, which is row `row` of the columns.
  void begin_record(uint32_t row) noexcept {
    row_ = row;
    predicted_ = true;
    broken_feature_ = -1;
  }
  /// Reads the map in [p, end). A record may have several such maps. Returns null, or the position at which protobuf
  /// would refuse the bytes.
  const uint8_t* parse(const uint8_t* p, const uint8_t* end);

  /// Reads the fields of a record. `map_of(tag)` returns the reader of the map in the field with this tag. If the field
  /// is not such a map, it returns null, and the field is skipped. Sets `known` to whether no field was skipped.
  /// Returns null, or the position at which protobuf would refuse the record.
  template <typename MapOf>
  static const uint8_t* parse_record(const io::RecordView& record, bool& known, MapOf map_of) {
    known = true;
    const auto* p = reinterpret_cast<const uint8_t*>(record.data);
    const uint8_t* const end = p + record.size;
    while (p != end) {
      const uint8_t* const field = p;
      uint32_t tag;
      p = wire::read_tag(p, end, tag);
      if (!p) return field;
      if (FeatureMapReader* const map = map_of(tag)) [[likely]] {
        uint32_t size;
        p = wire::read_size(p, end, size);
        if (!p) return field;
        if (const uint8_t* const broken = map->parse(p, p + size)) return broken;
        p += size;
      } else {
        known = false;
        p = wire::skip_field(tag, p, end, wire::max_depth);
        if (!p) return field;
      }
    }
    return nullptr;
  }

  /// Returns whether all entries of the record so far had the shapes that were predicted (record_layout.h).
  bool predicted() const noexcept { return predicted_; }
  /// Returns the number of the feature whose values made parse() refuse the bytes, or -1.
  int broken_feature() const noexcept { return broken_feature_; }
  /// Returns a bit for each feature whose payload can be stored without further checks (RequestedKey::bit).
  uint64_t direct() const noexcept { return direct_; }
  RecordLayout& layout() noexcept { return layout_; }

 private:
  std::vector<RequestedKey> direct_keys();
  const uint8_t* parse_field(const uint8_t* p, const uint8_t* end, EntryShape*& before);
  bool take(const EntryShape::Use& use, const uint8_t* p, uint32_t size);
  bool parse_entry(const uint8_t* p, const uint8_t* end, uint64_t& key_hash, int32_t& key);
  const uint8_t* add_entry(size_t feature, const uint8_t* p, const uint8_t* end, uint32_t values);
  bool fail(const uint8_t* at) {
    broken_at_ = at;
    return false;
  }

  const FeatureMap& map_;
  FeatureValues& values_;
  uint64_t direct_ = 0;
  RecordLayout layout_;
  uint32_t row_ = 0;
  bool predicted_ = true;
  const uint8_t* broken_at_ = nullptr;
  int broken_feature_ = -1;
};

}  // namespace feedline::flow
