#include "tool/stats/value_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "base/compiled_for.h"
#include "base/load.h"

namespace feedline::tool {
namespace {

bool all_finite(const double* values, size_t count) {
  bool all = true;
  for (size_t i = 0; i < count; i++) all &= std::abs(values[i]) <= std::numeric_limits<double>::max();
  return all;
}

/// Rounds integers to doubles, and extends [least, most] to all of them.
void round_all(const int64_t* values, size_t count, double* rounded, int64_t& least, int64_t& most) {
  int64_t low = least, high = most;
  for (size_t i = 0; i < count; i++) {
    rounded[i] = static_cast<double>(values[i]);
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  least = low;
  most = high;
}

struct ByteRange {
  uint8_t bits = 0;  // all bytes, combined by OR
  uint32_t sum = 0;
};

ByteRange look_at(const uint8_t* values, size_t count) {
  ByteRange range;
  for (size_t i = 0; i < count; i++) range.bits |= values[i];
  for (size_t i = 0; i < count; i++) range.sum += values[i];
  return range;
}

/// Returns how many of the bytes are 1; nullopt if one is neither 0 nor 1. `count` is less than 2^24.
std::optional<uint64_t> count_ones(const uint8_t* values, size_t count) {
  constexpr size_t few = 64;  // are enough to tell pictures from bits
  if (look_at(values, std::min(few, count)).bits > 1) return std::nullopt;
  const ByteRange range = compiled_for<look_at>(simd_level())(values, count);
  return range.bits <= 1 ? std::optional<uint64_t>(range.sum) : std::nullopt;
}

void put_double(MessageWriter& message, double value) { message.put(std::bit_cast<uint64_t>(value)); }
double get_double(MessageReader& message) { return std::bit_cast<double>(message.get<uint64_t>()); }

}  // namespace

ValueStats::Form ValueStats::form_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
    case DType::float32:
    case DType::float64:
      return Form::floats;
    default:
      return size_of(dtype) == 1 ? Form::bytes : Form::integers;
  }
}

ValueStats::ValueStats(DType dtype)
    : form_(form_of(dtype)), signed_bytes_(dtype == DType::int8), cells_(form_ != Form::floats) {}

void ValueStats::count_bytes(std::span<const uint8_t> values) {
  constexpr size_t block_values = 4096;
  while (!values.empty()) {
    const auto block = values.first(std::min(block_values, values.size()));
    values = values.subspan(block.size());
    if (const auto ones = count_ones(block.data(), block.size())) {
      of_bytes_[0][0] += block.size() - *ones;
      of_bytes_[0][1] += *ones;
      continue;
    }
    size_t i = 0;
    for (; i + sizeof(uint64_t) <= block.size(); i += sizeof(uint64_t)) {
      const auto eight = load<uint64_t>(&block[i]);
      for (size_t byte = 0; byte < sizeof eight; byte++) of_bytes_[byte % of_bytes_.size()][eight >> 8 * byte & 0xff]++;
    }
    for (; i < block.size(); i++) of_bytes_[0][block[i]]++;
  }
}

void ValueStats::add(std::span<const uint8_t> values, std::span<ValueStats> parts) {
  if (parts.size() == 1) return parts[0].count_bytes(values);
  const size_t groups = values.size() / parts.size();
  const uint8_t* of_group = values.data();
  for (size_t group = 0; group < groups; group++, of_group += parts.size())
    for (size_t part = 0; part < parts.size(); part++) parts[part].of_bytes_[group % 4][of_group[part]]++;
}

void ValueStats::add(std::span<const int64_t> values) {
  std::array<double, 512> rounded;
  for (size_t begin = 0; begin < values.size(); begin += rounded.size()) {
    const auto block = values.subspan(begin, std::min(rounded.size(), values.size() - begin));
    compiled_for<round_all>(simd_level())(block.data(), block.size(), rounded.data(), least_, most_);
    moments_.add(std::span(rounded).first(block.size()));
    cells_.add(block);
  }
}

std::span<const double> ValueStats::finite(std::span<const double> values) {
  if (compiled_for<all_finite>(simd_level())(values.data(), values.size())) return values;
  finite_.clear();
  for (const double value : values) {
    if (std::isfinite(value))
      finite_.push_back(value);
    else
      std::isnan(value) ? nans_++ : infinities_++;
  }
  return finite_;
}

void ValueStats::add(std::span<const double> values) {
  if (const auto signs = Signs::of(values)) {
    moments_.add(*signs);
    cells_.add(-1.0, signs->negative);
    cells_.add(0.0, signs->zero);
    cells_.add(1.0, signs->positive);
    return;
  }
  values = finite(values);
  moments_.add(values);
  cells_.add(values);
}

void ValueStats::count(std::span<const double> values) {
  for (const double& value : values)
    if (std::isfinite(value)) cells_.add(std::span(&value, 1));
}

void ValueStats::settle() {
  for (size_t byte = 0; byte < 256; byte++) {
    uint64_t times = 0;
    for (const auto& table : of_bytes_) times += table[byte];
    if (times == 0) continue;
    const int64_t value = signed_bytes_ ? static_cast<int8_t>(byte) : static_cast<int64_t>(byte);
    moments_.add(static_cast<double>(value), times);
    cells_.add(value, times);
    least_ = std::min(least_, value);
    most_ = std::max(most_, value);
  }
  of_bytes_ = {};
}

void ValueStats::merge(const ValueStats& other) {
  for (size_t table = 0; table < of_bytes_.size(); table++)
    for (size_t byte = 0; byte < 256; byte++) of_bytes_[table][byte] += other.of_bytes_[table][byte];
  moments_.merge(other.moments_);
  cells_.merge(other.cells_);
  nans_ += other.nans_;
  infinities_ += other.infinities_;
  least_ = std::min(least_, other.least_);
  most_ = std::max(most_, other.most_);
}

void ValueStats::put(MessageWriter& message) {
  settle();
  for (const uint64_t number : {moments_.count, moments_.zeros, nans_, infinities_}) message.put(number);
  for (const double number : {moments_.least, moments_.most, moments_.sum.high, moments_.sum.low, moments_.squares.high,
                              moments_.squares.low})
    put_double(message, number);
  message.put(least_);
  message.put(most_);
  cells_.put(message);
}

void ValueStats::get(MessageReader& message) {
  for (uint64_t* number : {&moments_.count, &moments_.zeros, &nans_, &infinities_}) *number = message.get<uint64_t>();
  for (double* number : {&moments_.least, &moments_.most, &moments_.sum.high, &moments_.sum.low, &moments_.squares.high,
                         &moments_.squares.low})
    *number = get_double(message);
  least_ = message.get<int64_t>();
  most_ = message.get<int64_t>();
  cells_ = ValueCells::get(message, form_ != Form::floats);
  // The numbers come from a different process. The code that shows them relies on cells and moments that fit together.
  const bool known = form_ == Form::floats
                         ? cells_.total() <= moments_.count && cells_.lie_in(moments_.least, moments_.most)
                         : cells_.total() == moments_.count && cells_.lie_in(least_, most_);
  const bool ordered = moments_.count == 0 || moments_.least <= moments_.most;  // not NaN
  if (!known || !ordered || moments_.zeros > moments_.count)
    message.refuse("has statistics that contradict themselves");
}

}  // namespace feedline::tool
