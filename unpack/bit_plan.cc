#include "unpack/bit_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "unpack/channel_math.h"
#include "unpack/dispatch.h"

namespace feedline::unpack {
namespace {

// Stores tables. Equal tables are stored only once, because neighbouring blocks mostly have equal tables.
class Pool {
 public:
  /// Stores a table and returns its offset in all().
  size_t add(const std::string& table) {
    const auto [at, is_new] = seen_.try_emplace(table, all_.size());
    if (is_new) all_ += table;
    return at->second;
  }
  const std::string& all() const { return all_; }

 private:
  std::string all_;
  std::unordered_map<std::string, size_t> seen_;
};

// Finds out whether the recipes of the first `count` blocks repeat, and stores the result in `layout`
// (BitLayout::period). `count` leaves out the last block if it is padded.
void find_period(BitLayout& layout, size_t count) {
  const BitLayout::Block* const blocks = layout.blocks;
  for (const size_t period : {1, 3}) {
    if (count < 2 * period) return;
    const uint64_t step = blocks[period].byte - blocks[0].byte;  // modulo 2^64
    size_t same = period;
    while (same < count && blocks[same].recipe == blocks[same - period].recipe &&
           blocks[same].byte == blocks[same - period].byte + step)
      same++;
    same -= same % period;
    if (same < 2 * period || same <= layout.repeated) continue;
    layout.period = period;
    layout.repeated = same;
    layout.repeated_bytes = static_cast<ptrdiff_t>(step);
  }
}

}  // namespace

BitPlan::BitPlan(const UnpackSpec& spec, const Layout& layout, const Kernels& kernels)
    : kernel_(kernels.bits[std::countr_zero(size_of(spec.out))]) {
  build(spec, layout, kernels.lanes, kernels.small_window);
  if (!layout_.one_window && kernels.window != kernels.small_window) build(spec, layout, kernels.lanes, kernels.window);
}

void BitPlan::build(const UnpackSpec& spec, const Layout& layout, size_t lanes, size_t window) {
  const size_t size = size_of(spec.out);
  const auto elements = static_cast<size_t>(spec.shape.elements());
  const uint64_t row_bytes = spec.row_bytes();
  const uint64_t last_window = row_bytes > window ? row_bytes - window : 0;

  const int64_t channels = spec.channel_axis < 0 ? 1 : spec.shape[spec.channel_axis];
  std::string values(2 * channels * size, '\0');  // for each channel, the values for 0 and for 1
  for (int64_t c = 0; c < channels; c++)
    for (uint32_t bit : {0, 1}) put_bit_value(spec, c, bit, values.data() + (2 * c + bit) * size);

  Pool recipes, picks;
  std::vector<size_t> recipe_of_block, picks_of_window;  // offsets into `recipes` and `picks`
  blocks_.clear();
  windows_.clear();
  const size_t high = 2 * lanes, low = high + lanes * size;
  std::string recipe(low + lanes * size, '\0'), pick(lanes, '\0');
  std::vector<uint64_t> bytes(lanes);
  bool low_is_zero = true;

  std::vector<int64_t> index(layout.axes.size());
  for (size_t first = 0; first < elements; first += lanes) {
    for (size_t lane = 0; lane < lanes; lane++) {
      if (first + lane >= elements) {  // padding of the last block
        bytes[lane] = bytes[0];
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
      recipe[lanes + lane] = static_cast<char>(1 << (spec.lsb_first ? bit % 8 : 7 - bit % 8));
      const std::string_view value(values.data() + 2 * channel * size, 2 * size);
      value.copy(recipe.data() + low + lane * size, size);
      value.copy(recipe.data() + high + lane * size, size, size);
      low_is_zero = low_is_zero && value.substr(0, size).find_first_not_of('\0') == std::string::npos;
      for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == layout.axes[axis].length;) index[axis] = 0;
    }

    // Chooses the block's windows (see BitLayout). Each begins at the first byte that the block needs and that is in no
    // window yet; or before that byte, if the window would otherwise reach beyond the row.
    BitLayout::Block block{0, nullptr, static_cast<uint32_t>(windows_.size()), 0};
    std::vector<uint64_t> missing(bytes);
    std::sort(missing.begin(), missing.end());
    for (bool is_first = true; !missing.empty(); is_first = false) {
      const uint64_t begin = std::min(missing.front(), last_window), end = begin + window;
      for (size_t lane = 0; lane < lanes; lane++) {
        const bool inside = bytes[lane] >= missing.front() && bytes[lane] < end;
        pick[lane] = static_cast<char>(inside ? bytes[lane] - begin : 128);
      }
      if (is_first) {
        block.byte = begin;
        pick.copy(recipe.data(), lanes);
      } else {
        windows_.push_back({begin, nullptr});
        picks_of_window.push_back(picks.add(pick));
        block.more_windows++;
      }
      missing.erase(missing.begin(), std::lower_bound(missing.begin(), missing.end(), end));
    }
    blocks_.push_back(block);
    recipe_of_block.push_back(recipes.add(recipe));
  }

  recipes_.assign(recipes.all().begin(), recipes.all().end());
  picks_.assign(picks.all().begin(), picks.all().end());
  const auto at = [](const aligned_vector<char>& tables, size_t offset) {
    return reinterpret_cast<const std::byte*>(tables.data() + offset);
  };
  for (size_t i = 0; i < blocks_.size(); i++) blocks_[i].recipe = at(recipes_, recipe_of_block[i]);
  for (size_t i = 0; i < windows_.size(); i++) windows_[i].picks = at(picks_, picks_of_window[i]);
  layout_ = {.elements = elements,
             .row_bytes = row_bytes,
             .window = window,
             .blocks = blocks_.data(),
             .windows = windows_.data(),
             .one_window = windows_.empty(),
             .low_is_zero = low_is_zero};
  if (layout_.one_window) find_period(layout_, elements / lanes);
}

void BitPlan::run(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride) const noexcept {
  kernel_(layout_, rows.data(), rows.size(), out, out_stride);
}

}  // namespace feedline::unpack
