// Features that no record has: most likely their names are wrong.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/pipeline/spec.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

/// Watches the features that a record may lack: with a default, or of variable length. A wrong name of another one
/// is an error at the first record.
class AbsentFeatures {
 public:
  /// Keeps a reference to the features.
  explicit AbsentFeatures(const std::vector<FeatureSpec>& features);

  /// Takes note of parsed records. seen: of ExampleParser::Session.
  void add(const std::vector<bool>& seen, std::span<const io::RecordView> records);

  /// For each feature that no record had, an Error missing_feature. which: the records, as in "of epoch 0".
  std::vector<Error> errors(std::string_view which) const;

 private:
  const std::vector<FeatureSpec>& features_;
  std::vector<size_t> absent_;      // numbers of features
  std::vector<std::string> names_;  // of a record that lacks one
  bool any_ = false;                // there were records
};

}  // namespace feedline::flow
