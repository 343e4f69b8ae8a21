// The inputs of the fuzz target of rows: a pipeline and its records, and what docs/pipeline.md says that each output makes
// of each record, slow and simple.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/audit.h"
#include "draw.h"
#include "feedline/tensor.h"
#include "tests/flowgraph/example_writer.h"
#include "tests/pictures/encode.h"
#include "tests/support/npy.h"
#include "tests/support/open_tables.h"
#include "tests/support/temp_dir.h"
#include "tests/unpack/slow_cast.h"
#include "unpack_input.h"

namespace feedline::test {

/// What an output makes of a record.
struct Made {
  std::vector<std::string> values;  // as bytes; dense: together they are the row
  std::vector<size_t> ends;         // nested: the number of values in each step and those before it
  bool fails = false;               // the row cannot be written
};

struct ModelOutput {
  // fixed: as many values of BYTES in each row. made: like padded, but a RowWriter makes the steps.
  enum class Kind { dense, fixed, ragged, nested, padded, made } kind = Kind::dense;
  std::string name;
  DType dtype;
  Shape shape;        // dense: of a row; padded: of a step
  std::string zeros;  // dense: the row that is made of zeros; padded: the padding of a value
  std::vector<Made> of_record;
};

/// Tables on the disk, made once, and the names of their rows.
class ModelTables {
 public:
  struct Table {
    const char* descr;
    DType dtype;
    Shape shape;
    uint64_t rows;
  };
  static constexpr size_t count = 5;

  ModelTables() {
    for (size_t t = 0; t < count; t++) {
      std::string rows, names, words, numbers, shape = std::to_string(tables[t].rows) + ",";
      for (const int64_t axis : tables[t].shape) shape += std::to_string(axis) + ",";
      for (uint64_t row = 0; row < tables[t].rows; row++) {
        rows += row_of(t, row);
        names += name_of(row) + "\n";
        words += word_of(row) + "\n";
        numbers += fmt::format("{}\n", number_of(row));
      }
      dir.write(std::to_string(t) + ".npy", npy(tables[t].descr, "(" + shape + ")", rows));
      dir.write(std::to_string(t) + ".txt", names);
      dir.write(std::to_string(t) + ".words", words);
      dir.write(std::to_string(t) + ".numbers", numbers);
    }
  }
  std::string row_of(size_t t, uint64_t row) const {
    std::string bytes(static_cast<size_t>(tables[t].shape.elements()) * size_of(tables[t].dtype), '\0');
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<char>(mix64(mix64(t) + row) >> i % 8 * 8);
    return bytes;
  }
  static std::string name_of(uint64_t row) { return row == 0 ? "" : "row" + std::to_string(row); }
  /// The name of this number in a vocabulary, where no name is empty.
  static std::string word_of(uint64_t number) { return name_of(number + 1); }
  /// The same, if names are numbers.
  static int64_t number_of(uint64_t row) { return static_cast<int64_t>(row * 31 - 900); }

  const Table tables[count] = {{"<f4", DType::float32, {3}, 5},
                               {"|i1", DType::int8, {7}, 1},
                               {"<f8", DType::float64, {}, 300},
                               {"<u2", DType::uint16, {2, 3}, 70},
                               {"|b1", DType::boolean, {4}, 64}};
  const TempDir dir;
};

/// Returns FarmHash's Fingerprint64 of at most 32 bytes, as farmhashna::Hash64() has it.
inline uint64_t slow_fingerprint(std::string_view text) {
  constexpr uint64_t k0 = 0xc3a5c85c97cb3127, k1 = 0xb492b66fbe98f273, k2 = 0x9ae16a3b2f90404f;
  const size_t size = text.size();
  const uint64_t factor = k2 + 2 * size;
  const auto read = [&](size_t at, size_t bytes) {
    uint64_t number = 0;
    while (bytes-- > 0) number = number << 8 | static_cast<uint8_t>(text[at + bytes]);
    return number;
  };
  const auto shift_mix = [](uint64_t number) { return number ^ number >> 47; };
  const auto mix = [&](uint64_t a, uint64_t b) {
    return shift_mix((b ^ shift_mix((a ^ b) * factor)) * factor) * factor;
  };
  if (size == 0) return k2;
  if (size < 4) {
    const uint64_t y = read(0, 1) + (read(size / 2, 1) << 8), z = size + (read(size - 1, 1) << 2);
    return shift_mix(y * k2 ^ z * k0) * k2;
  }
  if (size < 8) return mix(size + (read(0, 4) << 3), read(size - 4, 4));
  if (size <= 16) {
    const uint64_t a = read(0, 8) + k2, b = read(size - 8, 8);
    return mix(std::rotr(b, 37) * factor + a, (std::rotr(a, 25) + b) * factor);
  }
  const uint64_t a = read(0, 8) * k1, b = read(8, 8), c = read(size - 8, 8) * factor, d = read(size - 16, 8) * k2;
  return mix(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + k2, 18) + c);
}

