#include "tool/stats/value_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace feedline::tool {
namespace {

constexpr size_t most_slots = 2 * ValueCells::most;
constexpr int stored_bits = std::numeric_limits<double>::digits - 1;  // the bits of a double after its leading 1

uint64_t magnitude_of(int64_t value) noexcept {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

/// Returns how many of the low bits of an integer are left out if `bits` bits are kept after its leading 1.
int dropped(uint64_t magnitude, int bits) noexcept {
  return std::max(0, static_cast<int>(std::bit_width(magnitude)) - 1 - bits);
}

/// Returns the 64 bits by which a number is stored.
uint64_t code_of(int64_t value) noexcept { return static_cast<uint64_t>(value); }
uint64_t code_of(double value) noexcept { return value == 0 ? 0 : std::bit_cast<uint64_t>(value); }  // 0 and -0 are one

/// Returns the first bucket in which a key may be. `shift` is shift_of() the number of buckets.
size_t place_of(uint64_t key, int shift) noexcept { return key * 0x9e3779b97f4a7c15u >> shift; }
int shift_of(size_t buckets) noexcept { return std::countl_zero(buckets - 1); }

}  // namespace

uint64_t ValueCells::key_of(uint64_t code) const noexcept {
  if (bits_ == all_bits) return code;
  if (!integers_) return code & ~uint64_t{0} << std::max(0, stored_bits - bits_);
  const auto value = static_cast<int64_t>(code);
  uint64_t magnitude = magnitude_of(value);
  const int low = dropped(magnitude, bits_);
  magnitude = magnitude >> low << low;
  return value < 0 ? 0 - magnitude : magnitude;
}

// Adds the cell to the bucket of its key. Makes the bucket if there is none.
void ValueCells::insert(const Bucket& cell) {
  const size_t mask = buckets_.size() - 1;
  size_t i = place_of(cell.key, shift_of(buckets_.size()));
  for (; buckets_[i].count > 0; i = (i + 1) & mask) {
    Bucket& bucket = buckets_[i];
    if (bucket.key != cell.key) continue;
    bucket.count += cell.count;
    bucket.mixed |= cell.mixed | static_cast<uint64_t>(bucket.value != cell.value);
    return;
  }
  buckets_[i] = cell;
  used_++;
}

void ValueCells::rebuild(size_t size) {
  const std::vector<Bucket> before = std::exchange(buckets_, std::vector<Bucket>(size));
  used_ = 0;
  for (Bucket bucket : before) {
    if (bucket.count == 0) continue;
    bucket.key = key_of(bucket.value);
    insert(bucket);
  }
}

void ValueCells::coarsen() {
  while (used_ > most) {
    bits_ = std::min(bits_ - 1, integers_ ? all_bits - 2 : stored_bits - 1);
    rebuild(buckets_.size());
  }
}

void ValueCells::count(const Bucket& cell) {
  insert(cell);
  if (used_ * 2 <= buckets_.size()) return;
  if (buckets_.size() < most_slots)
    rebuild(buckets_.size() * 2);
  else
    coarsen();
}

// Counts numbers one by one. Most of them have a bucket already, at the first place where it may be.
template <typename Number>
void ValueCells::count_each(std::span<const Number> values) {
  for (size_t i = 0; i < values.size(); i++) {
    // Only count() changes these.
    Bucket* const buckets = buckets_.data();
    const int shift = shift_of(buckets_.size());
    uint64_t code, key;
    for (;; i++) {
      if (i == values.size()) return;
      code = code_of(values[i]);
      key = key_of(code);
      Bucket& bucket = buckets[place_of(key, shift)];
      if (bucket.key != key || bucket.count == 0) break;
      bucket.count++;
      bucket.mixed |= static_cast<uint64_t>(bucket.value != code);
    }
    count({.key = key, .value = code, .count = 1});
  }
}

void ValueCells::add(std::span<const int64_t> values) { count_each(values); }
void ValueCells::add(std::span<const double> values) { count_each(values); }

void ValueCells::add(int64_t value, uint64_t times) {
  if (times > 0) count({.key = key_of(code_of(value)), .value = code_of(value), .count = times});
}

void ValueCells::add(double value, uint64_t times) {
  if (times > 0) count({.key = key_of(code_of(value)), .value = code_of(value), .count = times});
}

void ValueCells::merge(const ValueCells& other) {
  if (other.bits_ < bits_) {
    bits_ = other.bits_;
    rebuild(buckets_.size());
  }
  for (Bucket bucket : other.buckets_) {
    if (bucket.count == 0) continue;
    bucket.key = key_of(bucket.value);
    count(bucket);
  }
}

std::vector<ValueCells::Cell> ValueCells::cells() const {
  std::vector<Cell> cells;
  for (const Bucket& bucket : buckets_) {
    if (bucket.count == 0) continue;
    Cell cell{.count = bucket.count, .one_value = bucket.mixed == 0};
    const uint64_t code = cell.one_value ? bucket.value : bucket.key;
    if (integers_) {
      cell.integer = static_cast<int64_t>(code);
      const int low = dropped(magnitude_of(cell.integer), bits_);
      const uint64_t half = low > 0 ? uint64_t{1} << (low - 1) : 0;
      if (!cell.one_value) cell.integer = static_cast<int64_t>(cell.integer < 0 ? code - half : code + half);
    } else {
      const uint64_t half = uint64_t{1} << std::max(0, stored_bits - bits_) >> 1;
      cell.number = std::bit_cast<double>(cell.one_value ? code : code + half);
    }
    cells.push_back(cell);
  }
  std::ranges::sort(cells, {}, [](const Cell& cell) { return std::pair(cell.integer, cell.number); });
  return cells;
}

bool ValueCells::exact() const noexcept {
  return std::ranges::none_of(buckets_, [](const Bucket& bucket) { return bucket.count > 0 && bucket.mixed; });
}

double ValueCells::relative_error() const noexcept { return exact() ? 0 : std::ldexp(1.0, -bits_ - 1); }

uint64_t ValueCells::total() const noexcept {
  uint64_t total = 0;
  for (const Bucket& bucket : buckets_) total += bucket.count;
  return total;
}

bool ValueCells::lie_in(int64_t from, int64_t to) const noexcept {
  return std::ranges::all_of(buckets_, [&](const Bucket& bucket) {
    const auto value = static_cast<int64_t>(bucket.value);
    return bucket.count == 0 || (value >= from && value <= to);
  });
}

bool ValueCells::lie_in(double from, double to) const noexcept {
  return std::ranges::all_of(buckets_, [&](const Bucket& bucket) {
    const auto value = std::bit_cast<double>(bucket.value);
    return bucket.count == 0 || (value >= from && value <= to);
  });
}

void ValueCells::put(MessageWriter& message) const {
  std::vector<Bucket> used;
  std::ranges::copy_if(buckets_, std::back_inserter(used), [](const Bucket& bucket) { return bucket.count > 0; });
  message.put(static_cast<uint64_t>(integers_));
  message.put(bits_);
  message.put_rows(std::span<const Bucket>(used));
}

ValueCells ValueCells::get(MessageReader& message, bool integers) {
  ValueCells cells(integers);
  if (message.get<uint64_t>() != static_cast<uint64_t>(integers)) message.refuse("counts numbers of a different type");
  cells.bits_ = message.get<int>();
  const int most_bits = integers ? all_bits - 2 : stored_bits - 1;  // the most that coarsen() leaves
  if (cells.bits_ != all_bits && (cells.bits_ < 0 || cells.bits_ > most_bits))
    message.refuse(fmt::format("has cells of {} bits", cells.bits_));
  const std::vector<Bucket> buckets = message.get_rows<Bucket>();
  if (buckets.size() > most) message.refuse("has too many cells");
  for (Bucket bucket : buckets) {
    if (bucket.count == 0 || bucket.mixed > 1 || (!integers && !std::isfinite(std::bit_cast<double>(bucket.value))))
      message.refuse("has a cell that is not possible");
    bucket.key = cells.key_of(bucket.value);
    cells.count(bucket);
  }
  return cells;
}

}  // namespace feedline::tool
