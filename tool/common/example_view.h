// Any tf.train.Example or SequenceExample as it is, for people who do not know yet what is in their files. (The feed's
// own parser, flowgraph/parse/example_parser.h, is told which features to look for.)
//
// message Example         { Features features = 1; }
// message SequenceExample { Features context = 1; FeatureLists feature_lists = 2; }
// message Features        { map<string, Feature> feature = 1; }
// message FeatureLists    { map<string, FeatureList> feature_list = 1; }   message FeatureList { repeated Feature
// feature = 1; } (tensorflow/core/example/{example,feature}.proto.) Read as protobuf's C++ parser does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace feedline::cli {

enum class Kind : uint8_t { unset, bytes_list, float_list, int64_list };
inline constexpr size_t kind_count = 4;
std::string_view name(Kind kind) noexcept;

enum class MessageType : uint8_t { example, sequence_example, other };
std::string_view name(MessageType type) noexcept;

/// Reused from record to record, so that it allocates only while it grows. Refers to the record's memory.
class Message {
 public:
  struct Feature {
    std::string_view key;  // bytes, not always UTF-8; empty for a step
    Kind kind = Kind::unset;
    size_t first = 0, count = 0;  // in bytes(), floats() or ints()
  };
  struct FeatureList {
    std::string_view key;
    size_t first = 0, count = 0;  // in all steps
  };

  /// False: the record is no such message. What was there before is gone in any case.
  bool parse(std::span<const std::byte> record);

  /// Ascending by key, each key once.
  const std::vector<Feature>& features() const noexcept { return features_; }
  const std::vector<FeatureList>& feature_lists() const noexcept { return lists_; }
  std::span<const Feature> steps(const FeatureList& list) const noexcept {
    return {steps_.data() + list.first, list.count};
  }

  std::span<const std::string_view> bytes(const Feature& f) const noexcept {
    return {bytes_.data() + f.first, f.count};
  }
  std::span<const float> floats(const Feature& f) const noexcept { return {floats_.data() + f.first, f.count}; }
  std::span<const int64_t> ints(const Feature& f) const noexcept { return {ints_.data() + f.first, f.count}; }

 private:
  friend class TypeGuess;

  bool parse_features(std::string_view message);
  bool parse_feature_lists(std::string_view message);
  bool parse_feature(std::string_view message, int level, Feature& feature);
  template <typename ParseValue>
  bool parse_entry(std::string_view entry, std::string_view& key, ParseValue&& parse_value);
  template <typename Fields>
  bool parse_values(Kind kind, uint32_t tag, Fields& fields);
  template <typename Fields>
  bool skip(Fields& fields, uint32_t tag);

  std::vector<Feature> features_, steps_;
  std::vector<FeatureList> lists_;
  std::vector<std::string_view> bytes_;
  std::vector<float> floats_;
  std::vector<int64_t> ints_;
  uint64_t regular_ = 0;    // map entries as every writer makes them: one key, one value, nothing else
  uint64_t irregular_ = 0;  // others, and fields that the message does not have
};

/// What a number of records are. Nothing in a file says so, and other messages may happen to parse: an
/// ExampleListWithContext reads as an Example full of entries without a value. So most records must parse, and most map
/// entries be regular.
class TypeGuess {
 public:
  /// `message` after parse() of a record, which said `parsed`.
  void add(const Message& message, bool parsed);
  void add(const TypeGuess& other);
  MessageType type() const;
  uint64_t unparsed() const noexcept { return unparsed_; }

 private:
  uint64_t records_ = 0, unparsed_ = 0, regular_ = 0, irregular_ = 0, lists_ = 0;
};

}  // namespace feedline::cli
