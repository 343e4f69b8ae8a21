#include "flowgraph/pipeline/resolve_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/did_you_mean.h"
#include "feedline/error.h"
#include "flowgraph/pipeline/elements.h"
#include "flowgraph/pipeline/lookup_writer.h"
#include "flowgraph/pipeline/one_hot_writer.h"
#include "flowgraph/pipeline/picture_writer.h"
#include "flowgraph/pipeline/resolve_features.h"
#include "flowgraph/pipeline/resolve_formulas.h"
#include "flowgraph/pipeline/resolve_picture.h"
#include "flowgraph/pipeline/unsupported.h"
#include "io/read/matches.h"
#include "io/read/source.h"

namespace feedline::flow {
namespace {

using config::Output;

/// The number of each feature, by its name.
using FeatureNumbers = std::unordered_map<std::string, int>;

constexpr std::pair<std::string_view, Reserved> reserved_names[] = {{"@record", Reserved::record},
                                                                    {"@file", Reserved::file},
                                                                    {"@offset", Reserved::offset},
                                                                    {"@source", Reserved::source}};

// Returns the smallest integer type that holds a bit field, like np.unpackbits, which gives uint8 for bits.
DType integer_for(int width, bool sign) {
  if (width <= 8) return sign ? DType::int8 : DType::uint8;
  if (width <= 16) return sign ? DType::int16 : DType::uint16;
  return sign ? DType::int32 : DType::uint32;
}

// Returns the strides, in bits, of a row-major tensor whose elements are `bits` apart.
std::vector<int64_t> row_major(const Shape& shape, int64_t bits) {
  std::vector<int64_t> strides(shape.rank());
  for (size_t axis = shape.rank(); axis-- > 0; bits *= shape[axis]) strides[axis] = bits;
  return strides;
}

DType stored_dtype(const config::DecodeRaw& raw) {
  return raw.stored() == config::DTYPE_UNSET ? DType::uint8 : to_dtype(raw.stored());
}

// Makes the OutputSpec of one output, and checks the output.
class OutputResolver {
 public:
  OutputResolver(const Output& config, std::string path, uint64_t seed, const std::string& folder,
                 const FeatureNumbers& numbers, PipelineSpec& spec)
      : config_(config),
        path_(std::move(path)),
        seed_(seed),
        folder_(folder),
        features_(spec.features),
        numbers_(numbers),
        tables_(spec.tables),
        cache_(spec.cache),
        warnings_(spec.warnings) {
    output_.name = config.name();
    output_.dtype = to_dtype(config.dtype());
    output_.internal = config.internal();
  }

  OutputSpec resolve() {
    if (config_.from_case() != Output::kDecodeImage && config_.from_case() != Output::kDecodeRaw)
      for (const auto& [field, given] : shaping())
        if (given) refuse(field, "it is only for pictures of decode_image and decode_raw; remove it");
    switch (config_.from_case()) {
      case Output::kExpression:
        nothing_but("expression");
        if (config_.has_normalize()) refuse("normalize", "an expression cannot have it; write it into the formula");
        // FormulaResolver sets ColumnRef::number, and INT64 for the stored elements if that is the formula's type.
        from_numbers({.kind = ColumnRef::Kind::expression}, DType::float64, Shape());
        break;
      case Output::kStack:
        nothing_but("stack");
        from_stack();
        break;
      case Output::kUnpackBits:
        from_bits(bytes_feature("unpack_bits"));
        break;
      case Output::kDecodeRaw:
        from_raw(bytes_feature("decode_raw"));
        break;
      case Output::kDecodeImage:
        add_picture(encoded_pictures(), resolve_picture(config_, path_), Layout::hwc);
        break;
      case Output::kOneHot:
        from_class();
        break;
      case Output::kLookup:
        from_table();
        break;
      default:
        if (config_.feature().empty())
          refuse("feature", "an output is made from a feature, an expression or a stack; name one");
        if (config_.feature()[0] == '@')
          from_reserved();
        else
          from_feature();
    }
    return std::move(output_);
  }

  [[noreturn]] void refuse(std::string_view field, const std::string& why) const {
    throw Error(Category::bad_pipeline, fmt::format("{}: {}: {}", path_, field, why));
  }

 private:
  enum class Layout { unknown, hwc, chw };
  static Layout layout_of(Output::Layout layout) {
    return layout == Output::HWC ? Layout::hwc : layout == Output::CHW ? Layout::chw : Layout::unknown;
  }

