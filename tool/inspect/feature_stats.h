// Statistics of the features of a data set: the result of `feedline inspect`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tool/common/example_view.h"
#include "tool/common/picture_stats.h"

namespace feedline::tool {

/// Statistics of the records in which a feature has values of one kind.
struct KindStats {
  uint64_t records = 0;
  uint64_t count_min = 0, count_max = 0, total = 0;  // values in a record: fewest, most; in all records
  uint64_t length_min = 0, length_max = 0;           // the shortest and longest value, in bytes; bytes_list only
  PictureStats pictures = {};                        // of the values that are pictures

  void add(const KindStats& other);
};

/// Statistics of a feature, for each kind of its values.
struct FeatureStats {
  std::array<KindStats, kind_count> kinds;
  KindStats& of(Kind kind) { return kinds[static_cast<size_t>(kind)]; }
  const KindStats& of(Kind kind) const { return kinds[static_cast<size_t>(kind)]; }
};

/// Statistics of a feature list of SequenceExamples.
struct FeatureListStats {
  KindStats steps;      // here, counts are numbers of steps
  FeatureStats values;  // here, counts are the values in all steps of a record
  KindStats each;       // counts are the values in one step, and `records` are steps
};

/// Collects the statistics record by record. Not thread-safe: use one for each thread, and add them up.
class DataStats {
 public:
  void add(std::span<const std::byte> record);
  void add(const DataStats& other);

  MessageType type() const { return guess_.type(); }
  uint64_t records() const noexcept { return records_; }
  /// Returns how many records are neither an Example nor a SequenceExample.
  uint64_t unparsed() const noexcept { return guess_.unparsed(); }
  /// Returns how many records are an Example or a SequenceExample.
  uint64_t parsed() const noexcept { return records_ - unparsed(); }
  /// Returns, by key, the features of the Examples, or of the contexts of the SequenceExamples.
  std::map<std::string, FeatureStats> features() const { return {features_.begin(), features_.end()}; }
  std::map<std::string, FeatureListStats> feature_lists() const { return {lists_.begin(), lists_.end()}; }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  template <typename Stats>
  using ByKey = std::unordered_map<std::string, Stats, Hash, std::equal_to<>>;

  uint64_t records_ = 0;
  ExampleView message_;
  MessageTypeGuess guess_;
  ByKey<FeatureStats> features_;
  ByKey<FeatureListStats> lists_;
};

}  // namespace feedline::tool
