// Helps to resolve outputs of all kinds: checks an output's fields, and makes its OutputSpec.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "feedline/error.h"
#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/pipeline/stored_elements.h"

namespace feedline::flow {

/// The number of each feature, by its name.
using FeatureNumbers = std::unordered_map<std::string, int>;

/// The axis of a picture that has its channels: the last one (hwc) or the first one (chw).
enum class ImageLayout { unknown, hwc, chw };

/// Makes the OutputSpec of one output, and checks the output.
class OutputResolver {
 public:
  /// Keeps references to all arguments but `path` and `seed`. `path` names the output in errors. `seed` and `folder`
  /// are the pipeline's.
  OutputResolver(const config::Output& config, std::string path, uint64_t seed, const std::string& folder,
                 const FeatureNumbers& numbers, PipelineSpec& spec);

  [[noreturn]] void refuse(std::string_view field, const std::string& why) const;

  /// Refuses the output if it names a feature. `what` is the field that makes the output without a feature.
  void nothing_but(std::string_view what) const;
  /// Returns the number of the feature `wanted`, which the output names in `field`. Refuses the output if there is no
  /// such feature.
  int feature_number(std::string_view field, const std::string& wanted) const;
  const FeatureSpec& feature(int number) const { return features[static_cast<size_t>(number)]; }
  /// Returns the number of the output's feature. Refuses the output if this feature does not have one BYTES value in
  /// each record, which `operation` needs.
  int bytes_feature(std::string_view operation) const;
  /// Returns the number of the output's feature, whose values are names or numbers that stand for something. Refuses
  /// the output if this feature is not FIXED, or neither of BYTES nor of INT64. `operation` needs the feature.
  int names_feature(std::string_view operation) const;
  /// Returns the shape of an output that has a tensor of shape `each` for each value of the feature: the axes of the
  /// feature, and then those of `each`. Refuses the output if no tensor can have this shape.
  Shape shape_of_each(const FeatureSpec& from, const Shape& each) const;
  /// Refuses what makes no sense if the elements of the output are numbers that only stand for something: `normalize`,
  /// `layout`, and any dtype but INT64 and INT32. `what` says which numbers they are, for messages.
  void refuse_all_but_numbers(std::string_view what) const;
  /// Returns the whole name of the file that `field` names (io::absolute_name). An empty name stays empty. Refuses the
  /// output if no file can have this name.
  std::string file_name(std::string_view field, const std::string& named) const;
  /// Returns the number in PipelineSpec::tables of a table of which the pipeline says this. Outputs that say the same
  /// share one table. `field` names the table in errors. Throws Error as the constructor of Table does.
  size_t table(std::string_view field, const TableSpec& said);

  /// Returns the names of the fields that shape a picture. The bool says whether the output has the field.
  std::array<std::pair<const char*, bool>, 3> shaping() const {
    return {{{"crop", config.has_crop()}, {"resize", config.has_resize()}, {"flip", config.has_flip()}}};
  }

  void add_job(const ColumnRef& column, unpack::UnpackSpec unpack, size_t values = 1);

  /// Returns the numbers that `field` gives for the channels: none, one for all channels, or one for each channel.
  /// `channel_axis` is the axis of the channels. If it is not known (-1), several numbers belong to the last axis, as
  /// NumPy broadcasts, and `channel_axis` is set to that axis. The output is refused if the numbers could belong to the
  /// first axis as well.
  std::vector<float> channel_values(std::string_view field, const auto& values, const Shape& shape,
                                    int& channel_axis) const {
    std::vector<float> result;
    for (const auto value : values) {
      const auto rounded = static_cast<float>(value);
      if (!std::isfinite(rounded)) refuse(field, fmt::format("{} is not a finite float32", value));
      result.push_back(rounded);
    }
    if (result.size() <= 1) return result;
    const size_t rank = shape.rank();
    const auto count = static_cast<int64_t>(result.size());
    if (rank == 0)
      refuse(field, fmt::format("{} values are given, but this output has no axis of channels; give one value", count));
    if (channel_axis < 0) {
      if (shape[rank - 1] != count)
        refuse(field, fmt::format("{0} values are given, but the last axis of shape {1} is {2}; give 1 value or {2} "
                                  "values",
                                  count, to_string(shape), shape[rank - 1]));
      if (rank == 3 && shape[0] == count)
        refuse(field, fmt::format("{} values fit both the first and the last axis of shape {}, and it is not known "
                                  "which axis has the channels; give one value, or with decode_raw write "
                                  "decode_raw.layout",
                                  count, to_string(shape)));
      channel_axis = static_cast<int>(rank) - 1;
    }
    if (const int64_t channels = shape[static_cast<size_t>(channel_axis)]; channels != count)
      refuse(field, fmt::format("{0} values are given, but shape {1} has {2} channels; give 1 value or {2} values",
                                count, to_string(shape), channels));
    return result;
  }

  /// Permutes the axes if the layout of the output differs from `stored`. `otherwise` is the layout to deliver if the
  /// output's field `layout` is not set. Returns the channel axis of the delivered shape, or -1 if it is not known.
  int turn(unpack::UnpackSpec& unpack, ImageLayout stored, ImageLayout otherwise = ImageLayout::unknown) const;
  /// Sets `normalize`, and the dtype of the output. The dtype is the one in the pipeline. If the pipeline gives none,
  /// it is FLOAT32 for an output that is normalised, and `natural` for any other.
  void finish(unpack::UnpackSpec& unpack, int channel_axis, DType natural);

  /// Makes the output from numbers as they lie in a column.
  void from_numbers(const ColumnRef& column, DType stored, const Shape& shape, size_t values = 1);

  const config::Output& config;
  const std::string path;
  const uint64_t seed;
  const std::string& folder;
  const std::vector<FeatureSpec>& features;
  const FeatureNumbers& numbers;
  std::vector<TableSpec>& tables;
  const std::optional<CacheSpec>& cache;
  std::vector<std::string>& warnings;
  OutputSpec output;
};

/// Returns what a feature is, for messages: "FIXED INT64 [3]".
std::string describe(const FeatureSpec& feature);
/// Returns the layout that the field `layout` of an output or of a decode_raw gives.
ImageLayout layout_of(config::Output::Layout layout);
/// Returns the type of the numbers that a decode_raw reads.
DType stored_dtype(const config::DecodeRaw& raw);

// The functions for the kinds of outputs. Each fills in `of.output`, and throws Error bad_pipeline, which names the
// output and its field.
void resolve_feature(OutputResolver& of);     // a feature of the pipeline, or a reserved one
void resolve_expression(OutputResolver& of);  // resolve_formulas() does the rest
void resolve_stack(OutputResolver& of);
void resolve_bits(OutputResolver& of);     // unpack_bits
void resolve_raw(OutputResolver& of);      // decode_raw
void resolve_encoded(OutputResolver& of);  // decode_image
void resolve_one_hot(OutputResolver& of);
void resolve_lookup(OutputResolver& of);  // also throws Error io_error if the table cannot be read
void resolve_vocabulary(OutputResolver& of);
void resolve_hash(OutputResolver& of);

}  // namespace feedline::flow
