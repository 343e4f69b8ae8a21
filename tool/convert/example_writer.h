// Writes features as the bytes of a tf.train.Example. From tensorflow/core/example/{example,feature}.proto:
//
//   message Example { Features features = 1; }
//   message Features { map<string, Feature> feature = 1; }
//   message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
//
// Each list is `repeated value = 1`; numbers are packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace feedline::tool {

/// Writes one record after another. The same values always give the same bytes: the features are in ascending order of
/// key, as in protobuf's deterministic output. Allocates nothing for a record after the buffers have grown.
class ExampleWriter {
 public:
  /// A feature's number is its position in `keys`, which must all differ.
  explicit ExampleWriter(std::vector<std::string> keys);

  void set_bytes(size_t feature, std::span<const std::string_view> values);
  void set_bytes(size_t feature, std::string_view value) { set_bytes(feature, std::span(&value, 1)); }
  void set_bytes(size_t feature, std::span<const std::byte> value) {
    set_bytes(feature, {reinterpret_cast<const char*>(value.data()), value.size()});
  }
  void set_floats(size_t feature, std::span<const float> values);
  void set_ints(size_t feature, std::span<const int64_t> values);

  /// Returns a record with the features that were set since the last call. Its bytes are valid until the next call.
  std::span<const std::byte> finish();

 private:
  struct Feature {
    std::string key;
    std::string message;  // the serialized Feature message
    bool set = false;
  };
  /// Marks the feature as set, and returns its message, which is empty.
  std::string& begin(size_t feature);

  std::vector<Feature> features_;  // in the order of the constructor's `keys`
  std::vector<size_t> by_key_;     // the numbers of the features, in ascending order of key
  std::string list_, record_;
};

}  // namespace feedline::tool
