#include "unpack/tile_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "unpack/channel_math.h"
#include "unpack/dispatch.h"

namespace feedline::unpack {
namespace {

constexpr int64_t small_row = 64;      // elements; rows of at most this size share a tile
constexpr int64_t whole_vectors = 64;  // elements; if a tile has a multiple of this, no kernel has an incomplete vector
constexpr int64_t long_enough = 64;    // elements; this many, or more, of one channel are worth a tile of their own

}  // namespace

TilePlan::TilePlan(const UnpackSpec& spec, const Layout& layout, const Kernels& kernels, Stores stores)
    : kernels_(&kernels), base_(layout.base), row_bytes_(spec.row_bytes()) {
  const bool is_field = spec.stored == DType::unset;
  const DType stored = !is_field ? spec.stored : spec.sign_extend ? DType::int32 : DType::uint32;
  cast_ = kernels.cast[static_cast<int>(stored)][static_cast<int>(spec.out)];
  widen_ = kernels.cast[static_cast<int>(stored)][static_cast<int>(DType::float32)];
  round_ = kernels.cast[static_cast<int>(DType::float32)][static_cast<int>(spec.out)];
  stored_size_ = size_of(stored);
  log_size_ = std::countr_zero(stored_size_);
  out_size_ = size_of(spec.out);
  swap_ = spec.big_endian && !is_field && stored_size_ > 1;
  const ChannelMath steps = steps_of(spec, 0);
  affine_ = steps.affine;
  normalize_ = steps.normalize;
  if (stored == DType::uint8 && normalize_ && !affine_)
    normalize_bytes_ = kernels.normalize_bytes[static_cast<int>(spec.out)];
  copies_ = !is_field && stored == spec.out && stored != DType::boolean && !affine_ && !normalize_;
  fields_ = {spec.width, spec.sign_extend, spec.lsb_first, std::max<uint64_t>(row_bytes_, 8), nullptr};

  row_elements_ = static_cast<size_t>(spec.shape.elements());
  const Axis& last = layout.axes.back();
  const bool as_it_lies = !is_field && !swap_ && !affine_ && !normalize_ && !last.channel &&
                          last.stride == static_cast<int64_t>(8 * stored_size_) && last.length >= long_enough;
  const std::vector<Axis> inside = cut_rows(layout, as_it_lies);
  std::vector<int64_t> channels;
  if (!as_it_lies) channels = list_elements(layout, inside, is_field ? 1 : 8);
  if (uniform_) {
    channels.assign(1, 0);
    for (int64_t c = 1; outer_steps_ && c < spec.shape[spec.channel_axis]; c++) channels.push_back(c);
  }
  fill_arrays(spec, channels);

  gather_ = as_it_lies ? Gather::none : is_field ? Gather::fields : Gather::scattered;
  if (gather_ == Gather::scattered && !table_has_cut_) find_pattern(inside.back().length);
  copies_rows_ = copies_ && !swap_ && gather_ == Gather::none && outer_.empty() && step_ == cut_.length &&
                 base_ == spec.bit_offset;
  streams_ =
      rows_in_tile_ == 1 && (stores == Stores::streaming || (stores == Stores::streaming_copies && copies_rows_));
  // A row that would otherwise be one tile is cut if it is streamed, so that each tile is still in the first-level
  // cache when it is written.
  if (streams_ && as_it_lies) step_ = std::min<int64_t>(step_, tile_elements);
  const bool computes = affine_ || normalize_ || spec.out == DType::float16 || spec.out == DType::bfloat16;
  lookup_ = stored_size_ == 1 && uniform_ && computes ? kernels.lookup[std::countr_zero(out_size_)] : nullptr;
  if (lookup_) make_lookup_tables(spec, channels.size());
}

// Chooses how a row is divided into tiles (terms: tile_plan.h). As many of the last axes as fit are wholly inside a
// tile: the body. The axis before them is split among tiles: the cut. Returns the axes inside a tile: first the cut
// axis, then the body axes.
std::vector<Axis> TilePlan::cut_rows(const Layout& layout, bool as_it_lies) {
  const std::vector<Axis>& axes = layout.axes;
  size_t outer = axes.size();
  bool has_cut = true;
  if (as_it_lies) {  // nothing is gathered or kept in between, so a tile may have any size
    cut_ = axes[--outer];
    step_ = cut_.length;
  } else {
    while (outer > 0 && static_cast<int64_t>(body_) * axes[outer - 1].length <= static_cast<int64_t>(tile_elements))
      body_ *= static_cast<size_t>(axes[--outer].length);
    has_cut = outer > 0 && !(axes[outer - 1].channel && static_cast<int64_t>(body_) >= long_enough);
    if (has_cut) {
      cut_ = axes[--outer];
      step_ = std::min(cut_.length, static_cast<int64_t>(tile_elements / body_));
      if (step_ < cut_.length && step_ > whole_vectors) step_ -= step_ % whole_vectors;
    }
  }
  outer_.assign(axes.begin(), axes.begin() + outer);
  const size_t body_axes = outer + has_cut;  // the number of the body's first axis

  const bool outer_channel = std::any_of(outer_.begin(), outer_.end(), [](const Axis& axis) { return axis.channel; });
  if (outer_channel) outer_offset_ = layout.channel_offset;
  table_has_cut_ = cut_.channel && !layout.channel_offset.empty();
  uniform_ = outer_channel || !layout.channel_steps;
  outer_steps_ = outer_channel && layout.channel_steps;
  arrays_have_cut_ = !uniform_ && cut_.channel;
  if (outer_.empty() && !has_cut && static_cast<int64_t>(row_elements_) <= small_row)
    rows_in_tile_ = tile_elements / row_elements_;

  std::vector<Axis> inside(axes.begin() + body_axes, axes.end());
  inside.insert(inside.begin(), {table_has_cut_ || arrays_have_cut_ ? cut_.length : step_, cut_.stride, cut_.channel});
  return inside;
}

// Fills table_ with the offset, in a row, of each element of a tile. Returns the channel of each element.
std::vector<int64_t> TilePlan::list_elements(const Layout& layout, const std::vector<Axis>& inside, int64_t unit_bits) {
  std::vector<int64_t> channels, index(inside.size());
  const size_t entries = static_cast<size_t>(inside[0].length) * body_;
  for (size_t i = 0; i < entries; i++) {
    int64_t offset = 0, channel = 0;
    for (size_t axis = 0; axis < inside.size(); axis++) {
      offset += index[axis] * inside[axis].stride;
      if (!inside[axis].channel) continue;
      channel = index[axis];
      if (!layout.channel_offset.empty()) offset += layout.channel_offset[channel];
    }
    table_.push_back(offset / unit_bits);
    channels.push_back(channel);
    for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == inside[axis].length;) index[axis] = 0;
  }
  for (size_t row = 1; row < rows_in_tile_; row++)
    for (size_t i = 0; i < row_elements_; i++) channels.push_back(channels[i]);
  return channels;
}

