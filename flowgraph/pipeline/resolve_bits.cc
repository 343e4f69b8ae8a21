#include <fmt/format.h>

#include <set>
#include <utility>

#include "flowgraph/pipeline/output_resolver.h"
#include "flowgraph/pipeline/resolve_features.h"

namespace feedline::flow {
namespace {

// Returns the smallest integer type that holds a bit field, like np.unpackbits, which gives uint8 for bits.
DType integer_for(int width, bool sign) {
  if (width <= 8) return sign ? DType::int8 : DType::uint8;
  if (width <= 16) return sign ? DType::int16 : DType::uint16;
  return sign ? DType::int32 : DType::uint32;
}

void order_channels(OutputResolver& of, const config::UnpackBits& bits, unpack::UnpackSpec& unpack) {
  constexpr std::string_view field = "unpack_bits.channel_order";
  const size_t rank = unpack.shape.rank();
  if (rank == 0) of.refuse(field, "a scalar has no channels; give unpack_bits.shape");
  const int64_t channels = unpack.shape[rank - 1];
  if (bits.channel_order_size() != channels)
    of.refuse(field, fmt::format("{} channel numbers are given, but shape {} has {} channels; give one number for each "
                                 "channel",
                                 bits.channel_order_size(), to_string(unpack.shape), channels));
  std::set<int> used;
  for (int stored : bits.channel_order()) {
    if (stored < 0 || stored >= channels)
      of.refuse(field, fmt::format("there is no channel {}; the stored channels are 0 to {}", stored, channels - 1));
    if (!used.insert(stored).second)
      of.warnings.push_back(fmt::format("{}: {}: channel {} is named twice, so at least one channel is not delivered",
                                        of.path, field, stored));
    unpack.channel_bits.push_back(int64_t{stored} * unpack.width);
  }
  unpack.stride_bits[rank - 1] = 0;  // channel_bits has the whole offset of a channel
}

}  // namespace

void resolve_bits(OutputResolver& of) {
  const int number = of.bytes_feature("unpack_bits");
  const FeatureSpec& from = of.feature(number);
  const config::UnpackBits& bits = of.config.unpack_bits();
  unpack::UnpackSpec unpack;
  unpack.width = bits.width() == 0 ? 1 : bits.width();
  if (unpack.width < 1 || unpack.width > 32)
    of.refuse("unpack_bits.width", fmt::format("{}; it must be 1 to 32 bits", bits.width()));
  unpack.sign_extend = bits.sign_extend();
  unpack.lsb_first = bits.bit_order() == config::UnpackBits::LITTLE;
  unpack.bit_offset = bits.bit_offset();
  unpack.shape = resolve_shape(bits.shape(), of.path + ": unpack_bits.shape", 1);
  unpack.stride_bits = row_major(unpack.shape, unpack.width);
  const int64_t wanted = unpack.shape.elements() * unpack.width;
  if (unpack.bit_offset < 0)
    of.refuse("unpack_bits.bit_offset", fmt::format("{} is negative; write 0 or more", unpack.bit_offset));
  if (from.length < 0)
    of.refuse(
        "unpack_bits",
        fmt::format("the length of feature '{0}' must be known; write length: {1} in feature '{0}', or more if other "
                    "bytes follow",
                    from.name, unpack.bit_offset / 8 + (unpack.bit_offset % 8 + wanted + 7) / 8));
  const int64_t available = from.length * 8;
  if (unpack.bit_offset > available || wanted > available - unpack.bit_offset)
    of.refuse("unpack_bits", fmt::format("{} bits from bit {} on are needed, but feature '{}' has {} bits ({} bytes); "
                                         "correct 'shape', 'width' or bit_offset of unpack_bits, or the feature's "
                                         "'length'",
                                         wanted, unpack.bit_offset, from.name, available, from.length));

  const size_t rank = unpack.shape.rank();
  if (bits.channel_order_size() > 0) order_channels(of, bits, unpack);
  // The last axis has the channels. With three axes that is the layout HWC.
  int channel_axis = static_cast<int>(rank) - 1;
  unpack.scale = of.channel_values("unpack_bits.scale", bits.scale(), unpack.shape, channel_axis);
  unpack.bias = of.channel_values("unpack_bits.bias", bits.bias(), unpack.shape, channel_axis);
  const int turned = of.turn(unpack, rank == 3 ? ImageLayout::hwc : ImageLayout::unknown);
  if (rank == 3) channel_axis = turned;
  of.finish(
      unpack, channel_axis,
      unpack.scale.empty() && unpack.bias.empty() ? integer_for(unpack.width, unpack.sign_extend) : DType::float32);
  of.output.shape = unpack.shape;
  of.add_job({.number = number}, std::move(unpack));
}

}  // namespace feedline::flow