class Model {
 public:
  explicit Model(Draw& draw);

  std::string text;                  // features and outputs of the pipeline
  bool sequence;                     // the records are SequenceExamples
  bool keeps = false;                // a cache can keep decoded pictures
  std::vector<std::string> records;  // the payloads
  std::vector<bool> bad;             // by record: the parser must refuse it
  std::vector<ModelOutput> outputs;

 private:
  using Kind = ModelOutput::Kind;
  /// What is done with the numbers of an output.
  struct Finish {
    std::string text;
    DType dtype;
    std::vector<unpack::ChannelMath> channels = std::vector<unpack::ChannelMath>(1);  // one for all, or one for each
    std::string operator()(DType stored, uint64_t bits, size_t i = 0) const {
      return bytes_of(make_element(stored, bits, channels[i % channels.size()], dtype), size_of(dtype));
    }
  };

  static std::string bytes_of(uint64_t bits, size_t size) { return {reinterpret_cast<const char*>(&bits), size}; }
  static uint64_t bits_of(std::string_view bytes) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data(), bytes.size());
    return bits;
  }
  /// Returns a Feature with these values, as they lie in memory.
  static std::string feature_of(DType stored, const std::vector<std::string>& values);

  // Content is drawn from the input while that lasts, and from a sequence of hashes after it.
  uint64_t pick(uint64_t bound) { return draw_.empty() ? mix64(++state_) % bound : draw_.below(bound); }
  uint64_t near(uint64_t bound) { return draw_.empty() ? bound + pick(3) - 1 : draw_.near(bound); }
  bool rarely() { return pick(16) == 15; }
  std::string any_bytes(size_t size);
  DType any_number() { return static_cast<DType>(2 + pick(dtype_count - 2)); }
  DType stored_number() { return pick(2) == 0 ? DType::int64 : DType::float32; }
  Finish finish(DType natural, size_t channels, bool is_open = true);

  std::string declare(DType dtype, const std::string& more, bool in_list = false);
  void put(size_t record, const std::string& feature) {
    context_[record] += wire::entry("f" + std::to_string(features_ - 1), feature);
  }
  void put_steps(size_t record, const std::vector<std::string>& steps);
  ModelOutput& add(Kind kind, DType dtype, Shape shape, const std::string& how);

  void numbers();
  void stack();
  void raw();
  void bits();
  void add_unpacked(const unpack::UnpackSpec& spec, size_t length, const std::string& how);
  void one_hot();
  void lookup();
  void vocabulary(const ModelTables& all, size_t t);
  void vectors();
  void keys();
  void place();
  void lists();
  void blobs();
  void frames();

  Draw& draw_;
  uint64_t state_ = 0;
  size_t features_ = 0;
  std::vector<std::string> context_, lists_;  // by record: the encoded entries
};

inline std::string Model::feature_of(DType stored, const std::vector<std::string>& values) {
  std::vector<int64_t> ints;
  std::vector<float> floats;
  for (const std::string& value : values) {
    if (stored == DType::int64) std::memcpy(&ints.emplace_back(), value.data(), value.size());
    if (stored == DType::float32) std::memcpy(&floats.emplace_back(), value.data(), value.size());
  }
  return stored == DType::int64     ? wire::int64_feature(ints)
         : stored == DType::float32 ? wire::float_feature(floats)
                                    : wire::bytes_feature(values);
}

inline std::string Model::any_bytes(size_t size) {
  constexpr uint64_t special[] = {0, 1, 127, 128, 255, 256, ~uint64_t{0}, 0x7fc00001, 0x3f8000007f800000};
  std::string bytes;
  while (bytes.size() < size)
    bytes += bytes_of(pick(2) == 0 ? special[pick(std::size(special))] : mix64(state_ += 1 + pick(256)), 8);
  bytes.resize(size);
  return bytes;
}

// Draws dtype and normalize of an output. `natural` is its dtype if that may be left open.
inline Model::Finish Model::finish(DType natural, size_t channels, bool is_open) {
  constexpr float scales[] = {1, -2, 0.0625f}, means[] = {0, 0.5f, -3}, stds[] = {1, 2, 0.375f};
  Finish finish{"", natural};
  if (pick(3) == 2) {
    finish.channels.assign(channels > 1 && pick(2) == 1 ? channels : 1, {.normalize = true});
    const float scale = scales[pick(3)];
    finish.text = fmt::format("normalize {{ scale: {} ", scale);
    for (unpack::ChannelMath& each : finish.channels) {
      each.normalize_scale = scale;
      each.mean = means[pick(3)];
      each.std = stds[pick(3)];
      finish.text += fmt::format("mean: {} std: {} ", each.mean, each.std);
    }
    finish.text += "} ";
    finish.dtype = DType::float32;
  }
  if (!is_open || pick(2) == 1) finish.text += fmt::format("dtype: {} ", name(finish.dtype = any_number()));
  return finish;
}