void TilePlan::fill_arrays(const UnpackSpec& spec, const std::vector<int64_t>& channels) {
  for (int64_t channel : channels) {
    const ChannelMath steps = steps_of(spec, channel);
    if (affine_) {
      affine_arrays_.scale.push_back(steps.scale);
      affine_arrays_.bias_or_mean.push_back(steps.bias);
    }
    if (normalize_) {
      normalize_arrays_.scale.push_back(steps.normalize_scale);
      normalize_arrays_.bias_or_mean.push_back(steps.mean);
      normalize_arrays_.std.push_back(steps.std);
    }
  }
}

// Replaces the table by a stride if its entries follow a simple pattern.
void TilePlan::find_pattern(int64_t channels) {
  const auto is = [this](auto&& offset) {
    for (size_t i = 0; i < table_.size(); i++)
      if (table_[i] != offset(static_cast<int64_t>(i))) return false;
    return true;
  };
  const auto size = static_cast<int64_t>(stored_size_);
  const int64_t second = table_.size() > 1 ? table_[1] : size;
  if (is([&](int64_t i) { return i * second; })) {
    gather_ = second == size ? Gather::none : Gather::strided;
    gather_stride_ = second;
  } else if (is([&](int64_t i) { return i / channels * size + i % channels * second; })) {
    gather_ = Gather::interleave;
    gather_stride_ = second;
    channels_ = static_cast<size_t>(channels);
  }
}

