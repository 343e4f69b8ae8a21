#include "gpu/bit_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <unordered_map>

#include "gpu/dispatch.h"
#include "gpu/unpack_steps.h"

namespace feedline::gpu {
namespace {

// Keeps equal tables once: neighbouring blocks mostly share theirs.
template <typename T>
class Pool {
 public:
  explicit Pool(std::vector<T>& all) : all_(all) {}
  uint32_t add(const std::vector<T>& one) {
    const std::string key(reinterpret_cast<const char*>(one.data()), one.size() * sizeof(T));
    const auto [at, is_new] = seen_.try_emplace(key, static_cast<uint32_t>(seen_.size()));
    if (is_new) all_.insert(all_.end(), one.begin(), one.end());
    return at->second;
  }

 private:
  std::vector<T>& all_;
  std::unordered_map<std::string, uint32_t> seen_;
};

// What a bit becomes, in channel c.
void compute(const UnpackSpec& spec, int64_t channel, uint32_t bit, std::byte* to) {
  with_type(spec.out, [&](auto type) {
    using Out = typename decltype(type)::t;
    const Steps steps = steps_of(spec, channel);
    const Out value = spec.sign_extend ? apply<Out>(steps, sign_extended(bit, 1)) : apply<Out>(steps, bit);
    std::memcpy(to, &value, sizeof(value));
  });
}

}  // namespace

BitPlan::BitPlan(const UnpackSpec& spec, const Layout& layout, const Kernels& kernels)
    : kernel_(kernels.bits[std::countr_zero(size_of(spec.out))]) {
  const size_t lanes = kernels.lanes, window = kernels.window, size = size_of(spec.out);
  const auto elements = static_cast<size_t>(spec.shape.elements());
  const uint64_t row_bytes = spec.row_bytes();
  const uint64_t last_window = row_bytes > window ? row_bytes - window : 0;

  const int64_t channels = spec.channel_axis < 0 ? 1 : spec.shape[spec.channel_axis];
  std::vector<std::byte> values(2 * channels * size);
  for (int64_t c = 0; c < channels; c++)
    for (uint32_t bit : {0, 1}) compute(spec, c, bit, values.data() + (2 * c + bit) * size);

  Pool pick_pool(picks_), bit_pool(bits_);
  std::vector<std::byte> both;  // low and high of all kinds of blocks
  Pool value_pool(both);
  std::vector<uint64_t> bytes(lanes);
  std::vector<uint8_t> pick(lanes), bit_of_lane(lanes);
  std::vector<std::byte> low_high(2 * lanes * size);

  std::vector<int64_t> index(layout.axes.size());
  for (size_t first = 0; first < elements; first += lanes) {
    for (size_t lane = 0; lane < lanes; lane++) {
      if (first + lane >= elements) {  // filled up
        bytes[lane] = bytes[0];
        bit_of_lane[lane] = bit_of_lane[0];
        std::copy_n(low_high.begin(), size, low_high.begin() + lane * size);
        std::copy_n(low_high.begin() + lanes * size, size, low_high.begin() + (lanes + lane) * size);
        continue;
      }
      int64_t bit = layout.base, channel = 0;
      for (size_t axis = 0; axis < index.size(); axis++) {
        bit += index[axis] * layout.axes[axis].stride;
        if (!layout.axes[axis].channel) continue;
        channel = index[axis];
        if (!layout.channel_offset.empty()) bit += layout.channel_offset[channel];
      }
      bytes[lane] = static_cast<uint64_t>(bit / 8);
      bit_of_lane[lane] = static_cast<uint8_t>(1 << (spec.lsb_first ? bit % 8 : 7 - bit % 8));
      const std::byte* value = values.data() + 2 * channel * size;
      std::copy_n(value, size, low_high.begin() + lane * size);
      std::copy_n(value + size, size, low_high.begin() + (lanes + lane) * size);
      for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == layout.axes[axis].length;) index[axis] = 0;
    }

    BitLayout::Block block{static_cast<uint32_t>(windows_.size()), 0, bit_pool.add(bit_of_lane),
                           value_pool.add(low_high)};
    std::vector<uint64_t> missing(bytes);
    std::sort(missing.begin(), missing.end());
    while (!missing.empty()) {
      const uint64_t begin = std::min(missing.front(), last_window);
      for (size_t lane = 0; lane < lanes; lane++) {
        const bool inside = bytes[lane] >= missing.front() && bytes[lane] < begin + window;
        pick[lane] = inside ? static_cast<uint8_t>(bytes[lane] - begin) : 0x80;
      }
      windows_.push_back({begin, pick_pool.add(pick)});
      block.windows++;
      missing.erase(missing.begin(), std::lower_bound(missing.begin(), missing.end(), begin + window));
    }
    blocks_.push_back(block);
  }

  const size_t half = lanes * size;
  for (size_t at = 0; at < both.size(); at += 2 * half) {
    low_.insert(low_.end(), both.begin() + at, both.begin() + at + half);
    high_.insert(high_.end(), both.begin() + at + half, both.begin() + at + 2 * half);
  }
  layout_ = {.elements = elements,
             .row_bytes = row_bytes,
             .blocks = blocks_.data(),
             .windows = windows_.data(),
             .picks = picks_.data(),
             .bits = bits_.data(),
             .low = low_.data(),
             .high = high_.data(),
             .low_is_zero = std::all_of(low_.begin(), low_.end(), [](std::byte b) { return b == std::byte{0}; })};
}

void BitPlan::run(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride) const noexcept {
  kernel_(layout_, rows.data(), rows.size(), out, out_stride);
}

}  // namespace feedline::gpu
