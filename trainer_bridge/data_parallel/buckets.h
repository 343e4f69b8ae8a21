// Variables in the groups in which their gradients travel.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "data_parallel/places.h"
#include "feedline/data_parallel.h"

namespace feedline {

struct Bucket {
  Places* places;
  int owner = -1;  // -1: every rank
  DType dtype = DType::unset;
  std::vector<size_t> variables = {};
  std::vector<size_t> offsets = {};  // of each, in elements
  size_t elements = 0;

  struct Memory {
    std::byte* gradient = nullptr;  // as it travels, of one variable behind the other
    float* numbers = nullptr;       // the mean gradient, then values on their way
  };
  Memory here = {}, home = {};
  float* masters = nullptr;  // at home; null: the variables' own values

  void allocate(bool applies);

  size_t gradient_bytes() const noexcept { return elements * size_of(dtype); }
  std::span<std::byte> gradient_at(const Memory& place) const noexcept { return {place.gradient, gradient_bytes()}; }
  TensorView tensor_at(const Memory& place) const noexcept {
    return {place.gradient, dtype, {static_cast<int64_t>(elements)}};
  }
  std::span<std::byte> numbers_at(const Memory& place) const noexcept {
    return std::as_writable_bytes(std::span(place.numbers, elements));
  }

  // In the order of their queues; what goes home has come when it returns.
  void take_gradients(const std::vector<Variable>& of);  // here
  void gradient_to_home() { places->to_home(home.gradient, here.gradient, gradient_bytes()); }
  void numbers_to_home() { places->to_home(home.numbers, here.numbers, elements * sizeof(float)); }
  void numbers_to_here() { places->to_here(here.numbers, home.numbers, elements * sizeof(float)); }
  /// numbers = gradient / divisor; what is not finite is noted.
  void divide_at(gpu::Queue& queue, float divisor, Verdict& finite);
  void take_values(const std::vector<Variable>& of);   // into the numbers here
  void give_values(const std::vector<Variable>& to);   // out of them
  void begin_masters();                                // out of the numbers at home, where there are masters
  void take_masters(const std::vector<Variable>& of);  // into them
  void apply(const Apply& apply, const std::vector<Variable>& to, Stream trainer);  // the numbers at home

 private:
  size_t size(size_t place) const noexcept {
    return (place + 1 < offsets.size() ? offsets[place + 1] : elements) - offsets[place];
  }
  float* master(size_t place, const std::vector<Variable>& of) const noexcept {
    return masters ? masters + offsets[place] : of[variables[place]].value.data();
  }
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

/// The last variables first, of one owner and dtype each; without memory. Throws Error bad_pipeline for a variable
/// whose gradient does not fit to its value.
std::vector<Bucket> make_buckets(const std::vector<Variable>& variables, const std::vector<int>& owners,
                                 size_t bucket_bytes, Places& places);

}  // namespace feedline
