// Pipelines as text, for those who write them for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tool/common/example_view.h"

namespace feedline::cli {

/// A literal of protobuf's text format.
std::string text_literal(std::string_view bytes);

/// `name: "score"` for a feature of this key; where the key is no name, `name: "feature_NUMBER" key: "..."`.
std::string text_feature_name(const std::string& key, size_t number);

/// A power of two, so that replicas divide it: at most 128, the records there are, and what 16 MiB hold.
uint64_t fair_batch_size(uint64_t records, uint64_t payload_bytes);

/// A feature with one number of values in every record, or with a default where a record lacks it.
struct TextFeature {
  std::string key;
  Kind kind = Kind::bytes_list;
  std::vector<int64_t> shape = {};
  int64_t length = 0;             // of each of its bytes values; 0: differs
  bool missing = false;           // in some records
  std::string made = {};          // how an output is made from it, as in "decode_raw { ... }"; empty: as it is
  std::string output_dtype = {};  // where something is made
  std::string remark = {};        // for a comment
};

/// A pipeline that `feedline check` accepts. comments: lines without "# ". An output is named for each feature if one
/// of them is made into something.
std::string pipeline_text(const std::vector<std::string>& comments, const std::string& files,
                          const std::vector<TextFeature>& features, uint64_t records, uint64_t payload_bytes);

}  // namespace feedline::cli
