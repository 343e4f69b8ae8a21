// A hash of text that other programs compute, too: FarmHash's Fingerprint64.
#pragma once

#include <cstdint>
#include <string_view>

namespace feedline::flow {

/// Returns Fingerprint64 of FarmHash (Pike, https://github.com/google/farmhash), which never changes. It is the hash of
/// tf.strings.to_hash_bucket_fast, of Keras' Hashing without a salt, and of BigQuery's FARM_FINGERPRINT.
uint64_t fingerprint(std::string_view text) noexcept;

}  // namespace feedline::flow
