#include "tool/stats/value_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/draws.h"
#include "base/each_simd_level.h"

namespace feedline::cli {
namespace {

FEEDLINE_EACH_SIMD_LEVEL bool all_finite(const double* values, size_t count) {
  bool all = true;
  for (size_t i = 0; i < count; i++) all &= std::abs(values[i]) <= std::numeric_limits<double>::max();
  return all;
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

void ValueStats::add(std::span<const uint8_t> values) {
  const size_t pairs = values.size() / 2;
  for (size_t i = 0; i < pairs; i++) {
    of_bytes_[0][values[2 * i]]++;
    of_bytes_[1][values[2 * i + 1]]++;
  }
  if (values.size() % 2) of_bytes_[0][values.back()]++;
}

void ValueStats::add(std::span<const int64_t> values) {
  std::array<double, 512> rounded;
  for (size_t begin = 0; begin < values.size(); begin += rounded.size()) {
    const auto block = values.subspan(begin, std::min(rounded.size(), values.size() - begin));
    for (size_t i = 0; i < block.size(); i++) {
      rounded[i] = static_cast<double>(block[i]);
      least_ = std::min(least_, block[i]);
      most_ = std::max(most_, block[i]);
    }
    moments_.add(std::span(rounded).first(block.size()));
    cells_.add(block);
  }
}

// Returns the values that are finite, and counts the others.
std::span<const double> ValueStats::finite(std::span<const double> values) {
  if (all_finite(values.data(), values.size())) return values;
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
  values = finite(values);
  moments_.add(values);
  cells_.add(values);
}

void ValueStats::add_row(std::span<const double> values, size_t looked_at, uint64_t key) {
  if (!moments_.add_row(values)) {
    values = finite(values);
    moments_.add(values);
  }
  if (values.size() <= looked_at) return cells_.add(values);
  Draws draws(key);
  for (size_t i = 0; i < looked_at; i++)
    cells_.add(std::span(&values[draws.below(static_cast<uint32_t>(values.size()))], 1));
}

void ValueStats::settle() {
  for (size_t byte = 0; byte < 256; byte++) {
    const uint64_t times = of_bytes_[0][byte] + of_bytes_[1][byte];
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
  cells_ = ValueCells::get(message);
}

}  // namespace feedline::cli
