// Converts data of other forms into TFRecord shards of tf.train.Examples, and writes a pipeline that feeds them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "feedline/records.h"
#include "pictures/shape/geometry.h"
#include "tool/common/example_view.h"
#include "tool/common/meter.h"
#include "tool/common/pipeline_text.h"
#include "tool/common/shard_names.h"
#include "tool/convert/output_folder.h"

namespace feedline::tool {

struct ConvertTarget {
  std::string folder;                  // created if it does not exist; files of the same names are replaced at the end
  uint64_t shard_bytes = 100'000'000;  // the approximate size of a shard; not 0
};

struct Converted {
  struct Set {
    std::string name;
    uint64_t records = 0, payload_bytes = 0;
    std::vector<std::string> shards;  // the names of the files, without their folder

    std::string pattern() const { return shard_pattern(name, shards.size()); }
  };
  std::vector<Set> sets;
  std::vector<std::string> left_out;  // "PATH: why" of each file that was left out
  std::string pipeline;               // the content of folder/pipeline.textproto
};

/// Converts the archive of cs.toronto.edu/~kriz/cifar.html, the "binary version", compressed or not. The sets are those
/// of TensorFlow's tutorial (in its repository `models`:
/// tutorials/image/cifar10_estimator/generate_cifar10_tfrecords.py): train is batches 1 to 4, validation is batch 5,
/// eval is the test batch. `image` is 3 planes of 32 x 32 bytes, `label` is 0 to 9.
Converted convert_cifar10(const std::string& archive, const ConvertTarget& target);

/// Converts a folder that holds one folder for each class. The classes are numbered in the order of their names.
/// `image` is the unchanged JPEG or PNG file. With `decode_to` it is the file's pixels, uint8 [height, width, 3],
/// turned as the EXIF data says and resized. `label` is the number of the class; folder/labels.txt holds the classes'
/// names. Symbolic links are followed. Throws Error io_error if a file or a folder cannot be read; what is not a
/// picture is left out.
Converted convert_image_classes(const std::string& images, const std::optional<pictures::Size>& decode_to,
                                const ConvertTarget& target);
/// Converts one folder for each feature, given as (name, folder): each relative path that all folders have becomes one
/// record. Pictures, links and errors are treated as by convert_image_classes().
Converted convert_image_sets(const std::vector<std::pair<std::string, std::string>>& folders,
                             const std::optional<pictures::Size>& decode_to, const ConvertTarget& target);

/// Converts .npy files, given as (feature name, file), with equal numbers of rows; each row becomes a record. int64 and
/// float32 are kept. float64 is rounded to float32, and numbers beyond the range of float32 are refused. Elements of
/// other types are stored as their bytes.
Converted convert_npy(const std::vector<std::pair<std::string, std::string>>& arrays, const ConvertTarget& target);

/// Converts a table (RFC 4180) whose first row names the features. A column is int64, float32 or bytes: what `types`
/// says, or else the first of these types that can hold all its cells. An empty cell without quotes is a missing
/// feature. If no `delimiter` is named, it is the comma, and a first row that seems to have a different delimiter is
/// refused.
Converted convert_csv(const std::string& file, const std::map<std::string, Kind>& types, std::optional<char> delimiter,
                      const ConvertTarget& target);

/// Converts shards of WebDataset, which are tar archives, compressed by gzip or not. Files that follow each other and
/// have the same path up to the first dot of their name are a sample. Each extension, in lower case, becomes a feature
/// that holds the unchanged file. But `cls`, `cls2`, `class`, `count`, `index`, `inx` and `id` are int64 if all of
/// their files are numbers. `__key__` is the path before the dot.
Converted convert_webdataset(const std::vector<std::string>& archives, const ConvertTarget& target);

// Helpers of the converters:

/// Writes a known number of records into shards with equal numbers of records. A record that skip() leaves out counts
/// as one of them. Throws Error io_error, also if there are more or fewer records than were counted, because then the
/// input has changed.
class ShardWriter {
 public:
  /// `bytes` is the expected size of all records, which decides the number of shards. Each record's size is added to
  /// the progress.
  ShardWriter(OutputFolder& out, const ConvertTarget& target, std::string name, uint64_t records, uint64_t bytes,
              Progress& progress);

  /// Throws Error bad_pipeline, with `input` as its place, if no reader would accept so large a record. `input` is the
  /// file that the record was made from.
  void write(std::span<const std::byte> record, const std::string& input);
  /// Leaves out the next record.
  void skip() { begin_record(); }
  /// Closes the last shard.
  Converted::Set finish();

 private:
  void open();
  void begin_record();
  [[noreturn]] void refuse_count() const;

  OutputFolder& out_;
  const uint64_t records_, shards_;
  uint64_t next_ = 0;  // the number of the next record, counting those that were skipped
  Converted::Set set_;
  std::optional<RecordWriter> writer_;
  Meter meter_;
};

/// Gives the files of the folder their final names, and writes pipeline.textproto, which feeds the first of the sets.
/// `comments` and `features` are as for pipeline_text().
void publish(OutputFolder& out, Converted& result, const std::vector<std::string>& comments,
             const std::vector<TextFeature>& features);
/// Throws Error bad_pipeline with `file` as its place. `why` says what is wrong with this input of the command.
[[noreturn]] void refuse_input(const std::string& file, const std::string& why);
/// Returns the nearest float32; nullopt if the number is finite but beyond the range of float32.
std::optional<float> to_float32(double number) noexcept;

}  // namespace feedline::tool