  // Returns the fields that say what becomes of a picture, and whether they are given.
  std::array<std::pair<const char*, bool>, 3> shaping() const {
    return {{{"crop", config_.has_crop()}, {"resize", config_.has_resize()}, {"flip", config_.has_flip()}}};
  }

  void nothing_but(std::string_view what) const {
    if (!config_.feature().empty())
      refuse("feature", fmt::format("an output is made from a feature or by {}, not both; remove one", what));
  }

  int feature_number(std::string_view field, const std::string& wanted) const {
    if (const auto known = numbers_.find(wanted); known != numbers_.end()) return known->second;
    std::vector<std::string> names;
    for (const FeatureSpec& feature : features_) names.push_back(feature.name);
    refuse(field,
           fmt::format("there is no feature '{}'{} There are: {}", wanted,
                       nearest(wanted, names).empty() ? "." : did_you_mean(wanted, names), fmt::join(names, " ")));
  }
  const FeatureSpec& feature(int number) const { return features_[static_cast<size_t>(number)]; }

  int bytes_feature(std::string_view operation) const {
    if (config_.feature().empty()) refuse("feature", fmt::format("{} needs a feature of BYTES; name one", operation));
    const int number = feature_number("feature", config_.feature());
    const FeatureSpec& from = feature(number);
    if (from.dtype != DType::bytes || from.kind != FeatureKind::fixed || from.shape.rank() > 0)
      refuse(operation,
             fmt::format("it needs one BYTES value in each record; feature '{}' is {}", from.name, describe(from)));
    return number;
  }

  // Returns the number of the feature whose values are pictures: one in each record, or several.
  int encoded_pictures() const {
    if (config_.feature().empty()) refuse("feature", "decode_image needs a feature of BYTES; name one");
    const int number = feature_number("feature", config_.feature());
    const FeatureSpec& from = feature(number);
    const bool is_sequence = from.kind == FeatureKind::fixed_sequence;
    if (from.dtype != DType::bytes || (!is_sequence && from.kind != FeatureKind::fixed) ||
        from.shape.rank() > (is_sequence ? 0 : 1) || from.shape.elements() == 0)
      refuse("decode_image",
             fmt::format("it needs a feature of BYTES with one picture in each record, or several: FIXED with a shape "
                         "of one axis, or FIXED_SEQUENCE without a shape; feature '{}' is {}",
                         from.name, describe(from)));
    if (is_sequence && from.has_default)
      refuse("decode_image",
             fmt::format("rows are padded with zeros; remove default_value from feature '{}'", from.name));
    return number;
  }

  void add_job(const ColumnRef& column, gpu::UnpackSpec unpack, size_t values = 1) {
    if (values == 0) refuse("feature", "its shape has no value");
    output_.jobs.push_back({.column = column, .unpack = std::move(unpack), .values = values});
  }

  static std::string describe(const FeatureSpec& feature) {
    constexpr const char* kinds[] = {"FIXED", "VARIABLE", "FIXED_SEQUENCE", "RAGGED"};
    std::string text = fmt::format("{} {}", kinds[static_cast<int>(feature.kind)], name(feature.dtype));
    if (feature.shape.rank() > 0) text += fmt::format(" {}", to_string(feature.shape));
    return text;
  }

  // Returns the numbers given for the channels: none, one for all, or one for each channel. The channels are the axis
  // `channel_axis`. If that is not known (-1), several numbers belong to the last axis, as NumPy broadcasts, and
  // `channel_axis` is set to it; if they could belong to the first axis as well, the output is refused.
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
      refuse(field, fmt::format(
                        "{} values are given, but the numbers of this output are normalised one by one; give one value",
                        count));
    if (channel_axis < 0) {
      if (shape[rank - 1] != count)
        refuse(field, fmt::format("{} values are given, but the last axis of {} is {}; give one value, or as many",
                                  count, to_string(shape), shape[rank - 1]));
      if (rank == 3 && shape[0] == count)
        refuse(field, fmt::format("{} values are given, which could be for the first or the last axis of {}, because "
                                  "its layout is not known",
                                  count, to_string(shape)));
      channel_axis = static_cast<int>(rank) - 1;
    }
    if (const int64_t channels = shape[static_cast<size_t>(channel_axis)]; channels != count)
      refuse(field, fmt::format("{} values are given, but shape {} has {} channels; give one value, or as many", count,
                                to_string(shape), channels));
    return result;
  }

