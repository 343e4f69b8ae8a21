// A view of any tf.train.Example or SequenceExample, for people who do not know yet what is in their files. (The feed's
// own parser, flowgraph/parse/record_parser.h, must be told which features to look for.) It reads records as
// protobuf's C++ parser does. From tensorflow/core/example/{example,feature}.proto:
//
//   message Example         { Features features = 1; }
//   message SequenceExample { Features context = 1; FeatureLists feature_lists = 2; }
//   message Features        { map<string, Feature> feature = 1; }
//   message FeatureLists    { map<string, FeatureList> feature_list = 1; }
//   message FeatureList     { repeated Feature feature = 1; }
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace feedline::tool {

enum class Kind : uint8_t { unset, bytes_list, float_list, int64_list };
inline constexpr size_t kind_count = 4;
std::string_view name(Kind kind) noexcept;

enum class MessageType : uint8_t { example, sequence_example, other };
std::string_view name(MessageType type) noexcept;

/// The features of one record. Reuse one object for many records, so that it allocates only while its buffers grow. The
/// object refers to the record's memory, which must outlive the use of the object.
class ExampleView {
 public:
  struct Feature {
    std::string_view key;         // not always UTF-8; empty for a step of a feature list
    Kind kind = Kind::unset;      // `unset`: the feature has no list of values
    size_t first = 0, count = 0;  // its values: [first, first + count) of the record's values of this kind
  };
  struct FeatureList {
    std::string_view key;
    size_t first = 0, count = 0;  // its steps: [first, first + count) of the steps of all feature lists
  };

  /// Parses a record and replaces the previous content. Returns false if the record is neither an Example nor a
  /// SequenceExample.
  bool parse(std::span<const std::byte> record);

  /// Returns the features of the Example, or of the SequenceExample's context, in ascending order of key, each key
  /// once.
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
  friend class MessageTypeGuess;

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
  uint64_t regular_ = 0;    // map entries with one key and one value, as every known writer makes them
  uint64_t irregular_ = 0;  // all remaining map entries, and fields that the message type does not define
};

/// Guesses the message type of a number of records. Nothing in a file states the type, and messages of different types
/// may happen to parse as an Example. For example, an ExampleListWithContext reads as an Example full of map entries
/// without a value. So the guess is MessageType::other unless more than half of the records parse, and they have at
/// least as many regular map entries (one key and one value each) as irregular entries and unknown fields.
class MessageTypeGuess {
 public:
  /// Adds one record. `message` is the ExampleView whose parse() has just read the record, and `parsed` is what that
  /// parse() returned.
  void add(const ExampleView& message, bool parsed);
  void add(const MessageTypeGuess& other);
  MessageType type() const;
  /// Returns how many of the added records did not parse.
  uint64_t unparsed() const noexcept { return unparsed_; }

 private:
  uint64_t records_ = 0, unparsed_ = 0, regular_ = 0, irregular_ = 0, lists_ = 0;
};

}  // namespace feedline::tool
