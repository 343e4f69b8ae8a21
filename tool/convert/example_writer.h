// Features -> the bytes of a tf.train.Example.
//
// message Example { Features features = 1; }   message Features { map<string, Feature> feature = 1; }
// message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
// Each list is `repeated value = 1`, numbers packed. (tensorflow/core/example/{example,feature}.proto.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace feedline::cli {

/// Always the same bytes for the same values: entries ascend by key, as protobuf writes maps deterministically. No
/// allocation per record once the buffers have grown.
class ExampleWriter {
 public:
  /// Features go by their places in `keys`, which differ from one another.
  explicit ExampleWriter(std::vector<std::string> keys);

  void set_bytes(size_t feature, std::span<const std::byte> value);
  void set_bytes(size_t feature, std::string_view value) { set_bytes(feature, std::as_bytes(std::span(value))); }
  void set_floats(size_t feature, std::span<const float> values);
  void set_ints(size_t feature, std::span<const int64_t> values);

  /// The record; valid until the next call. What was not set since the last call is not in it.
  std::span<const std::byte> finish();

 private:
  struct Feature {
    std::string key;
    std::string message;  // Feature, as it is written
    bool set = false;
  };
  std::string& begin(size_t feature);

  std::vector<Feature> features_;  // as given
  std::vector<size_t> by_key_;
  std::string list_, entries_, record_;
};

}  // namespace feedline::cli