  // Permutes the axes if the output's layout, or the one that holds otherwise, is not the stored one. Returns the
  // channel axis of the delivered shape, or -1 if it is not known.
  int turn(gpu::UnpackSpec& unpack, Layout stored, Layout otherwise = Layout::unknown) const {
    Layout wanted = layout_of(config_.layout());
    if (wanted == Layout::unknown) wanted = otherwise;
    if (wanted != Layout::unknown && unpack.shape.rank() != 3)
      refuse("layout", fmt::format("it needs a shape of 3 axes, not {}", to_string(unpack.shape)));
    if (wanted != Layout::unknown && stored == Layout::unknown)
      refuse(
          "layout",
          "how the values lie is not known: only decode_raw.layout says it; remove layout to deliver them as they lie");
    if (stored == Layout::unknown) return -1;
    if (wanted != Layout::unknown && wanted != stored) {
      const std::vector<size_t> axes =
          wanted == Layout::chw ? std::vector<size_t>{2, 0, 1} : std::vector<size_t>{1, 2, 0};
      const Shape shape = unpack.shape;
      const std::vector<int64_t> strides = unpack.stride_bits;
      for (size_t i = 0; i < 3; i++) {
        unpack.shape[i] = shape[axes[i]];
        unpack.stride_bits[i] = strides[axes[i]];
      }
    }
    return (wanted == Layout::unknown ? stored : wanted) == Layout::chw ? 0 : 2;
  }

  // Sets `normalize` and the dtype of the output: the one in the pipeline, or else `natural`, but FLOAT32 if the output
  // is normalised.
  void finish(gpu::UnpackSpec& unpack, int channel_axis, DType natural) {
    if (config_.has_normalize()) {
      const config::Normalize& given = config_.normalize();
      gpu::Normalize normalize;
      if (given.has_scale())
        normalize.scale = channel_values("normalize.scale", std::array{given.scale()}, unpack.shape, channel_axis)[0];
      normalize.mean = channel_values("normalize.mean", given.mean(), unpack.shape, channel_axis);
      normalize.std = channel_values("normalize.std", given.std(), unpack.shape, channel_axis);
      for (float std : normalize.std)
        if (!(std > 0)) refuse("normalize.std", fmt::format("{}; it must be above 0", std));
      unpack.normalize = std::move(normalize);
      natural = DType::float32;
    }
    const bool by_channel =
        !unpack.channel_bits.empty() || unpack.scale.size() > 1 || unpack.bias.size() > 1 ||
        (unpack.normalize && (unpack.normalize->mean.size() > 1 || unpack.normalize->std.size() > 1));
    unpack.channel_axis = by_channel ? channel_axis : -1;
    if (output_.dtype == DType::unset) output_.dtype = natural;
    if (output_.dtype == DType::bytes) refuse("dtype", "BYTES cannot be made from numbers; write a type of numbers");
    unpack.out = output_.dtype;
  }

  void from_numbers(const ColumnRef& column, DType stored, const Shape& shape, size_t values = 1) {
    gpu::UnpackSpec unpack = stored_elements(stored, shape);
    const int channel_axis = turn(unpack, Layout::unknown);
    finish(unpack, channel_axis, stored);
    output_.shape = unpack.shape;
    add_job(column, std::move(unpack), values);
  }

  void from_reserved() {
    for (const auto& [name, reserved] : reserved_names) {
      if (config_.feature() != name) continue;
      from_numbers({.kind = ColumnRef::Kind::reserved, .what = reserved}, DType::int64, Shape());
      return;
    }
    refuse("feature", fmt::format("there is no '{}'; reserved are @record @file @offset @source", config_.feature()));
  }

  void from_feature() {
    const int number = feature_number("feature", config_.feature());
    const FeatureSpec& from = feature(number);
    output_.shape = from.shape;
    output_.variable = from.kind == FeatureKind::variable || from.kind == FeatureKind::ragged;
    output_.padded = from.kind == FeatureKind::fixed_sequence;
    if (from.dtype == DType::bytes) return pass_bytes(number);
    if (from.kind == FeatureKind::fixed) return from_numbers({.number = number}, from.dtype, from.shape);
    if (config_.layout() != Output::AS_IS)
      refuse("layout", fmt::format("feature '{}' is {}, which has no layout", from.name, describe(from)));
    gpu::UnpackSpec value = stored_elements(from.dtype, Shape());
    finish(value, -1, from.dtype);
    output_.feature = number;
    output_.unpack_value = std::move(value);
  }

