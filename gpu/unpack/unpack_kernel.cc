#include "gpu/unpack/unpack_kernel.h"

#include <algorithm>
#include <cstring>

#include "base/float_environment.h"
#include "gpu/unpack/channel_math.h"
#include "gpu/unpack/unpack_layout.h"

namespace feedline::gpu {
namespace {

// About the most threads of a launch if rows are short: enough to fill a large GPU (132 multiprocessors with 2048
// threads each) several times. Further rows are done by the same threads.
constexpr uint64_t threads_at_once = uint64_t{1} << 20;

UnpackKernel::Op op_of(const UnpackSpec& spec) {
  using Op = UnpackKernel::Op;
  const bool steps = !spec.scale.empty() || !spec.bias.empty() || spec.normalize;
  if (spec.stored == DType::unset) return spec.width == 1 ? Op::bits : Op::convert_int64;
  if (spec.stored == spec.out && !steps && spec.stored != DType::boolean) return Op::copy;
  switch (spec.stored) {
    case DType::float64:
      return Op::convert_float64;
    case DType::float32:
    case DType::float16:
    case DType::bfloat16:
      return Op::convert_float32;
    default:
      return Op::convert_int64;
  }
}

bool divides(uint64_t size, uint64_t value) { return value % size == 0; }

}  // namespace

template <typename T>
size_t DeviceUnpacker::add_table(std::span<const T> values) {
  const size_t at = (tables_.size() + 15) / 16 * 16;
  tables_.resize(at + values.size_bytes());
  if (!values.empty()) std::memcpy(tables_.data() + at, values.data(), values.size_bytes());
  return at;
}

DeviceUnpacker::DeviceUnpacker(const UnpackSpec& spec) : kernel_{op_of(spec), spec.out, false} {
  const DefaultFloatEnvironment floats;
  validate(spec);
  elements_ = static_cast<uint64_t>(spec.shape.elements());
  if (elements_ == 0) return;
  const Layout layout(spec);
  args_.base = layout.base;
  args_.channel_axis = -1;
  for (const Axis& axis : layout.axes) {
    if (axis.channel) args_.channel_axis = args_.axes;
    args_.length[args_.axes] = static_cast<uint64_t>(axis.length);
    args_.stride[args_.axes++] = axis.stride;
  }
  args_.stored = spec.stored;
  args_.width = spec.width;
  args_.sign_extend = spec.sign_extend;
  args_.lsb_first = spec.lsb_first;
  args_.big_endian = spec.big_endian && size_of(spec.stored) > 1;

  if (const uint64_t bits = 8 * size_of(spec.stored); bits > 0) {
    may_be_aligned_ = divides(bits, static_cast<uint64_t>(layout.base));
    for (const Axis& axis : layout.axes)
      may_be_aligned_ = may_be_aligned_ && divides(bits, static_cast<uint64_t>(axis.stride));
    for (const int64_t offset : layout.channel_offset)
      may_be_aligned_ = may_be_aligned_ && divides(bits, static_cast<uint64_t>(offset));
  }

  has_channel_offset_ = !layout.channel_offset.empty();
  channel_offset_at_ = add_table(std::span(layout.channel_offset));
  const int64_t channels = args_.channel_axis < 0 ? 1 : static_cast<int64_t>(args_.length[args_.channel_axis]);
  std::vector<ChannelMath> steps;
  for (int64_t channel = 0; channel < channels; channel++) steps.push_back(steps_of(spec, channel));
  steps_at_ = add_table(std::span<const ChannelMath>(steps));
  std::vector<std::byte> values(kernel_.op == UnpackKernel::Op::bits ? 2 * steps.size() * size_of(spec.out) : 0);
  for (size_t i = 0; i < values.size(); i += size_of(spec.out)) {
    const size_t number = i / size_of(spec.out);
    put_bit_value(spec, static_cast<int64_t>(number / 2), number % 2, values.data() + i);
  }
  bit_values_at_ = add_table(std::span<const std::byte>(values));
}

UnpackLaunch DeviceUnpacker::launch(const DeviceRows& rows, const std::byte* tables) const noexcept {
  UnpackLaunch launch{kernel_, args_, 0};
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
  args.bit_values = tables + bit_values_at_;

  const uint64_t stored = std::max<uint64_t>(1, size_of(args.stored));
  args.aligned = may_be_aligned_ && divides(stored, reinterpret_cast<uintptr_t>(rows.in)) &&
                 ((rows.count == 1 && !rows.numbers) || divides(stored, rows.in_stride));
  with_kernel({kernel_.op, kernel_.out, true}, [&](auto op, auto) {
    using Out = typename decltype(op)::t::Out;
    constexpr uint64_t vector = vector_elements<Out>, bytes = vector * sizeof(Out);
    launch.kernel.vectors = divides(vector, elements_) && divides(bytes, reinterpret_cast<uintptr_t>(rows.out)) &&
                            (rows.count == 1 || divides(bytes, rows.out_stride));
    args.vectors = launch.kernel.vectors ? elements_ / vector : elements_;
  });
  args.row_groups = std::clamp<uint64_t>(threads_at_once / args.vectors, 1, rows.count);
  launch.threads = args.vectors * args.row_groups;
  return launch;
}

}  // namespace feedline::gpu
