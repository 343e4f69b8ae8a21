#include "flowgraph/parse/feature_keys.h"

#include <bit>
#include <cstring>

#include "base/audit.h"
#include "base/load.h"

namespace feedline::flow {

FeatureKeys::FeatureKeys(const std::vector<FeatureSpec>& features, bool in_lists)
    : previous_(features.size(), -1), buckets_(std::bit_ceil(2 * features.size() + 1)) {
  for (size_t feature = 0; feature < features.size(); feature++) {
    if (features[feature].in_list() != in_lists) continue;
    const std::string& key = features[feature].key;
    const auto* bytes = reinterpret_cast<const uint8_t*>(key.data());
    const uint64_t hash = hash_of(bytes, key.size());
    Bucket& bucket = const_cast<Bucket&>(bucket_of(bytes, key.size(), hash));
    if (bucket.number < 0) {
      bucket = {hash, static_cast<int32_t>(keys_.size())};
      keys_.push_back(key);
      last_feature_.push_back(-1);
    }
    int32_t& last = last_feature_[static_cast<size_t>(bucket.number)];
    previous_[feature] = last;
    last = static_cast<int32_t>(feature);
  }
}

// Takes 8 bytes at a time and folds them by a multiplication with 2^64 / the golden ratio. The hash is mixed at the
// end, so that keys which differ only in their last bytes differ in all bits of the hash.
uint64_t FeatureKeys::hash_of(const uint8_t* key, size_t size) noexcept {
  uint64_t hash = size;
  const auto add = [&](uint64_t bytes) {
    hash = (hash ^ bytes) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  };
  // Reads the key in words of 8 bytes, of which the last two may overlap. A shorter key is read in two words of 4
  // bytes, which may overlap, too, or in up to three single bytes.
  // Bound may be equal, never: no test can notice, because any hash that reads only the key will do.
  if (size >= 8) {
    // Adds all words but the last.
    // Bound may be equal, farther: no test can notice, because any hash that reads only the key will do.
    for (size_t i = 0; i + 8 < size; i += 8) add(load<uint64_t>(key + i));
    add(load<uint64_t>(key + size - 8));
  } else if (size >= 4) {  // Bound may be equal, never: no test can notice, because any hash of the key will do.
    add(load<uint32_t>(key) | uint64_t{load<uint32_t>(key + size - 4)} << 32);
  } else if (size > 0) {
    add(key[0] | uint64_t{key[size / 2]} << 8 | uint64_t{key[size - 1]} << 16);
  }
  return mix64(hash);
}

const FeatureKeys::Bucket& FeatureKeys::bucket_of(const uint8_t* key, size_t size, uint64_t hash) const noexcept {
  for (size_t i = hash;; i++) {
    const Bucket& bucket = buckets_[i & (buckets_.size() - 1)];
    if (bucket.number < 0) return bucket;
    if (bucket.hash != hash) continue;
    const std::string& known = keys_[static_cast<size_t>(bucket.number)];
    if (known.size() == size && (size == 0 || std::memcmp(known.data(), key, size) == 0)) return bucket;
  }
}

}  // namespace feedline::flow
