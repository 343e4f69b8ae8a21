#include "unpack/unpack_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/float_environment.h"
#include "feedline/error.h"
#include "unpack/channel_math.h"
#include "unpack/unpack_layout.h"

namespace feedline::unpack {
namespace {

using Op = UnpackKernel::Op;

// The maximum number of bytes in a table of values in which bytes are looked up (UnpackArgs::values). Each block of
// threads has the table in memory that all blocks of a multiprocessor share. A larger table could keep blocks out.
constexpr uint64_t most_values_bytes = 16384;

// Integers of at most this many bits are exact in float32, and are converted from float32.
constexpr int float_bits = 24;

Op op_of(const UnpackSpec& spec, uint64_t channels) {
  if (spec.stored == DType::unset)
    return spec.width == 1 ? Op::bits : spec.width <= float_bits ? Op::convert_float32 : Op::convert_int64;
  const bool steps = !spec.scale.empty() || !spec.bias.empty() || spec.normalize;
  if (spec.stored == spec.out && !steps && spec.stored != DType::boolean) return Op::copy;
  if (size_of(spec.stored) == 1 && channels * 256 * size_of(spec.out) <= most_values_bytes) return Op::lookup;
  switch (spec.stored) {
    case DType::float64:
      return Op::convert_float64;
    case DType::uint32:
    case DType::int32:
    case DType::int64:
      return Op::convert_int64;
    default:
      return Op::convert_float32;
  }
}

bool divides(uint64_t size, uint64_t value) { return value % size == 0; }

// Returns the largest power of 2, at most 16, such that all elements of a row lie at multiples of this number of bytes;
// 0 if an element begins within a byte. Where an element lies is a sum of multiples of `bits`, `offsets` and the
// strides of `axes`, all in bits.
uint64_t bytes_apart(std::initializer_list<int64_t> bits, std::span<const Axis> axes,
                     std::span<const int64_t> offsets) {
  uint64_t all = 128;
  for (const int64_t value : bits) all |= static_cast<uint64_t>(value);
  for (const Axis& axis : axes) all |= static_cast<uint64_t>(axis.stride);
  for (const int64_t offset : offsets) all |= static_cast<uint64_t>(offset);
  return (all & -all) / 8;
}

// Returns whether the elements of a row lie one after another in the order of the output.
bool is_dense(const Layout& layout, int64_t element_bits) {
  for (size_t i = layout.axes.size(); i-- > 0; element_bits *= layout.axes[i].length)
    if (layout.axes[i].stride != element_bits) return false;
  return layout.channel_offset.empty();
}

// Returns the kernel that writes the bytes of pixels to planes (PlanesOp); nullopt if no such kernel can run the spec.
std::optional<Op> planes_of(const UnpackSpec& spec, const Layout& layout) {
  constexpr Op kernels[] = {Op::planes2, Op::planes3, Op::planes4};
  if (size_of(spec.stored) != 1 || size_of(spec.out) > 4 || layout.axes.size() != 2 || !layout.channel_offset.empty())
    return std::nullopt;
  const Axis &channels = layout.axes[0], &pixels = layout.axes[1];
  if (channels.length > 4 || std::abs(channels.stride) != 8 || pixels.channel || pixels.stride != 8 * channels.length ||
      pixels.length % (size_of(spec.out) == 4 ? 4 : 8) != 0)
    return std::nullopt;
  return kernels[channels.length - 2];
}

}  // namespace

template <typename T>
size_t DeviceUnpacker::add_table(std::span<const T> values) {
  const size_t at = (tables_.size() + 15) / 16 * 16;
  tables_.resize(at + values.size_bytes());
  if (!values.empty()) std::memcpy(tables_.data() + at, values.data(), values.size_bytes());
  return at;
}

DeviceUnpacker::DeviceUnpacker(const UnpackSpec& spec) {
  const DefaultFloatEnvironment floats;
  validate(spec);
  constexpr uint64_t limit = uint64_t{1} << 31;
  const auto elements = static_cast<uint64_t>(spec.shape.elements());
  if (elements >= limit || spec.row_bytes() >= limit)
    throw Error(
        Category::bad_pipeline,
        fmt::format("a row of {} elements, made from {} bytes, cannot be unpacked on a GPU, because it must have less "
                    "than 2^31 elements and less than 2^31 bytes; make the row smaller, or set 'devices' to host",
                    elements, spec.row_bytes()));
  elements_ = static_cast<uint32_t>(elements);
  if (elements_ == 0) return;
  const Layout layout(spec);
  const Axis& last = layout.axes.back();
  args_.base = layout.base;
  args_.channel_axis = -1;
  for (const Axis& axis : layout.axes) {
    if (axis.channel) args_.channel_axis = args_.axes;
    args_.length[args_.axes] = Divisor(static_cast<uint32_t>(axis.length));
    args_.stride[args_.axes++] = axis.stride;
  }
  const uint64_t channels = args_.channel_axis < 0 ? 1 : args_.length[args_.channel_axis].value;
  const int64_t element_bits = static_cast<int64_t>(8 * size_of(spec.stored));
  kernel_ = {op_of(spec, channels), spec.out, true};
  planes_ = planes_of(spec, layout);
  if (planes_) kernel_.op = Op::lookup;
  with_kernel(kernel_, [&](auto op) { vector_ = static_cast<uint32_t>(decltype(op)::t::vector); });

  args_.stored = spec.stored;
  args_.width = spec.width;
  args_.sign_extend = spec.sign_extend;
  args_.lsb_first = spec.lsb_first;
  args_.big_endian = spec.big_endian && size_of(spec.stored) > 1;
  args_.in_runs = divides(vector_, static_cast<uint64_t>(last.length));
  const bool converts = kernel_.op >= Op::convert_int64, one_channel = args_.in_runs && !last.channel;
  may_be_vectors_ = divides(vector_, elements_) && (!converts || !layout.channel_steps || one_channel);
  if (element_bits > 0 && !args_.big_endian) {
    elements_apart_ = bytes_apart({layout.base}, layout.axes, layout.channel_offset);
    const auto outer = std::span(layout.axes).first(layout.axes.size() - 1);
    if (is_dense(layout, element_bits))
      vectors_apart_ = bytes_apart({layout.base}, {}, {});
    else if (args_.in_runs && last.stride == element_bits && (!last.channel || layout.channel_offset.empty()))
      vectors_apart_ = bytes_apart({layout.base}, outer, layout.channel_offset);
  }
  if (planes_ &&
      !divides(4, bytes_apart({layout.base + std::min<int64_t>(0, layout.axes[0].stride) * (layout.axes[0].length - 1)},
                              {}, {})))
    planes_.reset();

  has_channel_offset_ = !layout.channel_offset.empty();
  channel_offset_at_ = add_table(std::span(layout.channel_offset));
  std::vector<ChannelMath> steps;
  for (uint64_t channel = 0; channel < channels; channel++)
    steps.push_back(steps_of(spec, static_cast<int64_t>(channel)));
  steps_at_ = add_table(std::span<const ChannelMath>(steps));
  const size_t each = kernel_.op == Op::bits ? 2 : kernel_.op == Op::lookup ? 256 : 0, size = size_of(spec.out);
  std::vector<std::byte> values(each * channels * size);
  for (size_t number = 0; number < each * channels; number++) {
    const auto channel = static_cast<int64_t>(number / each);
    std::byte* const value = values.data() + number * size;
    if (kernel_.op == Op::bits)
      put_bit_value(spec, channel, static_cast<uint32_t>(number % each), value);
    else
      put_byte_value(spec, channel, static_cast<uint8_t>(number % each), value);
  }
  values_at_ = add_table(std::span<const std::byte>(values));
  args_.values_bytes = static_cast<uint32_t>(values.size());
}

std::vector<UnpackKernel> DeviceUnpacker::kernels() const {
  if (elements_ == 0) return {};
  std::vector<UnpackKernel> kernels{kernel_, {kernel_.op, kernel_.out, false}};
  if (planes_) kernels.push_back({*planes_, kernel_.out, true});
  return kernels;
}

UnpackLaunch DeviceUnpacker::launch(const DeviceRows& rows, const std::byte* tables) const noexcept {
  UnpackLaunch launch{kernel_, args_};
  if (elements_ == 0 || rows.count == 0) return launch;
  UnpackArgs& args = launch.args;
  args.in = rows.in;
  args.in_stride = rows.in_stride;
  args.numbers = rows.numbers;
  args.out = rows.out;
  args.out_stride = rows.out_stride;
  args.rows = rows.count;
  if (has_channel_offset_) args.channel_offset = reinterpret_cast<const int64_t*>(tables + channel_offset_at_);
  args.steps = reinterpret_cast<const ChannelMath*>(tables + steps_at_);
  args.values = tables + values_at_;

  // All input rows begin at multiples of a power of 2 if that divides `in`. The same holds for output rows and `out`.
  const uint64_t in = reinterpret_cast<uintptr_t>(rows.in) | (rows.count == 1 && !rows.numbers ? 0 : rows.in_stride);
  const uint64_t out = reinterpret_cast<uintptr_t>(rows.out) | (rows.count == 1 ? 0 : rows.out_stride);
  launch.kernel.vectors = may_be_vectors_ && divides(vector_ * size_of(kernel_.out), out);
  args.vectors = Divisor(launch.kernel.vectors ? elements_ / vector_ : elements_);
  if (planes_ && launch.kernel.vectors && divides(4, in)) {
    launch.kernel.op = *planes_;
    args.vectors = Divisor(args.length[1].value / vector_);
  }
  const uint64_t size = std::max<uint64_t>(1, size_of(args.stored)), at_once = std::min<uint64_t>(16, vector_ * size);
  args.load = launch.kernel.vectors && vectors_apart_ >= at_once && divides(at_once, in) ? Load::vectors
              : elements_apart_ >= size && divides(size, in)                             ? Load::elements
                                                                                         : Load::bytes;
  return launch;
}

}  // namespace feedline::unpack
