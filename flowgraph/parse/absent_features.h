// Finds features that no record has; most likely their names in the pipeline are wrong.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/parse/record_parser.h"
#include "flowgraph/pipeline/spec.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

/// Watches whether any record has the features that a record may lack: features with a default value, and features that
/// are neither of kind FIXED nor required. (If any other feature has a wrong name, this is an error at the first
/// record.)
class AbsentFeatures {
 public:
  /// Keeps references to the pipeline's features and to the parser of its records, which must outlive this object.
  AbsentFeatures(const std::vector<FeatureSpec>& features, const RecordParser& parser);

  /// Notes which features the parsed `records` have. `seen` is what RecordParser::Session::seen() returned for them.
  void add(const std::vector<bool>& seen, std::span<const io::RecordView> records);

  /// Returns an Error missing_feature for each watched feature that no record had; no Error if there were no records.
  /// `which` names the records in the message, for example "of epoch 0".
  std::vector<Error> errors(std::string_view which) const;

 private:
  const std::vector<FeatureSpec>& features_;
  const RecordParser& parser_;
  std::vector<size_t> absent_;      // numbers of the watched features that no record has had so far
  std::vector<std::string> names_;  // names of the features that one of the records has, for the message
  bool any_ = false;                // whether add() was given any records
};

}  // namespace feedline::flow