  void pass_bytes(int number) {
    const FeatureSpec& from = feature(number);
    const std::string no_numbers = "the feature is BYTES; make numbers of it by decode_raw or unpack_bits";
    if (config_.has_normalize()) refuse("normalize", no_numbers);
    if (config_.layout() != Output::AS_IS) refuse("layout", no_numbers);
    const bool dense = from.kind == FeatureKind::fixed && from.length >= 0 && output_.dtype != DType::bytes;
    if (output_.dtype != DType::unset && output_.dtype != DType::bytes && !(dense && output_.dtype == DType::uint8))
      refuse("dtype", fmt::format("it is {}, but {}", name(output_.dtype), no_numbers));
    output_.dtype = dense ? DType::uint8 : DType::bytes;
    if (!dense) {
      output_.feature = number;
      return;
    }
    // Each value is a row of bytes by itself. The output has the bytes as its last axis.
    if (from.shape.rank() == Shape::max_rank)
      refuse("feature", fmt::format("{} and its bytes are more axes than {}", to_string(from.shape), Shape::max_rank));
    from_numbers({.number = number}, DType::uint8, Shape({from.length}), static_cast<size_t>(from.shape.elements()));
    std::vector<int64_t> axes(from.shape.begin(), from.shape.end());
    axes.push_back(from.length);
    output_.shape = Shape(axes);
  }

  void from_bits(int number) {
    const FeatureSpec& from = feature(number);
    const config::UnpackBits& bits = config_.unpack_bits();
    gpu::UnpackSpec unpack;
    unpack.width = bits.width() == 0 ? 1 : bits.width();
    if (unpack.width < 1 || unpack.width > 32)
      refuse("unpack_bits.width", fmt::format("{}; it must be 1 to 32 bits", bits.width()));
    unpack.sign_extend = bits.sign_extend();
    unpack.lsb_first = bits.bit_order() == config::UnpackBits::LITTLE;
    unpack.bit_offset = bits.bit_offset();
    unpack.shape = resolve_shape(bits.shape(), path_ + ": unpack_bits.shape", 1);
    unpack.stride_bits = row_major(unpack.shape, unpack.width);
    const int64_t wanted = unpack.shape.elements() * unpack.width;
    if (unpack.bit_offset < 0)
      refuse("unpack_bits.bit_offset", fmt::format("{} is negative; count from 0", unpack.bit_offset));
    if (from.length < 0)
      refuse(
          "unpack_bits",
          fmt::format("the length of feature '{}' must be known; write it there: length: {}, or more if bytes follow",
                      from.name, unpack.bit_offset / 8 + (unpack.bit_offset % 8 + wanted + 7) / 8));
    const int64_t available = from.length * 8;
    if (unpack.bit_offset > available || wanted > available - unpack.bit_offset)
      refuse("unpack_bits", fmt::format("{} bits from {} on are wanted, but feature '{}' has {} ({} bytes); correct "
                                        "shape, width or bit_offset of unpack_bits, or the feature's length",
                                        wanted, unpack.bit_offset, from.name, available, from.length));

    const size_t rank = unpack.shape.rank();
    if (bits.channel_order_size() > 0) order_channels(bits, unpack);
    // The channels are the last axis, c. With three axes that is the layout HWC.
    int channel_axis = static_cast<int>(rank) - 1;
    unpack.scale = channel_values("unpack_bits.scale", bits.scale(), unpack.shape, channel_axis);
    unpack.bias = channel_values("unpack_bits.bias", bits.bias(), unpack.shape, channel_axis);
    const int turned = turn(unpack, rank == 3 ? Layout::hwc : Layout::unknown);
    if (rank == 3) channel_axis = turned;
    finish(
        unpack, channel_axis,
        unpack.scale.empty() && unpack.bias.empty() ? integer_for(unpack.width, unpack.sign_extend) : DType::float32);
    output_.shape = unpack.shape;
    add_job({.number = number}, std::move(unpack));
  }