void TilePlan::make_lookup_tables(const UnpackSpec& spec, size_t channels) {
  lookup_tables_.resize(channels * 256 * out_size_);
  std::byte* table = lookup_tables_.data();
  for (size_t c = 0; c < channels; c++, table += 256 * out_size_)
    for (size_t byte = 0; byte < 256; byte++) {
      std::byte value[8];
      put_byte_value(spec, static_cast<int64_t>(c), static_cast<uint8_t>(byte), value);
      for (size_t plane = 0; plane < out_size_; plane++) table[256 * plane + byte] = value[plane];
    }
}

std::string TilePlan::name() const {
  constexpr const char* gathers[] = {"contiguous", "strided", "interleave", "scattered", "fields"};
  std::string gather = gathers[static_cast<size_t>(gather_)];
  if (copies_) return gather;
  return gather + (lookup_ ? " lookup" : normalize_bytes_ ? " normalize" : affine_ || normalize_ ? " steps" : " cast");
}

const std::byte* TilePlan::gather(const std::byte* row, int64_t base, size_t first, std::byte* scratch,
                                  size_t n) const noexcept {
  if (gather_ == Gather::fields) {
    FieldLayout layout = fields_;
    layout.offset = table_.data() + first;
    kernels_->fields(layout, row, base, reinterpret_cast<uint32_t*>(scratch), n);
    return scratch;
  }
  const std::byte* from = row + base / 8;
  if (gather_ == Gather::strided) kernels_->strided[log_size_](from, gather_stride_, scratch, n);
  if (gather_ == Gather::interleave) kernels_->interleave[log_size_](from, gather_stride_, channels_, scratch, n);
  if (gather_ == Gather::scattered) kernels_->scattered[log_size_](from, table_.data() + first, scratch, n);
  if (gather_ != Gather::none) from = scratch;
  if (!swap_) return from;
  kernels_->swap[log_size_](from, scratch, n);
  return scratch;
}

void TilePlan::convert(const std::byte* in, std::byte* out, size_t n, size_t first) const noexcept {
  if (lookup_) return lookup_(in, out, n, lookup_tables_.data() + 256 * out_size_ * first);
  if (!affine_ && !normalize_) return cast_(in, out, n);
  if (normalize_bytes_) return normalize_bytes_(in, out, n, normalize_arrays_.from(first, uniform_));
  alignas(64) float values[tile_elements];
  auto* bytes = reinterpret_cast<std::byte*>(values);
  widen_(in, bytes, n);
  if (affine_) kernels_->affine(values, n, affine_arrays_.from(first, uniform_));
  if (normalize_) kernels_->normalize(values, n, normalize_arrays_.from(first, uniform_));
  round_(bytes, out, n);
}

void TilePlan::run(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride) const noexcept {
  if (rows_in_tile_ > 1) return run_small_rows(rows, out, out_stride);
  const bool streams = streams_ && reinterpret_cast<uintptr_t>(out) % 64 == 0 && out_stride % 64 == 0;
  if (copies_rows_ && !streams)
    return kernels_->copy_rows(rows.data(), base_ / 8, row_elements_ * out_size_, out, out_stride, rows.size());
  for (const std::byte* row : rows) {
    streams ? run_row<true>(row, out) : run_row<false>(row, out);
    out += out_stride;
  }
  if (streams) kernels_->fence();
}