// Declares the next feature and returns its name.
inline std::string Model::declare(DType dtype, const std::string& more, bool in_list) {
  const std::string named = "f" + std::to_string(features_++);
  text += fmt::format("feature {{ name: '{}' dtype: {} {} {} }} ", named, name(dtype), more,
                      in_list ? "where: FEATURE_LIST" : "");
  return named;
}

// Gives a record a feature list for the feature that was declared last.
inline void Model::put_steps(size_t record, const std::vector<std::string>& steps) {
  std::string all;
  for (const std::string& step : steps) all += wire::delimited(1, step);
  lists_[record] += wire::entry("f" + std::to_string(features_ - 1), all);
}

inline ModelOutput& Model::add(Kind kind, DType dtype, Shape shape, const std::string& how) {
  ModelOutput& output =
      outputs.emplace_back(ModelOutput{kind, "o" + std::to_string(outputs.size()), dtype, shape, "", {}});
  output.of_record.resize(records.size());
  text += fmt::format("output {{ name: '{}' {} }} ", output.name, how);
  return output;
}

// FIXED numbers, of no axis or one, which may be 0. Some records have one too many.
inline void Model::numbers() {
  const DType stored = stored_number();
  const std::vector<int64_t> axes(pick(2), static_cast<int64_t>(pick(pick(4) == 3 ? 70 : 4)));
  const auto count = static_cast<size_t>(Shape(axes).elements());
  const Finish cast = finish(stored, count);
  const std::string named = declare(stored, fmt::format("shape: [{}]", fmt::join(axes, ",")));
  ModelOutput& output = add(Kind::dense, cast.dtype, Shape(axes), fmt::format("feature: '{}' {}", named, cast.text));
  for (size_t i = 0; i < count; i++) output.zeros += cast(stored, 0, i);
  for (size_t r = 0; r < records.size(); r++) {
    std::vector<std::string> values(count + (rarely() ? 1 : 0));
    for (size_t i = 0; i < values.size(); i++) {
      values[i] = any_bytes(size_of(stored));
      output.of_record[r].values.push_back(cast(stored, bits_of(values[i]), i));
    }
    put(r, feature_of(stored, values));
    if (values.size() > count) bad[r] = true;
  }
}

// Scalars of both types side by side.
inline void Model::stack() {
  const size_t count = 1 + pick(5);
  const Finish cast = finish(DType::float32, count, false);
  std::vector<std::string> names, zeros;
  std::vector<Made> made(records.size());
  for (size_t i = 0; i < count; i++) {
    const DType stored = stored_number();
    names.push_back("'" + declare(stored, "") + "'");
    zeros.push_back(cast(stored, 0, i));
    for (size_t r = 0; r < records.size(); r++) {
      const std::string value = any_bytes(size_of(stored));
      put(r, feature_of(stored, {value}));
      made[r].values.push_back(cast(stored, bits_of(value), i));
    }
  }
  ModelOutput& output = add(Kind::dense, cast.dtype, {static_cast<int64_t>(count)},
                            fmt::format("stack {{ features: [{}] }} {}", fmt::join(names, ","), cast.text));
  output.zeros = fmt::format("{}", fmt::join(zeros, ""));
  output.of_record = std::move(made);
}

// Numbers in bytes, whose axes may be turned.
inline void Model::raw() {
  unpack::UnpackSpec spec;
  spec.stored = any_number();
  spec.big_endian = pick(2) == 1;
  std::vector<int64_t> axes(pick(4)), strides(axes.size());
  auto stride = static_cast<int64_t>(8 * size_of(spec.stored));
  for (size_t i = axes.size(); i-- > 0; stride *= axes[i]) {
    axes[i] = static_cast<int64_t>(2 + pick(5)) + (i == 0 ? 5 : 0);  // the first is never as long as the last
    strides[i] = stride;
  }
  const auto length = static_cast<size_t>(stride / 8);
  constexpr const char* layouts[] = {"HWC", "CHW"};
  const size_t from = pick(2), to = axes.size() == 3 ? pick(2) : from;
  const bool has_layout = axes.size() == 3 && (from != to || pick(2) == 1);
  const std::string how =
      fmt::format("decode_raw {{ stored: {} big_endian: {} shape: [{}] {} }} ", name(spec.stored), spec.big_endian,
                  fmt::join(axes, ","), has_layout ? fmt::format("layout: {}", layouts[from]) : "");
  if (from != to) {
    std::rotate(axes.begin(), axes.begin() + (to == 1 ? 2 : 1), axes.end());
    std::rotate(strides.begin(), strides.begin() + (to == 1 ? 2 : 1), strides.end());
  }
  spec.shape = Shape(axes);
  spec.stride_bits = strides;
  spec.channel_axis = has_layout && to == 1 ? 0 : static_cast<int>(axes.size()) - 1;
  spec.out = spec.stored;
  add_unpacked(spec, length, how + (has_layout ? fmt::format("layout: {} ", layouts[to]) : ""));
}

