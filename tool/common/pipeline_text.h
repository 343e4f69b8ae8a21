// Writes pipelines as text, for commands that make pipelines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tool/common/example_view.h"

namespace feedline::tool {

/// Returns the bytes as a string literal of protobuf's text format.
std::string text_literal(std::string_view bytes);

struct TextFeature {
  std::string key;
  std::string name = {};  // empty: name_features() chooses it
  Kind kind = Kind::bytes_list;
  bool variable = false;  // records have different numbers of values
  // in_list: the feature is in the feature lists of SequenceExamples. sequence: each step of it has `shape`, and
  // records may have different numbers of steps.
  bool in_list = false, sequence = false;
  std::vector<int64_t> shape = {};
  int64_t length = 0;       // bytes of each value, for BYTES; 0: values differ in length
  uint64_t max_values = 0;  // the maximum number of values in a record; 0: left out of the text
  // Some records lack the feature. If it is neither variable nor a sequence, it gets a default value for them.
  bool missing = false;
  // How an output is made from the feature, for example "decode_raw { ... }". If there are several texts, each is
  // written on a line of its own, and may end with a comment. Empty: the feature's values are delivered unchanged.
  std::vector<std::string> made = {};
  uint64_t made_bytes = 0;        // bytes of the output per sample; set if these may exceed the bytes of a record
  uint64_t unreadable = 0;        // how many values are pictures from which the output cannot be made
  std::string output_dtype = {};  // dtype of the output; empty: the default
  std::string remark = {};        // written as a comment on the line of the feature
};

/// Sets TextFeature::name of each feature, the name under which the feature will be delivered. The wanted name is the
/// one that is set already or, if it is empty, the key. If the wanted text cannot be a name, or is the name of a tensor
/// that another feature makes (a VARIABLE `tok` makes `tok.values`), the name becomes "feature_NUMBER". NUMBER is the
/// feature's position in `features`. Null pointers in `features` are skipped, but count as positions.
void name_features(const std::vector<TextFeature*>& features);

/// Returns the `feature` line of a feature that has a name.
std::string text_feature(const TextFeature& feature);

/// Collects the text of a pipeline's outputs.
class TextOutputs {
 public:
  /// Adds the output of a feature.
  void add(const TextFeature& feature);

  /// Returns whether TextFeature::made was set for any added feature. If not, the pipeline needs no `output`, because
  /// it then delivers its features.
  bool made() const noexcept { return made_; }
  const std::string& text() const noexcept { return text_; }
  uint64_t made_bytes() const noexcept { return made_bytes_; }
  uint64_t unreadable() const noexcept { return unreadable_; }

 private:
  bool made_ = false;
  std::string text_;
  uint64_t made_bytes_ = 0, unreadable_ = 0;
};

/// Returns the `batch` line. The batch size is a power of two, so that replicas can divide it. It is at most 128, at
/// most `records`, and at most the number of samples that fit in 16 MiB. A sample has the bytes of an average record or
/// `made_bytes`, whichever is more.
std::string text_batch(uint64_t records, uint64_t payload_bytes, uint64_t made_bytes);

/// Returns the line `errors { ... }` that tells feedline to skip bad records, with a comment that states how many there
/// are of each kind: places where the file is damaged, records that are not of the pipeline's record type, and pictures
/// that cannot be read. Returns an empty string if all three counts are 0.
std::string text_errors(uint64_t damaged_places, uint64_t of_another_type, uint64_t unreadable_pictures);

/// Returns a pipeline that `feedline check` accepts. `comments` are lines without "# ". If TextFeature::made is set for
/// any feature, the pipeline lists an output for every feature.
std::string pipeline_text(const std::vector<std::string>& comments, const std::string& files,
                          std::vector<TextFeature> features, uint64_t records, uint64_t payload_bytes);

}  // namespace feedline::tool