  void order_channels(const config::UnpackBits& bits, gpu::UnpackSpec& unpack) {
    constexpr std::string_view field = "unpack_bits.channel_order";
    const size_t rank = unpack.shape.rank();
    if (rank == 0) refuse(field, "a scalar has no channels; give unpack_bits.shape");
    const int64_t channels = unpack.shape[rank - 1];
    if (bits.channel_order_size() != channels)
      refuse(field, fmt::format("{} entries are given, but shape {} has {} channels; give one for each",
                                bits.channel_order_size(), to_string(unpack.shape), channels));
    std::set<int> used;
    for (int stored : bits.channel_order()) {
      if (stored < 0 || stored >= channels)
        refuse(field, fmt::format("there is no channel {}; stored are 0 to {}", stored, channels - 1));
      if (!used.insert(stored).second)
        warnings_.push_back(
            fmt::format("{}: {}: channel {} is delivered twice, so another one is not", path_, field, stored));
      unpack.channel_bits.push_back(int64_t{stored} * unpack.width);
    }
    unpack.stride_bits[rank - 1] = 0;  // channel_bits has the whole offset of a channel
  }

  void from_raw(int number) {
    const FeatureSpec& from = feature(number);
    const config::DecodeRaw& raw = config_.decode_raw();
    const DType stored = stored_dtype(raw);
    if (stored == DType::bytes)
      refuse("decode_raw.stored",
             "BYTES is not a type of numbers; write the type of the stored numbers, such as UINT8");
    gpu::UnpackSpec unpack = stored_elements(stored, resolve_shape(raw.shape(), path_ + ": decode_raw.shape", 1));
    unpack.big_endian = raw.big_endian();
    const int64_t bytes = unpack.shape.elements() * static_cast<int64_t>(size_of(stored));
    if (bytes != from.length)
      refuse("decode_raw.shape", fmt::format("{} of {} are {} bytes, but feature '{}' has {}; correct "
                                             "decode_raw.shape, decode_raw.stored or the feature's length",
                                             to_string(unpack.shape), name(stored), bytes, from.name, from.length));
    const Layout layout = layout_of(raw.layout());
    if (layout != Layout::unknown && unpack.shape.rank() != 3)
      refuse("decode_raw.layout", fmt::format("it needs a shape of 3 axes, not {}", to_string(unpack.shape)));
    if (std::ranges::any_of(shaping(), [](const auto& field) { return field.second; }))
      return add_picture(number, resolve_picture(config_, path_, pixels_of(unpack.shape, stored, layout)), layout);
    const int channel_axis = turn(unpack, layout);
    finish(unpack, channel_axis, stored);
    output_.shape = unpack.shape;
    add_job({.number = number}, std::move(unpack));
  }

  StoredPixels pixels_of(const Shape& shape, DType stored, Layout layout) const {
    if (layout == Layout::unknown)
      refuse("decode_raw.layout", "crop, resize and flip need to know what the axes are; write HWC or CHW");
    if (stored != DType::uint8)
      refuse("decode_raw.stored", fmt::format("{}; crop, resize and flip are for pictures of UINT8",
                                              config::DType_Name(config_.decode_raw().stored())));
    const bool channels_first = layout == Layout::chw;
    const int64_t channels = shape[channels_first ? 0 : 2];
    if (channels != 1 && channels != 3)
      refuse("decode_raw.shape",
             fmt::format("there are {} channels; crop, resize and flip are for pictures of 1 or 3", channels));
    return {shape[channels_first ? 1 : 0], shape[channels_first ? 2 : 1], static_cast<int>(channels), channels_first};
  }

  // `otherwise` is the layout if the output says none.
  void add_picture(int number, PictureSpec picture, Layout otherwise) {
    pictures::Finish& finish_as = picture.finish;
    picture.keys.seed = seed_;
    const auto* decode = std::get_if<pictures::DecodeOptions>(&picture.origin);
    const DType stored = decode && decode->bits == 16 ? DType::uint16 : DType::uint8;
    gpu::UnpackSpec unpack =
        stored_elements(stored, Shape({picture.size.height, picture.size.width, finish_as.channels}));
    const int channel_axis = turn(unpack, Layout::hwc, otherwise);
    finish(unpack, channel_axis, stored);
    finish_as.dtype = unpack.out;
    finish_as.channels_first = channel_axis == 0;
    if (const auto& normalize = unpack.normalize) {
      finish_as.scale = normalize->scale;
      if (!normalize->mean.empty() || !normalize->std.empty()) {
        finish_as.mean = for_each_channel(normalize->mean, 0, finish_as.channels);
        finish_as.std = for_each_channel(normalize->std, 1, finish_as.channels);
      }
    }
    auto writer = std::make_shared<PictureWriter>(std::move(picture.origin), picture.geometry, std::move(finish_as),
                                                  picture.keys, cache_);
    const FeatureSpec& from = feature(number);
    output_.shape = from.shape.rank() > 0 ? unpack.shape.with_rows(from.shape[0]) : unpack.shape;
    if (from.kind == FeatureKind::fixed_sequence) {
      output_.padded = true;
      output_.feature = number;
      output_.step_writer = std::move(writer);
      return;
    }
    add_job({.number = number}, std::move(unpack), static_cast<size_t>(from.shape.elements()));
    output_.jobs.back().writer = std::move(writer);
  }

