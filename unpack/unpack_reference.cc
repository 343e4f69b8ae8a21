// Follows the definition of unpack/unpack_spec.h literally, one element after another.
#include <cstring>

#include "unpack/channel_math.h"
#include "unpack/dispatch.h"
#include "unpack/element.h"
#include "unpack/unpack_spec.h"

namespace feedline::unpack {

void unpack_reference(const UnpackSpec& spec, std::span<const std::byte* const> rows, std::byte* out) {
  const int64_t elements = spec.shape.elements();
  for (const std::byte* row : rows) {
    for (int64_t element = 0; element < elements; element++, out += size_of(spec.out)) {
      int64_t bit = spec.bit_offset, channel = 0, rest = element;
      for (int axis = static_cast<int>(spec.shape.rank()) - 1; axis >= 0; axis--) {
        const int64_t index = rest % spec.shape[axis];
        rest /= spec.shape[axis];
        bit += index * spec.stride_bits[axis];
        if (axis == spec.channel_axis) channel = index;
      }
      if (!spec.channel_bits.empty()) bit += spec.channel_bits[channel];

      const ChannelMath steps = steps_of(spec, channel);
      const auto store = [&](auto value) {
        with_type(spec.out, [&](auto to) {
          const auto result = apply<typename decltype(to)::t>(steps, value);
          std::memcpy(out, &result, sizeof(result));
        });
      };
      if (spec.stored != DType::unset)
        with_type(spec.stored,
                  [&](auto from) { store(read_element<typename decltype(from)::t>(row + bit / 8, spec.big_endian)); });
      else if (const uint32_t field = read_bits(row, bit, spec.width, spec.lsb_first); spec.sign_extend)
        store(sign_extended(field, spec.width));
      else
        store(field);
    }
  }
}

}  // namespace feedline::unpack
