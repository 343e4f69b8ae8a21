#include "data_parallel/buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "feedline/error.h"
#include "gpu/dispatch.h"

namespace feedline {
namespace {

void check(const Variable& variable) {
  const DType dtype = variable.gradient.dtype;
  if (dtype != DType::float32 && dtype != DType::float16 && dtype != DType::bfloat16)
    throw Error(Category::bad_pipeline,
                fmt::format("variable '{}': its gradient is {}; FLOAT32, FLOAT16 and BFLOAT16 can be summed",
                            variable.name, name(dtype)));
  if (variable.gradient.shape.elements() != std::ssize(variable.value))
    throw Error(Category::bad_pipeline, fmt::format("variable '{}': {} values, and a gradient of {}", variable.name,
                                                    variable.value.size(), variable.gradient.shape.elements()));
}

}  // namespace

void ReadyVariables::add(size_t variable) {
  if (ready_.at(variable))
    throw Error(Category::bad_pipeline,
                fmt::format("variable '{}' is ready twice in a step", variables_[variable].name));
  ready_[variable] = true;
}

void ReadyVariables::expect_all() const {
  const auto late = std::find(ready_.begin(), ready_.end(), false);
  if (late != ready_.end())
    throw Error(Category::bad_pipeline, fmt::format("step: the gradient of variable '{}' is not ready",
                                                    variables_[static_cast<size_t>(late - ready_.begin())].name));
}

bool ReadyVariables::any() const { return std::find(ready_.begin(), ready_.end(), true) != ready_.end(); }

std::span<float> Bucket::numbers_of(size_t place) noexcept {
  const size_t end = place + 1 < offsets.size() ? offsets[place + 1] : elements;
  return std::span(numbers).subspan(offsets[place], end - offsets[place]);
}

void Bucket::take_gradient(size_t place, const Variable& variable) noexcept {
  std::memcpy(gradient.data() + offsets[place] * size_of(dtype), variable.gradient.data,
              variable.gradient.size_bytes());
}

bool Bucket::divide(float divisor) noexcept {
  bool finite = true;
  gpu::with_type(dtype, [&](auto type) {
    using T = typename decltype(type)::t;
    for (size_t i = 0; i < elements; i++) {
      T stored;
      std::memcpy(&stored, gradient.data() + i * sizeof(T), sizeof(T));
      numbers[i] = gpu::cast<float>(stored) / divisor;
      finite = finite && std::isfinite(numbers[i]);
    }
  });
  return finite;
}

void Bucket::take_values(const std::vector<Variable>& of) noexcept {
  for (size_t place = 0; place < variables.size(); place++)
    std::ranges::copy(of[variables[place]].value, numbers_of(place).begin());
}

void Bucket::give_values(const std::vector<Variable>& to) const noexcept {
  for (size_t place = 0; place < variables.size(); place++)
    std::copy_n(numbers.data() + offsets[place], to[variables[place]].value.size(), to[variables[place]].value.data());
}

void Bucket::apply(const Apply& apply, const std::vector<Variable>& to) {
  for (size_t place = 0; place < variables.size(); place++)
    apply(variables[place], to[variables[place]].value, numbers_of(place));
}

std::vector<int> place_by_size(const std::vector<Variable>& variables, int owners) {
  std::vector<size_t> by_size(variables.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return variables[a].value.size() > variables[b].value.size(); });
  std::vector<size_t> load(static_cast<size_t>(owners));
  std::vector<int> owner(variables.size());
  for (const size_t variable : by_size) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += variables[variable].value.size();
    owner[variable] = static_cast<int>(least - load.begin());
  }
  return owner;
}

std::vector<Bucket> make_buckets(const std::vector<Variable>& variables, const std::vector<int>& owners,
                                 size_t bucket_bytes) {
  std::vector<Bucket> buckets;
  for (size_t v = variables.size(); v-- > 0;) {
    const Variable& variable = variables[v];
    check(variable);
    const DType dtype = variable.gradient.dtype;
    const auto open = std::find_if(buckets.rbegin(), buckets.rend(),
                                   [&](const Bucket& b) { return b.owner == owners[v] && b.dtype == dtype; });
    const bool fits =
        open != buckets.rend() && (open->elements + variable.value.size()) * size_of(dtype) <= bucket_bytes;
    Bucket& bucket = fits ? *open : buckets.emplace_back(Bucket{{}, {}, owners[v], dtype});
    bucket.variables.push_back(v);
    bucket.offsets.push_back(bucket.elements);
    bucket.elements += variable.value.size();
  }
  for (Bucket& bucket : buckets) {
    bucket.gradient.resize(bucket.elements * size_of(bucket.dtype));
    bucket.numbers.resize(bucket.elements);
  }
  return buckets;
}

}  // namespace feedline