// Bit fields in bytes, with bytes after them.
inline void Model::bits() {
  unpack::UnpackSpec spec;
  spec.width = pick(2) == 0 ? 1 : static_cast<int>(1 + pick(32));
  spec.sign_extend = pick(2) == 1;
  spec.lsb_first = pick(2) == 1;
  spec.bit_offset = static_cast<int64_t>(pick(20));
  const auto channels = static_cast<int64_t>(1 + pick(9)), rows = static_cast<int64_t>(1 + pick(9));
  spec.shape = {rows, channels};
  spec.stride_bits = {spec.width * channels, spec.width};
  spec.channel_axis = 1;
  const bool has_order = pick(2) == 1;
  for (int64_t c = 0; c < channels && has_order; c++)
    spec.channel_bits.push_back(static_cast<int64_t>(pick(static_cast<uint64_t>(channels))) * spec.width);
  std::vector<int64_t> order;
  for (const int64_t channel : spec.channel_bits) order.push_back(channel / spec.width);
  if (has_order) spec.stride_bits[1] = 0;
  if (pick(2) == 1) spec.scale = {-1.5f};
  if (pick(2) == 1) spec.bias = {0.25f};
  const DType types[][2] = {{DType::uint8, DType::int8}, {DType::uint16, DType::int16}, {DType::uint32, DType::int32}};
  spec.out = !spec.scale.empty() || !spec.bias.empty() ? DType::float32
                                                       : types[(spec.width > 8) + (spec.width > 16)][spec.sign_extend];
  const std::string how = fmt::format(
      "unpack_bits {{ bit_offset: {} width: {} sign_extend: {} bit_order: {} shape: [{}, {}] channel_order: [{}] "
      "scale: [{}] "
      "bias: [{}] }} ",
      spec.bit_offset, spec.width, spec.sign_extend, spec.lsb_first ? "LITTLE" : "BIG", rows, channels,
      fmt::join(order, ","), fmt::join(spec.scale, ","), fmt::join(spec.bias, ","));
  add_unpacked(spec, static_cast<size_t>(spec.bit_offset + rows * channels * spec.width + 7) / 8 + pick(3), how);
}

// Adds an output of bytes that are unpacked. A byte too few or too many makes a bad record.
inline void Model::add_unpacked(const unpack::UnpackSpec& wanted, size_t length, const std::string& how) {
  unpack::UnpackSpec spec = wanted;
  const Finish cast = finish(
      spec.out, spec.channel_axis < 0 ? 1 : static_cast<size_t>(spec.shape[static_cast<size_t>(spec.channel_axis)]));
  spec.out = cast.dtype;
  if (cast.channels[0].normalize) {
    spec.normalize.emplace().scale = cast.channels[0].normalize_scale;
    for (const unpack::ChannelMath& each : cast.channels) {
      spec.normalize->mean.push_back(each.mean);
      spec.normalize->std.push_back(each.std);
    }
  }
  const std::string named = declare(DType::bytes, fmt::format("length: {}", length));
  ModelOutput& output =
      add(Kind::dense, spec.out, spec.shape, fmt::format("feature: '{}' {} {}", named, how, cast.text));
  const std::vector<Field> fields = fields_of(spec);
  const auto made_of = [&](const std::string& value) {
    std::string row(fields.size() * size_of(spec.out), '\0');
    make_row(spec, fields, reinterpret_cast<const std::byte*>(value.data()), reinterpret_cast<std::byte*>(row.data()));
    return row;
  };
  output.zeros = made_of(std::string(length, '\0'));
  for (size_t r = 0; r < records.size(); r++) {
    const std::string value = any_bytes(rarely() ? length + 1 - 2 * pick(2) : length);
    put(r, wire::bytes_feature({value}));
    bad[r] = bad[r] || value.size() != length;
    if (value.size() == length) output.of_record[r].values = {made_of(value)};
  }
}

// Class numbers below, within and above the classes.
inline void Model::one_hot() {
  const uint64_t classes = 1 + pick(pick(4) == 3 ? 300 : 12);
  const Finish cast = finish(DType::float32, classes);
  const std::string named = declare(DType::int64, "");
  ModelOutput& output = add(Kind::dense, cast.dtype, {static_cast<int64_t>(classes)},
                            fmt::format("feature: '{}' one_hot {{ classes: {} }} {}", named, classes, cast.text));
  const size_t size = size_of(cast.dtype);
  output.zeros.assign(classes * size, '\0');
  std::string cold;
  for (uint64_t c = 0; c < classes; c++) cold += cast(DType::uint8, 0, c);
  for (size_t r = 0; r < records.size(); r++) {
    const uint64_t number = pick(4) == 3 ? near(classes) : pick(classes);
    put(r, feature_of(DType::int64, {bytes_of(number, 8)}));
    Made& made = output.of_record[r];
    made.fails = number >= classes;
    made.values = {cold};
    if (!made.fails) made.values[0].replace(number * size, size, cast(DType::uint8, 1, number));
  }
}