  void from_class() {
    constexpr int64_t most_classes = int64_t{1} << 20;
    if (config_.feature().empty()) refuse("feature", "one_hot needs a feature of one INT64 value; name one");
    const int number = feature_number("feature", config_.feature());
    const FeatureSpec& from = feature(number);
    if (from.dtype != DType::int64 || from.kind != FeatureKind::fixed || from.shape.rank() > 0)
      refuse("one_hot",
             fmt::format("it needs one INT64 value in each record; feature '{}' is {}", from.name, describe(from)));
    const int64_t classes = config_.one_hot().classes();
    if (classes < 1 || classes > most_classes)
      refuse("one_hot.classes", fmt::format("{}; it must be 1 to {}", classes, most_classes));
    gpu::UnpackSpec unpack = stored_elements(DType::uint8, Shape({classes}));
    turn(unpack, Layout::unknown);
    finish(unpack, -1, DType::float32);
    output_.shape = unpack.shape;
    auto writer = std::make_shared<OneHotWriter>(unpack);
    add_job({.number = number}, std::move(unpack));
    output_.jobs.back().writer = std::move(writer);
  }

  void from_table() {
    const config::Lookup& lookup = config_.lookup();
    if (config_.feature().empty())
      refuse("feature",
             "lookup needs a feature of one INT64 value, a row's number, or one of BYTES, its name; name one");
    const int number = feature_number("feature", config_.feature());
    const FeatureSpec& from = feature(number);
    if (from.dtype == DType::float32 || from.kind != FeatureKind::fixed || from.shape.rank() > 0)
      refuse("lookup", fmt::format("it needs one INT64 or BYTES value in each record; feature '{}' is {}", from.name,
                                   describe(from)));
    const bool by_name = from.dtype == DType::bytes;
    if (lookup.table().empty()) refuse("lookup.table", "it is missing; name the .npy file");
    if (by_name && lookup.keys_file().empty())
      refuse("lookup.keys_file",
             fmt::format("feature '{}' is BYTES, so rows are looked up by name; give a file with the "
                         "name of each row, one on a line",
                         from.name));
    if (!by_name && !lookup.keys_file().empty())
      refuse("lookup.keys_file",
             fmt::format("feature '{}' is INT64, so rows are looked up by number; remove it, or declare the feature as "
                         "BYTES",
                         from.name));
    if (lookup.resident() && lookup.on_device())
      refuse("lookup.resident", "lookup.on_device has the table in the memory of the device already; remove it");
    const std::shared_ptr<Table> table =
        table_of({path_of("lookup.table", lookup.table()), path_of("lookup.keys_file", lookup.keys_file()),
                  lookup.resident(), lookup.on_device()});
    gpu::UnpackSpec unpack = stored_elements(table->dtype(), table->row_shape());
    const int channel_axis = turn(unpack, Layout::unknown);
    finish(unpack, channel_axis, table->dtype());
    output_.shape = unpack.shape;
    output_.table = table;
    auto writer = std::make_shared<LookupWriter>(table, by_name, unpack);
    add_job({.number = number}, std::move(unpack));
    output_.jobs.back().writer = std::move(writer);
  }

  std::string path_of(std::string_view field, const std::string& path) const {
    if (path.find('\0') != std::string::npos) refuse(field, "it is not a file name, because it has a NUL character");
    if (path.empty()) return path;
    return io::absolute_name(folder_, path);
  }

