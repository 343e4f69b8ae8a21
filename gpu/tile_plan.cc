#include "gpu/tile_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gpu/dispatch.h"
#include "gpu/unpack_steps.h"

namespace feedline::gpu {
namespace {

constexpr int64_t small_row = 64;      // elements: several such rows share a tile
constexpr int64_t whole_vectors = 64;  // elements: a cut at a multiple of them leaves kernels no rest
constexpr int64_t long_enough = 64;    // elements of one channel that are worth a tile

}  // namespace

TilePlan::TilePlan(const UnpackSpec& spec, const Layout& layout, const Kernels& kernels)
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
  const Steps steps = steps_of(spec, 0);
  affine_ = steps.affine;
  normalize_ = steps.normalize;
  if (stored == DType::uint8 && normalize_ && !affine_)
    normalize_bytes_ = kernels.normalize_bytes[static_cast<int>(spec.out)];
  copies_ = !is_field && stored == spec.out && stored != DType::boolean && !affine_ && !normalize_;
  fields_ = {spec.width, spec.sign_extend, spec.lsb_first, std::max<uint64_t>(row_bytes_, 8), nullptr};

  // The body, as many axes as fit; then the cut.
  row_elements_ = static_cast<size_t>(spec.shape.elements());
  const std::vector<Axis>& axes = layout.axes;
  const auto element_bits = static_cast<int64_t>(8 * stored_size_);
  const bool as_it_lies = !is_field && !swap_ && !affine_ && !normalize_ && axes.back().stride == element_bits &&
                          !axes.back().channel && axes.back().length >= long_enough;
  size_t outer = axes.size();
  bool has_cut = true;
  if (as_it_lies) {  // nothing is gathered or kept between, so no tile bounds it
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
  const size_t body_axes = outer + has_cut;  // number of the first

  const bool outer_channel = std::any_of(outer_.begin(), outer_.end(), [](const Axis& axis) { return axis.channel; });
  if (outer_channel) outer_offset_ = layout.channel_offset;
  table_has_cut_ = cut_.channel && !layout.channel_offset.empty();
  uniform_ = outer_channel || !layout.channel_steps;
  outer_steps_ = outer_channel && layout.channel_steps;
  arrays_have_cut_ = !uniform_ && cut_.channel;
  if (outer_.empty() && !has_cut && static_cast<int64_t>(row_elements_) <= small_row)
    rows_in_tile_ = tile_elements / row_elements_;

  // Where the elements of a tile lie, and of which channel they are: the cut, then the axes of the body.
  std::vector<Axis> inside(axes.begin() + body_axes, axes.end());
  const bool whole_cut = table_has_cut_ || arrays_have_cut_;
  inside.insert(inside.begin(), {whole_cut ? cut_.length : step_, cut_.stride, cut_.channel});
  std::vector<int64_t> channel_of;
  if (!as_it_lies) {
    std::vector<int64_t> index(inside.size());
    const size_t entries = static_cast<size_t>(inside[0].length) * body_;
    for (size_t i = 0; i < entries; i++) {
      int64_t offset = 0, channel = 0;
      for (size_t axis = 0; axis < inside.size(); axis++) {
        offset += index[axis] * inside[axis].stride;
        if (!inside[axis].channel) continue;
        channel = index[axis];
        if (!layout.channel_offset.empty()) offset += layout.channel_offset[channel];
      }
      table_.push_back(is_field ? offset : offset / 8);
      channel_of.push_back(channel);
      for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == inside[axis].length;) index[axis] = 0;
    }
    if (!uniform_)
      for (size_t row = 1; row < rows_in_tile_; row++)
        for (size_t i = 0; i < row_elements_; i++) channel_of.push_back(channel_of[i]);
  }
  if (uniform_) {
    channel_of.assign(1, 0);
    if (layout.channel_steps)
      for (int64_t c = 1; c < spec.shape[spec.channel_axis]; c++) channel_of.push_back(c);
  }
  for (int64_t channel : channel_of) {
    const Steps channel_steps = steps_of(spec, channel);
    if (affine_) {
      affine_arrays_.scale.push_back(channel_steps.scale);
      affine_arrays_.bias_or_mean.push_back(channel_steps.bias);
    }
    if (normalize_) {
      normalize_arrays_.scale.push_back(channel_steps.normalize_scale);
      normalize_arrays_.bias_or_mean.push_back(channel_steps.mean);
      normalize_arrays_.std.push_back(channel_steps.std);
    }
  }

