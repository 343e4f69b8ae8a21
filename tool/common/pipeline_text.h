// Writes pipelines as text, for commands that make pipelines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tool/common/example_view.h"

namespace feedline::cli {

/// Returns the bytes as a string literal of protobuf's text format.
std::string text_literal(std::string_view bytes);

struct TextFeature {
  std::string key;
  Kind kind = Kind::bytes_list;
  bool variable = false;  // records have different numbers of values
  std::vector<int64_t> shape = {};
  int64_t length = 0;    // bytes of each value, for BYTES; 0: values differ in length
  bool missing = false;  // some records lack the feature; a feature that is not variable gets a default value for them
  // How an output is made from the feature, for example "decode_raw { ... }"; empty: its values are delivered
  // unchanged.
  std::string made = {};
  std::string output_dtype = {};  // dtype of the output; empty: the default
  std::string remark = {};        // written as a comment on the line of the feature
};

/// Returns the `feature` line. A feature whose key cannot be a name is called "feature_NUMBER".
std::string text_feature(const TextFeature& feature, size_t number);

/// Returns the `batch` line. The batch size is a power of two, so that replicas can divide it. It is at most 128, at
/// most `records`, and at most the number of average records in 16 MiB.
std::string text_batch(uint64_t records, uint64_t payload_bytes);

/// Returns a pipeline that `feedline check` accepts. `comments` are lines without "# ". If an output is made from any
/// feature (TextFeature::made), the pipeline lists an output for every feature.
std::string pipeline_text(const std::vector<std::string>& comments, const std::string& files,
                          const std::vector<TextFeature>& features, uint64_t records, uint64_t payload_bytes);

}  // namespace feedline::cli