  // Returns the table. Outputs share one that is the same.
  std::shared_ptr<Table> table_of(TableSpec wanted) const {
    for (const std::shared_ptr<Table>& table : tables_)
      if (table->spec() == wanted) return table;
    try {
      return tables_.emplace_back(std::make_shared<Table>(std::move(wanted)));
    } catch (const Error& error) {
      throw Error(error.category(), fmt::format("{}: lookup.table: {}", path_, error.message()), error.place());
    }
  }

  static std::vector<float> for_each_channel(const std::vector<float>& values, float otherwise, int channels) {
    if (values.size() > 1) return values;
    return std::vector<float>(static_cast<size_t>(channels), values.empty() ? otherwise : values[0]);
  }

  // Returns the numbers of the features that the patterns name, each once.
  std::vector<int> stacked() const {
    std::vector<int> chosen;
    std::vector<bool> has(features_.size());
    for (const std::string& pattern : config_.stack().features()) {
      std::vector<int> matches;
      if (pattern.find_first_of("*?[") == std::string::npos)
        matches.push_back(feature_number("stack.features", pattern));
      else
        for (size_t i = 0; i < features_.size(); i++)
          if (io::matches(pattern.c_str(), features_[i].name.c_str(), 0)) matches.push_back(static_cast<int>(i));
      if (matches.empty()) refuse("stack.features", fmt::format("no feature matches '{}'", pattern));
      for (const int match : matches) {
        if (has[static_cast<size_t>(match)]) continue;
        has[static_cast<size_t>(match)] = true;
        chosen.push_back(match);
      }
    }
    if (chosen.empty()) refuse("stack.features", "it is empty; name at least one feature");
    return chosen;
  }

  void from_stack() {
    const std::vector<int> features = stacked();
    const DType first = feature(features[0]).dtype;
    for (int number : features) {
      const FeatureSpec& from = feature(number);
      if (from.dtype == DType::bytes || from.kind != FeatureKind::fixed || from.shape.rank() > 0)
        refuse("stack.features", fmt::format("feature '{}' is {}; only scalars of numbers can stand side by side",
                                             from.name, describe(from)));
      if (from.dtype != first && output_.dtype == DType::unset && !config_.has_normalize())
        refuse("dtype", fmt::format("feature '{}' is {} and '{}' is {}; write the dtype of the output",
                                    feature(features[0]).name, name(first), from.name, name(from.dtype)));
    }
    // Check it as one tensor first, then make a job for each feature.
    gpu::UnpackSpec whole = stored_elements(first, Shape({static_cast<int64_t>(features.size())}));
    turn(whole, Layout::unknown);
    finish(whole, -1, first);
    for (size_t i = 0; i < features.size(); i++) {
      gpu::UnpackSpec one = stored_elements(feature(features[i]).dtype, Shape());
      one.out = whole.out;
      one.normalize = whole.normalize;
      if (one.normalize && one.normalize->mean.size() > 1) one.normalize->mean = {one.normalize->mean[i]};
      if (one.normalize && one.normalize->std.size() > 1) one.normalize->std = {one.normalize->std[i]};
      add_job({.number = features[i]}, std::move(one));
      output_.jobs.back().offset = i * size_of(whole.out);
    }
    output_.shape = whole.shape;
  }