// Streams a tile of a row that begins at a cache line. If the tile begins or ends within a cache line, ordinary stores
// write that part of the line.
void TilePlan::stream(const std::byte* tile, std::byte* out, size_t bytes) const noexcept {
  const size_t head = std::min(bytes, static_cast<size_t>(-reinterpret_cast<uintptr_t>(out) & 63));
  const size_t lines = (bytes - head) & ~size_t{63};
  std::memcpy(out, tile, head);
  kernels_->stream(tile + head, out + head, lines);
  std::memcpy(out + head + lines, tile + head + lines, bytes - head - lines);
}

template <bool streams>
void TilePlan::run_row(const std::byte* row, std::byte* out) const noexcept {
  std::byte padded[8] = {};
  if (gather_ == Gather::fields && row_bytes_ < sizeof(padded)) {
    std::memcpy(padded, row, row_bytes_);
    row = padded;
  }
  alignas(64) std::byte scratch[tile_elements * 8], tile[streams ? tile_elements * 8 : 1];
  int64_t index[Shape::max_rank] = {};
  for (;;) {
    int64_t base = base_;
    size_t channel = 0;
    for (size_t axis = 0; axis < outer_.size(); axis++) {
      base += index[axis] * outer_[axis].stride;
      if (!outer_[axis].channel) continue;
      channel = static_cast<size_t>(index[axis]);
      if (!outer_offset_.empty()) base += outer_offset_[channel];
    }
    // The index at which the tile's parameters begin in the arrays, unless the arrays have an entry for every index of
    // the cut.
    const size_t first = outer_steps_ ? channel : 0;
    for (int64_t start = 0; start < cut_.length; start += step_) {
      const size_t n = static_cast<size_t>(std::min(step_, cut_.length - start)) * body_;
      const size_t entry = static_cast<size_t>(start) * body_;
      std::byte* const to = streams ? tile : out;
      const std::byte* in = gather(row, table_has_cut_ ? base : base + start * cut_.stride, table_has_cut_ ? entry : 0,
                                   copies_ ? to : scratch, n);
      const bool is_ready = in == to || (streams && copies_);
      if (!is_ready) convert(in, to, n, arrays_have_cut_ ? entry : first);
      if constexpr (streams) stream(is_ready ? in : tile, out, n * out_size_);
      out += n * out_size_;
    }
    size_t axis = outer_.size();
    while (axis > 0 && ++index[axis - 1] == outer_[axis - 1].length) index[--axis] = 0;
    if (axis == 0) return;
  }
}

void TilePlan::run_small_rows(std::span<const std::byte* const> rows, std::byte* out,
                              size_t out_stride) const noexcept {
  alignas(64) std::byte gathered[tile_elements * 8], one[tile_elements * 8], converted[tile_elements * 8];
  const size_t row_out = row_elements_ * out_size_, row_in = row_elements_ * stored_size_;
  for (size_t done = 0; done < rows.size();) {
    const size_t n = std::min(rows_in_tile_, rows.size() - done);
    if (row_elements_ == 1 && gather_ == Gather::none) {
      kernels_->from_rows[log_size_](rows.data() + done, base_ / 8, gathered, n);
      if (swap_) kernels_->swap[log_size_](gathered, gathered, n);
    } else {
      for (size_t i = 0; i < n; i++) {
        const std::byte* row = rows[done + i];
        std::byte padded[8] = {};
        if (gather_ == Gather::fields && row_bytes_ < sizeof(padded)) {
          std::memcpy(padded, row, row_bytes_);
          row = padded;
        }
        std::memcpy(gathered + i * row_in, gather(row, base_, 0, one, row_elements_), row_in);
      }
    }
    const bool dense = out_stride == row_out;
    convert(gathered, dense ? out : converted, n * row_elements_, 0);
    if (!dense)
      for (size_t i = 0; i < n; i++) std::memcpy(out + i * out_stride, converted + i * row_out, row_out);
    out += n * out_stride;
    done += n;
  }
}

}  // namespace feedline::unpack
