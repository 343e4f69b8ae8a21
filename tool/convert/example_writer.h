// Writes features as the bytes of a tf.train.Example.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "feedline_example.pb.h"

namespace feedline::tool {

/// Writes one record after another. The same values always give the same bytes: the features are in ascending order of
/// key, as in protobuf's deterministic output.
class ExampleWriter {
 public:
  /// A feature's number is its position in `keys`, which must all differ.
  explicit ExampleWriter(std::vector<std::string> keys) : keys_(std::move(keys)), set_(keys_.size()) {}

  void set_bytes(size_t feature, std::span<const std::string_view> values);
  void set_bytes(size_t feature, std::string_view value) { set_bytes(feature, std::span(&value, 1)); }
  void set_bytes(size_t feature, std::span<const std::byte> value) {
    set_bytes(feature, {reinterpret_cast<const char*>(value.data()), value.size()});
  }
  void set_floats(size_t feature, std::span<const float> values);
  void set_ints(size_t feature, std::span<const int64_t> values);

  /// Returns a record with the features that were set since the last call. Its bytes are valid until the next call.
  /// Throws Error bad_pipeline if they are more than protobuf allows, 2 GiB - 1.
  std::span<const std::byte> finish();

 private:
  /// Returns the message of a feature of this record.
  proto::Feature& begin(size_t feature);

  const std::vector<std::string> keys_;
  proto::Record record_;
  std::vector<proto::Feature*> set_;  // by feature: its message in record_; null: it is not set
  std::string bytes_;
};

}  // namespace feedline::tool