  choose_gather(is_field, as_it_lies, inside);
  const bool computes = affine_ || normalize_ || spec.out == DType::float16 || spec.out == DType::bfloat16;
  if (stored_size_ == 1 && uniform_ && computes) make_lookup_tables(spec, kernels, stored);
}

void TilePlan::make_lookup_tables(const UnpackSpec& spec, const Kernels& kernels, DType stored) {
  lookup_ = kernels.lookup[std::countr_zero(out_size_)];
  if (!lookup_) return;
  const int64_t channels = outer_steps_ ? spec.shape[spec.channel_axis] : 1;
  lookup_tables_.resize(static_cast<size_t>(channels) * 256 * out_size_);
  std::byte* plane = lookup_tables_.data();
  for (int64_t c = 0; c < channels; c++, plane += 256 * out_size_) {
    for (int stored_byte = 0; stored_byte < 256; stored_byte++) {
      with_type(spec.out, [&](auto to) {
        with_type(stored, [&](auto from) {
          using From = typename decltype(from)::t;
          if constexpr (sizeof(From) == 1) {
            const auto entry = apply<typename decltype(to)::t>(
                steps_of(spec, c), __builtin_bit_cast(From, static_cast<uint8_t>(stored_byte)));
            std::byte bytes[sizeof(entry)];
            std::memcpy(bytes, &entry, sizeof(entry));
            for (size_t i = 0; i < sizeof(entry); i++) plane[256 * i + static_cast<size_t>(stored_byte)] = bytes[i];
          }
        });
      });
    }
  }
}

void TilePlan::choose_gather(bool is_field, bool as_it_lies, const std::vector<Axis>& inside) {
  if (is_field) {
    gather_ = Gather::fields;
    return;
  }
  if (as_it_lies) return;
  gather_ = Gather::scattered;
  if (table_has_cut_) return;
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
  } else if (const int64_t channels = inside.back().length;
             is([&](int64_t i) { return i / channels * size + i % channels * second; })) {
    gather_ = Gather::interleave;
    gather_stride_ = second;
    channels_ = static_cast<size_t>(channels);
  }
}

const char* TilePlan::name() const noexcept {
  switch (gather_) {
    case Gather::none:
      return normalize_bytes_ ? "normalize_bytes" : "contiguous";
    case Gather::strided:
      return "strided";
    case Gather::interleave:
      return "interleave";
    case Gather::scattered:
      return "scattered";
    case Gather::fields:
      return "fields";
  }
  return "";
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
  for (const std::byte* row : rows) {
    run_row(row, out);
    out += out_stride;
  }
}

void TilePlan::run_row(const std::byte* row, std::byte* out) const noexcept {
  std::byte padded[8] = {};
  if (gather_ == Gather::fields && row_bytes_ < sizeof(padded)) {
    std::memcpy(padded, row, row_bytes_);
    row = padded;
  }
  alignas(64) std::byte scratch[tile_elements * 8];
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
    // Parameters of an outer channel are the array's one entry for it, else the arrays are the tile's or the cut's.
    const size_t first = outer_steps_ ? channel : 0;
    for (int64_t start = 0; start < cut_.length; start += step_) {
      const size_t n = static_cast<size_t>(std::min(step_, cut_.length - start)) * body_;
      const size_t entry = static_cast<size_t>(start) * body_;
      const std::byte* in = gather(row, table_has_cut_ ? base : base + start * cut_.stride, table_has_cut_ ? entry : 0,
                                   copies_ ? out : scratch, n);
      if (in != out) convert(in, out, n, arrays_have_cut_ ? entry : first);
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

}  // namespace feedline::gpu