// Rows of tables by number or by name, also of those that the table does not have; or only the numbers of names.
inline void Model::lookup() {
  static const ModelTables all;
  constexpr const char* where[] = {"", "resident: true", "on_device: true"};
  const size_t t = pick(ModelTables::count);
  const ModelTables::Table& table = all.tables[t];
  const uint64_t kind = pick(4);
  if (kind == 2) return vocabulary(all, t);
  const bool by_name = kind % 2 == 1;
  const auto count = static_cast<size_t>(table.shape.elements());
  const Finish cast = finish(table.dtype, table.shape.rank() == 0 ? 1 : static_cast<size_t>(table.shape.end()[-1]));
  const std::string named = declare(by_name ? DType::bytes : DType::int64, ""), file = all.dir.file(std::to_string(t));
  ModelOutput& output =
      add(Kind::dense, cast.dtype, table.shape,
          fmt::format("feature: '{}' lookup {{ table: '{}.npy' {} {} }} {}", named, file,
                      by_name ? fmt::format("keys_file: '{}.txt'", file) : "", where[pick(3)], cast.text));
  for (size_t i = 0; i < count; i++) output.zeros += cast(table.dtype, 0, i);
  for (size_t r = 0; r < records.size(); r++) {
    const uint64_t row = pick(4) == 3 ? near(table.rows) : pick(table.rows);
    put(r, by_name ? wire::bytes_feature({ModelTables::name_of(row)}) : feature_of(DType::int64, {bytes_of(row, 8)}));
    output.of_record[r].fails = row >= table.rows;
    const std::string stored = all.row_of(t, row);
    const size_t size = size_of(table.dtype);
    for (size_t i = 0; i < count; i++)
      output.of_record[r].values.push_back(
          cast(table.dtype, bits_of(std::string_view(stored).substr(i * size, size)), i));
  }
}

// Numbers of words, one in each record or several, also of words that the vocabulary does not have. It has as many as
// the table has rows.
inline void Model::vocabulary(const ModelTables& all, size_t t) {
  constexpr int64_t others[] = {-1, 0, 3, std::numeric_limits<int32_t>::min()};
  const uint64_t names = all.tables[t].rows;
  const size_t rank = pick(3);
  const std::vector<int64_t> axes(rank, static_cast<int64_t>(1 + pick(pick(4) == 3 ? 20 : 3)));
  const auto count = static_cast<size_t>(Shape(axes).elements());
  const std::string types[] = {"", "dtype: INT64", "dtype: INT32"};
  const size_t type = pick(std::size(types)), size = type == 2 ? 4 : 8;
  const bool has_other = pick(2) == 1;
  const int64_t other = others[pick(std::size(others))];
  const std::string named = declare(DType::bytes, fmt::format("shape: [{}]", fmt::join(axes, ",")));
  ModelOutput& output =
      add(Kind::dense, type == 2 ? DType::int32 : DType::int64, Shape(axes),
          fmt::format("feature: '{}' {} vocabulary {{ keys_file: '{}.words' {} }}", named, types[type],
                      all.dir.file(std::to_string(t)), has_other ? fmt::format("unknown: {}", other) : std::string()));
  output.zeros.assign(count * size, '\0');
  for (size_t r = 0; r < records.size(); r++) {
    Made& made = output.of_record[r];
    std::vector<std::string> values;
    for (size_t i = 0; i < count; i++) {
      const uint64_t name = pick(8) == 7 ? near(names) : pick(names);
      values.push_back(ModelTables::word_of(name));
      made.fails = made.fails || (name >= names && !has_other);
      made.values.push_back(bytes_of(name < names ? name : static_cast<uint64_t>(other), size));
    }
    put(r, wire::bytes_feature(values));
  }
}

