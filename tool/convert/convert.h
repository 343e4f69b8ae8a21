// Data of other forms -> TFRecord shards of tf.train.Examples, and a pipeline that feeds them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "feedline/records.h"
#include "tool/common/example_view.h"
#include "tool/common/meter.h"
#include "tool/common/pipeline_text.h"

namespace feedline::cli {

struct ConvertTarget {
  std::string folder;  // made where it is missing; files of the same names are replaced
  uint64_t shard_bytes = 100'000'000;
};

struct Converted {
  struct Set {
    std::string name;
    uint64_t records = 0, payload_bytes = 0;
    std::vector<std::string> shards;  // without their folder
  };
  std::vector<Set> sets;
  std::vector<std::string> left_out;  // "PATH: why"
  std::string pipeline;               // as it lies in folder/pipeline.textproto
};

/// The archive of cs.toronto.edu/~kriz/cifar.html, "python version" or "binary version", compressed or not. Sets as
/// TensorFlow's tutorial made them (models, tutorials/image/cifar10_estimator/generate_cifar10_tfrecords.py): train is
/// batches 1 to 4, validation batch 5, eval the test batch; image: 3 planes of 32 x 32 bytes; label: 0 to 9.
Converted convert_cifar10(const std::string& archive, const ConvertTarget& target);

/// A folder for each class, in order of name: image: the JPEG or PNG file as it is; label: the class's number;
/// folder/labels.txt: the classes' names.
Converted convert_image_classes(const std::string& images, const ConvertTarget& target);
/// A folder for each feature: a record for each relative path that all of them have.
Converted convert_image_sets(const std::vector<std::pair<std::string, std::string>>& folders,
                             const ConvertTarget& target);

/// NumPy arrays with equal numbers of rows, by feature: a row is a record. float64 becomes float32, int64 and float32
/// stay; others are stored as the bytes they have.
Converted convert_npy(const std::vector<std::pair<std::string, std::string>>& arrays, const ConvertTarget& target);

/// A table by RFC 4180 whose first row names the features. A column is int64, float32 or bytes as all its cells allow,
/// or as `types` says; an empty cell without quotes is a missing feature.
Converted convert_csv(const std::string& file, const std::map<std::string, Kind>& types, const ConvertTarget& target);

// For the converters:

/// So many records into shards, with equal numbers of them. Throws Error io_error.
class ShardWriter {
 public:
  /// bytes: what is expected of all, for the number of shards. The progress is told about each record's size.
  ShardWriter(const ConvertTarget& target, std::string name, uint64_t records, uint64_t bytes, Progress& progress);

  void write(std::span<const std::byte> record);
  /// After all of them.
  Converted::Set finish();

  const std::string& pattern() const noexcept { return pattern_; }

 private:
  void open();

  const std::string folder_;
  const uint64_t records_, shards_;
  std::string pattern_;
  Converted::Set set_;
  std::optional<RecordWriter> writer_;
  Meter meter_;
};

/// Makes the target's folder. Throws Error io_error.
void make_folder(const std::string& folder);
/// Whole or not at all. Throws Error io_error.
void write_text(const std::string& path, const std::string& text);
/// What a command's input is not. Category bad_pipeline.
[[noreturn]] void refuse_input(const std::string& file, const std::string& why);

}  // namespace feedline::cli