  const Output& config_;
  std::string path_;
  const uint64_t seed_;        // of the pipeline
  const std::string& folder_;  // of the pipeline
  const std::vector<FeatureSpec>& features_;
  const FeatureNumbers& numbers_;
  std::vector<std::shared_ptr<Table>>& tables_;
  const std::optional<CacheSpec>& cache_;
  std::vector<std::string>& warnings_;
  OutputSpec output_;
};

// Sets the length of bytes features that a decode_raw reads, because its dtype and shape determine the length.
void take_lengths(const google::protobuf::RepeatedPtrField<Output>& outputs, const FeatureNumbers& numbers,
                  std::vector<FeatureSpec>& features) {
  for (const Output& output : outputs) {
    const auto known = output.has_decode_raw() ? numbers.find(output.feature()) : numbers.end();
    if (known == numbers.end()) continue;
    FeatureSpec& feature = features[static_cast<size_t>(known->second)];
    if (feature.dtype != DType::bytes || feature.length >= 0) continue;
    const Shape shape =
        resolve_shape(output.decode_raw().shape(), fmt::format("output '{}': decode_raw.shape", output.name()), 1);
    feature.length = shape.elements() * static_cast<int64_t>(size_of(stored_dtype(output.decode_raw())));
    feature.length_of = output.name();
    for (const std::string& value : feature.default_bytes)
      if (static_cast<int64_t>(value.size()) != feature.length)
        throw Error(Category::bad_pipeline,
                    fmt::format("default_value: it has {} bytes, but output '{}' decodes {}; give as many",
                                value.size(), output.name(), feature.length),
                    {"", -1, -1, feature.name});
  }
}

void check_names(const PipelineSpec& spec) {
  std::set<std::string> outputs, tensors;
  for (const OutputSpec& output : spec.outputs) {
    if (!outputs.insert(output.name).second)
      throw Error(Category::bad_pipeline,
                  fmt::format("output '{}': name: another output has this name; give each output a name of its own",
                              output.name));
    if (output.internal) continue;
    for (const std::string& tensor : element_of(spec, output).tensors())
      if (!tensors.insert(tensor).second)
        throw Error(
            Category::bad_pipeline,
            fmt::format("output '{}': name: another output has a tensor with the name '{}', too; rename one of them",
                        output.name, tensor));
  }
  if (tensors.empty())
    throw Error(Category::bad_pipeline,
                "output: all outputs are internal, so nothing would be delivered; remove `internal` from one");
  if (!spec.valid_mask.empty() && (outputs.contains(spec.valid_mask) || tensors.contains(spec.valid_mask)))
    throw Error(Category::bad_pipeline,
                fmt::format("batch.valid_mask: there is an output '{}' already; choose another name for the mask",
                            spec.valid_mask));
}

void warn_of_unused_features(PipelineSpec& spec) {
  std::vector<bool> used(spec.features.size());
  const auto use = [&](int feature) {
    if (feature >= 0) used[static_cast<size_t>(feature)] = true;
  };
  const auto use_all_of = [&](const PipelineSpec& feed) {
    for (const OutputSpec& output : feed.outputs) {
      use(output.feature);
      for (const DenseJob& job : output.jobs)
        if (job.column.kind != ColumnRef::Kind::expression) use(job.column.number);
    }
    for (const ExpressionSpec& expression : feed.expressions)
      for (const ExpressionSpec::Input& input : expression.inputs) use(input.feature);
  };
  use_all_of(spec);
  if (spec.filter) use_all_of(*spec.filter);
  std::vector<std::string> unused;
  for (size_t i = 0; i < used.size(); i++)
    if (!used[i]) unused.push_back("'" + spec.features[i].name + "'");
  if (!unused.empty())
    spec.warnings.push_back(fmt::format("feature {}: read and checked in every record, but no output is made from {}",
                                        fmt::join(unused, ", "), unused.size() == 1 ? "it" : "them"));
}

}  // namespace

gpu::UnpackSpec stored_elements(DType stored, const Shape& shape) {
  gpu::UnpackSpec unpack;
  unpack.stored = stored;
  unpack.shape = shape;
  unpack.stride_bits = row_major(shape, 8 * static_cast<int64_t>(size_of(stored)));
  return unpack;
}

void resolve_outputs(const config::Pipeline& pipeline, const std::string& folder, PipelineSpec& spec) {
  google::protobuf::RepeatedPtrField<Output> outputs = pipeline.output();
  if (outputs.empty()) {
    for (const FeatureSpec& feature : spec.features) {
      outputs.Add()->set_name(feature.name);
      outputs.rbegin()->set_feature(feature.name);
    }
  }
  FeatureNumbers numbers;
  for (size_t i = 0; i < spec.features.size(); i++) numbers[spec.features[i].name] = static_cast<int>(i);
  take_lengths(outputs, numbers, spec.features);
  for (int i = 0; i < outputs.size(); i++) {
    if (outputs[i].name().empty())
      throw Error(Category::bad_pipeline,
                  fmt::format("{}: name: every output needs one", element_path("output", i, outputs.size(), "")));
    spec.outputs.push_back(OutputResolver(outputs[i], fmt::format("output '{}'", outputs[i].name()), pipeline.seed(),
                                          folder, numbers, spec)
                               .resolve());
  }
  check_names(spec);
  resolve_formulas(outputs, spec);
  for (OutputSpec& output : spec.outputs)
    if (row_writer_for_tests && output.jobs.size() == 1) output.jobs[0].writer = row_writer_for_tests(output);
  warn_of_unused_features(spec);
}

}  // namespace feedline::flow
