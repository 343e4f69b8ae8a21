#include "tool/inspect/feature_stats.h"

#include <algorithm>

namespace feedline::tool {
namespace {

/// Returns the map's entry for a key. Makes the entry if there is none; only then is a string allocated.
template <typename Map>
auto& entry(Map& map, std::string_view key) {
  const auto found = map.find(key);
  return found != map.end() ? found->second : map[std::string(key)];
}

/// Returns the statistics of one record, or one step, that has this many values (or steps).
KindStats of_count(int given) {
  const auto count = static_cast<uint64_t>(given);
  return {.records = 1, .count_min = count, .count_max = count, .total = count};
}

KindStats stats_of(const proto::Feature& feature) {
  KindStats stats = of_count(count_of(feature));
  if (!feature.has_bytes_list() || stats.total == 0) return stats;
  stats.length_min = UINT64_MAX;
  for (const std::string& value : feature.bytes_list().value()) {
    stats.length_min = std::min<uint64_t>(stats.length_min, value.size());
    stats.length_max = std::max<uint64_t>(stats.length_max, value.size());
    stats.pictures.add(std::as_bytes(std::span(value)));
  }
  return stats;
}

}  // namespace

void KindStats::add(const KindStats& other) {
  if (other.records == 0) return;
  const auto lower = [](bool first, uint64_t mine, uint64_t theirs) { return first ? theirs : std::min(mine, theirs); };
  count_min = lower(records == 0, count_min, other.count_min);
  count_max = std::max(count_max, other.count_max);
  if (other.total) {
    length_min = lower(total == 0, length_min, other.length_min);
    length_max = std::max(length_max, other.length_max);
  }
  records += other.records;
  total += other.total;
  pictures.add(other.pictures);
}

void DataStats::add(std::span<const std::byte> record) {
  records_++;
  const bool parsed = message_.parse(record);
  guess_.add(message_, parsed);
  if (!parsed) return;
  for (const auto* feature : message_.features())
    entry(features_, feature->key()).of(kind_of(feature->value())).add(stats_of(feature->value()));
  for (const auto* list : message_.feature_lists()) {
    FeatureListStats& stats = entry(lists_, list->key());
    stats.steps.add(of_count(list->value().feature_size()));
    FeatureStats of_record;  // of the values in all steps of this record
    for (const auto& step : list->value().feature()) {
      stats.each.add(of_count(count_of(step)));
      KindStats& sum = of_record.of(kind_of(step));
      sum.add(stats_of(step));
      sum.records = 1;
      sum.count_min = sum.count_max = sum.total;
    }
    for (size_t kind = 0; kind < kind_count; kind++) stats.values.kinds[kind].add(of_record.kinds[kind]);
  }
}

void DataStats::add(const DataStats& other) {
  records_ += other.records_;
  guess_.add(other.guess_);
  for (const auto& [key, theirs] : other.features_) {
    FeatureStats& mine = entry(features_, key);
    for (size_t kind = 0; kind < kind_count; kind++) mine.kinds[kind].add(theirs.kinds[kind]);
  }
  for (const auto& [key, theirs] : other.lists_) {
    FeatureListStats& mine = entry(lists_, key);
    mine.steps.add(theirs.steps);
    mine.each.add(theirs.each);
    for (size_t kind = 0; kind < kind_count; kind++) mine.values.kinds[kind].add(theirs.values.kinds[kind]);
  }
}

}  // namespace feedline::tool