// Vectors of classes with any values: one for each of several numbers, or one for a list.
inline void Model::vectors() {
  constexpr double ons[] = {1, 0.5, -3, 1e6}, offs[] = {0, 0.25, 2, -1}, whole_ons[] = {1, 3, 7, 100},
                   whole_offs[] = {0, 2, 5, 127};
  const uint64_t classes = 1 + pick(pick(4) == 3 ? 300 : 12);
  const bool is_list = pick(2) == 1, ignores = pick(2) == 1;
  const std::vector<int64_t> axes(is_list ? 0 : pick(3), static_cast<int64_t>(1 + pick(pick(4) == 3 ? 20 : 3)));
  const Finish cast = finish(DType::float32, classes);
  const bool is_whole = cast.dtype <= DType::int64 && !cast.channels[0].normalize;
  const size_t bound = is_whole && cast.dtype == DType::boolean ? 1 : 4, which_on = pick(bound),
               which_off = pick(bound);
  const double on = (is_whole ? whole_ons : ons)[which_on], off = (is_whole ? whole_offs : offs)[which_off];
  const std::string named =
      declare(DType::int64, is_list ? "kind: RAGGED" : fmt::format("shape: [{}]", fmt::join(axes, ",")));
  std::vector<int64_t> all = axes;
  all.push_back(static_cast<int64_t>(classes));
  ModelOutput& output =
      add(Kind::dense, cast.dtype, Shape(all),
          fmt::format("feature: '{}' one_hot {{ classes: {} on_value: {} off_value: {} ignore_outside: {} }} {}", named,
                      classes, on, off, ignores, cast.text));
  const size_t size = size_of(cast.dtype), count = static_cast<size_t>(Shape(axes).elements());
  output.zeros.assign(count * classes * size, '\0');
  const auto one = [&](double value, size_t c) { return cast(DType::float64, std::bit_cast<uint64_t>(value), c); };
  std::string cold;
  for (uint64_t c = 0; c < classes; c++) cold += one(off, c);
  for (size_t r = 0; r < records.size(); r++) {
    Made& made = output.of_record[r];
    std::vector<std::string> values(is_list ? pick(rarely() ? 40 : 4) : count);
    made.values.assign(is_list ? 1 : count, cold);
    for (size_t i = 0; i < values.size(); i++) {
      const uint64_t number = pick(8) == 7 ? near(classes) : pick(classes);
      values[i] = bytes_of(number, 8);
      made.fails = made.fails || (number >= classes && !ignores);
      if (number < classes) made.values[is_list ? 0 : i].replace(number * size, size, one(on, number));
    }
    if (!values.empty() || pick(2) == 1) put(r, feature_of(DType::int64, values));
  }
}

// What one name or several stand for: rows of a table, numbers of a vocabulary, or hashes. Names are BYTES or INT64.
inline void Model::keys() {
  static const ModelTables all;
  constexpr const char* where[] = {"", "resident: true", "on_device: true"};
  const size_t t = pick(ModelTables::count);
  const ModelTables::Table& table = all.tables[t];
  const uint64_t kind = pick(3), by = pick(3), how = pick(3);
  const bool is_lookup = kind == 0, is_hash = kind == 2, by_row = is_lookup && by == 0, is_text = by == 1;
  const std::vector<int64_t> axes(pick(3), static_cast<int64_t>(1 + pick(pick(4) == 3 ? 20 : 3)));
  const auto count = static_cast<size_t>(Shape(axes).elements());
  const uint64_t number = pick(2) == 1 ? near(table.rows) : 1 + pick(9), most = number % (uint64_t{1} << 31),
                 buckets = 1 + most,
                 unknown = is_lookup         ? number % table.rows
                           : number % 2 == 1 ? ~most
                                             : most;  // ~0 is -1
  const bool has_unknown = how == 1 || (how == 2 && is_lookup), has_buckets = how == 2 && !is_lookup;
  Finish cast{"", DType::int64};
  if (is_lookup) cast = finish(table.dtype, table.shape.rank() == 0 ? 1 : static_cast<size_t>(table.shape.end()[-1]));
  const bool is_narrow = !has_buckets || table.rows + buckets <= uint64_t{1} << 31;
  if (!is_lookup && is_narrow && pick(2) == 1) cast = {"dtype: INT32", DType::int32};
  const std::string named = declare(is_text ? DType::bytes : DType::int64,
                                    fmt::format("shape: [{}]", fmt::join(axes, ","))),
                    file = all.dir.file(std::to_string(t)),
                    names = is_text ? file + (is_lookup ? ".txt" : ".words") : file + ".numbers",
                    keys_file = by_row ? "" : "keys_file: '" + names + "'",
                    other = has_unknown   ? fmt::format("unknown: {}", static_cast<int64_t>(unknown))
                            : has_buckets ? fmt::format("unknown_buckets: {}", buckets)
                                          : "";
  std::vector<int64_t> shape = axes;
  if (is_lookup) shape.insert(shape.end(), table.shape.begin(), table.shape.end());
  ModelOutput& output = add(Kind::dense, cast.dtype, Shape(shape),
                            fmt::format("feature: '{}' {} {}", named,
                                        is_hash     ? fmt::format("hash {{ buckets: {} }}", buckets)
                                        : is_lookup ? fmt::format("lookup {{ table: '{}.npy' {} {} {} }}", file,
                                                                  keys_file, where[pick(3)], other)
                                                    : fmt::format("vocabulary {{ {} {} }}", keys_file, other),
                                        cast.text));
  const size_t size = size_of(table.dtype), cells = static_cast<size_t>(table.shape.elements());
  const auto row_of = [&](const std::string& stored) {
    std::string row;
    for (size_t i = 0; i < cells; i++)
      row += cast(table.dtype, bits_of(std::string_view(stored).substr(i * size, size)), i);
    return row;
  };
  for (size_t i = 0; i < count; i++)
    output.zeros += is_lookup ? row_of(std::string(cells * size, '\0')) : cast(DType::int64, 0);
  for (size_t r = 0; r < records.size(); r++) {
    Made& made = output.of_record[r];
    std::vector<std::string> values;
    for (size_t i = 0; i < count; i++) {
      const uint64_t row = pick(8) == 7 ? near(table.rows) : pick(table.rows);
      const bool is_known = row < table.rows;
      const int64_t name = by_row ? static_cast<int64_t>(row) : ModelTables::number_of(row);
      const std::string said = !is_text    ? std::to_string(name)
                               : is_lookup ? ModelTables::name_of(row)
                                           : ModelTables::word_of(row);
      values.push_back(is_text ? said : bytes_of(static_cast<uint64_t>(name), 8));
      made.fails = made.fails || (!is_hash && !is_known && !has_unknown && !has_buckets);
      const uint64_t found = is_known ? row : has_buckets ? table.rows + slow_fingerprint(said) % buckets : unknown;
      made.values.push_back(is_hash     ? cast(DType::int64, slow_fingerprint(said) % buckets)
                            : is_lookup ? row_of(all.row_of(t, found))
                                        : cast(DType::int64, found));
    }
    put(r, feature_of(is_text ? DType::bytes : DType::int64, values));
  }
}

