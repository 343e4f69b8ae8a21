// Finds the features that a key of a record belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// The keys of the features that are read from one map of a record. Each key has a number, from 0 on. Several features
/// may have the same key. Immutable.
class FeatureKeys {
 public:
  /// If `in_lists` is true, takes the keys of the features in feature lists, otherwise the keys of all other features.
  FeatureKeys(const std::vector<FeatureSpec>& features, bool in_lists);

  /// Returns the hash of a key.
  static uint64_t hash_of(const uint8_t* key, size_t size) noexcept;

  /// Returns the number of a key, or -1 if no feature has it. `hash` is hash_of() the key.
  int32_t find(const uint8_t* key, size_t size, uint64_t hash) const noexcept {
    return bucket_of(key, size, hash).number;
  }

  /// Returns how many different keys there are.
  size_t size() const noexcept { return last_feature_.size(); }
  /// Returns the number of the last feature that has this key. previous() leads to the other features with the key.
  int32_t last_feature(int32_t key) const noexcept { return last_feature_[static_cast<size_t>(key)]; }
  /// Returns the number of the previous feature with the same key, or -1.
  int32_t previous(size_t feature) const noexcept { return previous_[feature]; }

 private:
  struct Bucket {
    uint64_t hash = 0;
    int32_t number = -1;
  };
  /// Returns the bucket of a key, or the empty bucket that the key would take.
  const Bucket& bucket_of(const uint8_t* key, size_t size, uint64_t hash) const noexcept;

  std::vector<std::string> keys_;      // by number
  std::vector<int32_t> last_feature_;  // by number of the key
  std::vector<int32_t> previous_;      // by number of the feature
  std::vector<Bucket> buckets_;        // a hash table with open addressing, at most half full
};

}  // namespace feedline::flow
