#include "tool/common/example_view.h"

#include <algorithm>
#include <array>
#include <climits>

namespace feedline::tool {
namespace {

// Count the fields of a message that its type does not define. A list that is not set has none.
template <typename Message>
uint64_t unknown_in(const Message& message) {
  return static_cast<uint64_t>(message.unknown_fields().field_count());
}

template <>
uint64_t unknown_in(const proto::Feature& feature) {
  return static_cast<uint64_t>(feature.unknown_fields().field_count()) + unknown_in(feature.bytes_list()) +
         unknown_in(feature.float_list()) + unknown_in(feature.int64_list());
}

template <>
uint64_t unknown_in(const proto::FeatureList& list) {
  auto count = static_cast<uint64_t>(list.unknown_fields().field_count());
  for (const proto::Feature& step : list.feature()) count += unknown_in(step);
  return count;
}

/// Points `sorted` to the entries in ascending order of key. Of entries with equal keys, takes only the last one, as
/// protobuf does for maps.
template <typename Entry>
void sort_by_key(const google::protobuf::RepeatedPtrField<Entry>& entries, std::vector<const Entry*>& sorted) {
  sorted.assign(entries.pointer_begin(), entries.pointer_end());
  std::ranges::reverse(sorted);
  std::ranges::stable_sort(sorted, {}, &Entry::key);
  const auto same_key = [](const Entry* a, const Entry* b) { return a->key() == b->key(); };
  sorted.erase(std::unique(sorted.begin(), sorted.end(), same_key), sorted.end());
}

}  // namespace

std::string_view name(Kind kind) noexcept {
  constexpr std::array names = {"unset", "bytes_list", "float_list", "int64_list"};
  return names[static_cast<size_t>(kind)];
}

int count_of(const proto::Feature& feature) noexcept {
  return feature.bytes_list().value_size() + feature.float_list().value_size() + feature.int64_list().value_size();
}

std::string_view name(MessageType type) noexcept {
  constexpr std::array names = {"Example", "SequenceExample", "other"};
  return names[static_cast<size_t>(type)];
}

bool ExampleView::parse(std::span<const std::byte> record) {
  const bool parsed =
      record.size() <= INT_MAX && record_.ParseFromArray(record.data(), static_cast<int>(record.size()));
  regular_ = 0;
  irregular_ = unknown_in(record_) + unknown_in(record_.features());
  all_lists_.Clear();
  // If field 2 does not parse as FeatureLists, the record is an Example in which field 2 is unknown.
  for (const std::string& lists : record_.feature_lists())
    if (some_lists_.ParseFromString(lists))
      all_lists_.MergeFrom(some_lists_);
    else
      irregular_++;
  irregular_ += unknown_in(all_lists_);
  const auto count = [&](const auto& entries) {
    for (const auto& entry : entries) {
      (entry.has_key() && entry.has_value() && unknown_in(entry) == 0 ? regular_ : irregular_)++;
      irregular_ += unknown_in(entry.value());
    }
  };
  count(record_.features().feature());
  count(all_lists_.feature_list());
  sort_by_key(record_.features().feature(), features_);
  sort_by_key(all_lists_.feature_list(), lists_);
  return parsed;
}

void MessageTypeGuess::add(const ExampleView& message, bool parsed) {
  records_++;
  if (!parsed) {
    unparsed_++;
    return;
  }
  regular_ += message.regular_;
  irregular_ += message.irregular_;
  lists_ += message.lists_.size();
}

void MessageTypeGuess::add(const MessageTypeGuess& other) {
  records_ += other.records_;
  unparsed_ += other.unparsed_;
  regular_ += other.regular_;
  irregular_ += other.irregular_;
  lists_ += other.lists_;
}

MessageType MessageTypeGuess::type() const {
  if (records_ == 0 || 2 * unparsed_ >= records_ || irregular_ > regular_) return MessageType::other;
  return lists_ > 0 ? MessageType::sequence_example : MessageType::example;
}

}  // namespace feedline::tool