// Where a row comes from, and a formula that is a feature and so cannot be normalised.
inline void Model::place() {
  const std::string named = declare(DType::int64, "");
  const std::string from[] = {"feature: '@record'", "feature: '@source'", "expression { formula: '" + named + "' }"};
  for (const size_t what : {pick(2), uint64_t{2}}) {
    Finish cast = finish(DType::int64, 1);
    if (what == 2) cast = {fmt::format("dtype: {}", name(cast.dtype)), cast.dtype};
    ModelOutput& output = add(Kind::dense, cast.dtype, {}, from[what] + " " + cast.text);
    output.zeros = cast(DType::int64, 0);
    for (size_t r = 0; r < records.size(); r++) {
      const std::string value = what == 2 ? any_bytes(8) : bytes_of(what == 0 ? r : 0, 8);
      if (what == 2) put(r, feature_of(DType::int64, {value}));
      output.of_record[r].values = {cast(DType::int64, bits_of(value))};
    }
  }
}

// Any number of values and steps, up to the most and beyond.
inline void Model::lists() {
  const DType stored = pick(3) == 2 ? DType::bytes : stored_number();
  const bool in_list = sequence && pick(2) == 1, padded = pick(2) == 1, is_text = stored == DType::bytes;
  const size_t each = padded ? 1 + pick(3) : 1, most = pick(2) == 1 ? each * (1 + pick(6)) : 0;
  const Finish cast = is_text ? Finish{"", stored} : finish(stored, 1);
  const auto made_of = [&](const std::string& value) { return is_text ? value : cast(stored, bits_of(value)); };
  const std::string named = declare(
      stored,
      fmt::format("kind: {} {} {}", padded ? "FIXED_SEQUENCE" : "RAGGED",
                  each > 1 ? fmt::format("shape: {}", each) : "", most > 0 ? fmt::format("max_values: {}", most) : ""),
      in_list);
  ModelOutput& output = add(padded    ? Kind::padded
                            : in_list ? Kind::nested
                                      : Kind::ragged,
                            cast.dtype, each > 1 ? Shape{static_cast<int64_t>(each)} : Shape(),
                            fmt::format("feature: '{}' {}", named, cast.text));
  output.zeros = made_of(std::string(size_of(stored), '\0'));
  for (size_t r = 0; r < records.size(); r++) {
    if (pick(8) == 7) continue;  // it lacks the feature
    Made& made = output.of_record[r];
    std::vector<std::string> steps;
    const uint64_t bound = most > 0 ? most / each : 4;
    const size_t count =
        rarely() ? std::min<uint64_t>(near(bound), 40) : pick(bound + 1) / (in_list && !padded && most > 0 ? 2 : 1);
    for (size_t s = 0; s < (in_list ? count : 1); s++) {
      std::vector<std::string> values(in_list ? (padded ? each : pick(4))
                                              : count * each + (each > 1 && rarely() ? 1 : 0));
      for (std::string& value : values) {
        value = any_bytes(is_text ? pick(12) : size_of(stored));
        made.values.push_back(made_of(value));
      }
      made.ends.push_back(made.values.size());
      steps.push_back(feature_of(stored, values));
    }
    in_list ? put_steps(r, steps) : put(r, steps[0]);
    if (made.values.size() % each != 0 || (most > 0 && std::max(made.values.size(), in_list ? steps.size() : 0) > most))
      bad[r] = true;
  }
}

