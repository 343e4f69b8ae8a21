// Variables in the groups in which their gradients travel.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "feedline/data_parallel.h"

namespace feedline {

struct Bucket {
  std::vector<size_t> variables;
  std::vector<size_t> offsets;  // of each, in elements
  int owner = -1;               // -1: every rank
  DType dtype = DType::unset;
  size_t elements = 0;
  std::vector<std::byte> gradient = {};  // as they travel, one behind the other
  std::vector<float> numbers = {};       // the mean gradient, then values on their way

  TensorView tensor() noexcept { return {gradient.data(), dtype, {static_cast<int64_t>(elements)}}; }
  std::span<float> numbers_of(size_t place) noexcept;
  std::span<std::byte> number_bytes() noexcept { return std::as_writable_bytes(std::span(numbers)); }

  void take_gradient(size_t place, const Variable& variable) noexcept;
  /// numbers = gradient / divisor; whether all of it is finite.
  bool divide(float divisor) noexcept;
  void take_values(const std::vector<Variable>& of) noexcept;        // into numbers
  void give_values(const std::vector<Variable>& to) const noexcept;  // out of them
  void apply(const Apply& apply, const std::vector<Variable>& to);   // numbers: a mean gradient
};

/// Which gradients of a step are written. Throws Error bad_pipeline for one that is ready twice, or not in time.
class ReadyVariables {
 public:
  explicit ReadyVariables(const std::vector<Variable>& variables) : variables_(variables), ready_(variables.size()) {}
  void add(size_t variable);
  void expect_all() const;
  bool any() const;
  void clear() { ready_.assign(ready_.size(), false); }

 private:
  const std::vector<Variable>& variables_;
  std::vector<bool> ready_;
};

/// Of each variable, the owner: the largest first, each to whoever has the least bytes yet.
std::vector<int> place_by_size(const std::vector<Variable>& variables, int owners);

/// The last variables first, of one owner and dtype each. Throws Error bad_pipeline for a variable whose gradient does
/// not fit to its value.
std::vector<Bucket> make_buckets(const std::vector<Variable>& variables, const std::vector<int>& owners,
                                 size_t bucket_bytes);

}  // namespace feedline
