// A view of any tf.train.Example or SequenceExample, for people who do not know yet what is in their files. (The feed's
// own parser, flowgraph/parse/record_parser.h, must be told which features to look for.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "feedline_example.pb.h"

namespace feedline::tool {

/// The kinds of values, numbered as the fields of a Feature message.
enum class Kind : uint8_t { unset, bytes_list, float_list, int64_list };
inline constexpr size_t kind_count = 4;
std::string_view name(Kind kind) noexcept;
/// Returns the kind of a feature's values; `unset` if it has no list of values.
inline Kind kind_of(const proto::Feature& feature) noexcept { return static_cast<Kind>(feature.kind_case()); }
/// Returns the number of the feature's values.
int count_of(const proto::Feature& feature) noexcept;

enum class MessageType : uint8_t { example, sequence_example, other };
std::string_view name(MessageType type) noexcept;

/// The features of one record. Reuse one object for many records.
class ExampleView {
 public:
  /// Parses a record and replaces the previous content. Returns false if the record is neither an Example nor a
  /// SequenceExample.
  bool parse(std::span<const std::byte> record);

  /// Return the entries of the Example, or of the SequenceExample's context, and of its feature lists, in ascending
  /// order of key, each key once. Keys are not always UTF-8.
  const std::vector<const proto::Features::Entry*>& features() const noexcept { return features_; }
  const std::vector<const proto::FeatureLists::Entry*>& feature_lists() const noexcept { return lists_; }

 private:
  friend class MessageTypeGuess;

  proto::Record record_;
  proto::FeatureLists all_lists_, some_lists_;
  std::vector<const proto::Features::Entry*> features_;
  std::vector<const proto::FeatureLists::Entry*> lists_;
  uint64_t regular_ = 0;    // map entries with a key and a value, as every known writer makes them
  uint64_t irregular_ = 0;  // all remaining map entries, and fields that the message type does not define
};

/// Guesses the message type of a number of records. Nothing in a file states the type, and messages of different types
/// may happen to parse as an Example. For example, an ExampleListWithContext reads as an Example full of map entries
/// without a value. So the guess is MessageType::other unless more than half of the records parse, and they have at
/// least as many regular map entries (a key and a value each) as irregular entries and unknown fields.
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