// FIXED values of BYTES: some of one length, which may be delivered as UINT8.
inline void Model::blobs() {
  const bool has_length = pick(2) == 1, dense = has_length && pick(2) == 1, has_default = pick(2) == 1;
  const size_t length = 1 + pick(70);
  std::vector<int64_t> axes(pick(2), static_cast<int64_t>(pick(4) + (has_length ? 1 : 0)));
  const auto count = static_cast<size_t>(Shape(axes).elements());
  const std::string ready(length, 'd');
  const std::string named = declare(
      DType::bytes,
      fmt::format("shape: [{}] {} {}", fmt::join(axes, ","), has_length ? fmt::format("length: {}", length) : "",
                  has_default ? fmt::format("default_value {{ bytes_value: '{}' }}", ready) : ""));
  if (dense) axes.push_back(static_cast<int64_t>(length));
  ModelOutput& output = add(dense ? Kind::dense : Kind::fixed, dense ? DType::uint8 : DType::bytes, Shape(axes),
                            fmt::format("feature: '{}' dtype: {}", named, dense ? "UINT8" : "BYTES"));
  output.zeros.assign(count * length, '\0');
  for (size_t r = 0; r < records.size(); r++) {
    std::vector<std::string>& values = output.of_record[r].values;
    const bool lacks = has_default && pick(4) == 3;
    for (size_t i = 0; i < count; i++)
      values.push_back(lacks ? ready : any_bytes(has_length ? length + (rarely() ? 1 : 0) : pick(30)));
    if (!lacks) put(r, wire::bytes_feature(values));
    for (const std::string& value : values) bad[r] = bad[r] || (has_length && value.size() != length);
  }
}

// Encoded pictures of one size, one in each record or several. Some are broken, or have too many pixels.
inline void Model::frames() {
  constexpr int64_t most_pixels = 16;
  const bool in_list = sequence && pick(2) == 1, is_fixed = !in_list && pick(2) == 1;
  const size_t most = 1 + pick(3);
  keeps = keeps || (is_fixed && most == 1);
  const DType dtype = any_number();
  const auto height = static_cast<int64_t>(1 + pick(3)), width = static_cast<int64_t>(1 + pick(3));
  const std::string named = declare(
      DType::bytes, fmt::format("{}: {}", is_fixed ? "shape" : "kind: FIXED_SEQUENCE max_values", most), in_list);
  Shape shape{height, width, 1};
  if (is_fixed) shape = shape.with_rows(static_cast<int64_t>(most));
  ModelOutput& output =
      add(is_fixed ? Kind::dense : Kind::made, dtype, shape,
          fmt::format("feature: '{}' decode_image {{ channels: 1 max_pixels: {} }} crop {{ size: [{}, {}] }} dtype: {}",
                      named, most_pixels, height, width, name(dtype)));
  output.zeros.assign(static_cast<size_t>(shape.elements()) * size_of(dtype), '\0');
  // A good picture, one with too many pixels, and one that is cut short.
  const std::string pixels = any_bytes(static_cast<size_t>(height * width));
  std::string tensor;
  for (const char pixel : pixels)
    tensor += bytes_of(convert(DType::uint8, dtype, static_cast<uint8_t>(pixel)), size_of(dtype));
  Pixels picture{width, height, 1, {pixels.begin(), pixels.end()}};
  std::string encoded[3] = {to_png(picture)};
  picture.height = most_pixels + 1;
  picture.bytes.resize(static_cast<size_t>(picture.height * width));
  encoded[1] = to_png(picture);
  encoded[2] = encoded[0].substr(0, pick(encoded[0].size() / 2));
  for (size_t r = 0; r < records.size(); r++) {
    Made& made = output.of_record[r];
    std::vector<std::string> steps, values(is_fixed ? most : pick(most + 1) + (rarely() ? 1 : 0));
    for (std::string& value : values) {
      const size_t which = rarely() ? 1 + pick(2) : 0;
      value = encoded[which];
      made.values.push_back(tensor);
      made.fails = made.fails || which > 0;
      steps.push_back(wire::bytes_feature({value}));
    }
    in_list ? put_steps(r, steps) : put(r, wire::bytes_feature(values));
    bad[r] = bad[r] || values.size() > most;
  }
}

inline Model::Model(Draw& draw) : sequence(draw.below(4) == 3), draw_(draw) {
  constexpr uint64_t few[] = {1, 2, 3, 4, 5, 6, 8, 11}, many[] = {65, 257};  // 256 rows are a block
  records.resize(std::min<uint64_t>(draw.near(draw.below(32) == 31 ? draw.one_of(many) : draw.one_of(few)), 260));
  bad.resize(records.size());
  context_.resize(records.size());
  lists_.resize(records.size());
  constexpr void (Model::*kinds[])() = {&Model::numbers, &Model::stack,  &Model::raw,     &Model::bits,
                                        &Model::one_hot, &Model::lookup, &Model::place,   &Model::lists,
                                        &Model::blobs,   &Model::frames, &Model::vectors, &Model::keys};
  std::vector<void (Model::*)()> chosen(1 + draw.below(4) / 2);
  for (auto& kind : chosen) kind = draw.one_of(kinds);
  for (const auto kind : chosen) (this->*kind)();
  for (size_t r = 0; r < records.size(); r++)
    records[r] =
        sequence ? wire::delimited(1, context_[r]) + wire::delimited(2, lists_[r]) : wire::example(context_[r]);
}

}  // namespace feedline::test
