#include "training/buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "feedline/error.h"

namespace feedline {
namespace {

void check_variable(const Variable& variable) {
  const DType dtype = variable.gradient.dtype;
  if (dtype != DType::float32 && dtype != DType::float16 && dtype != DType::bfloat16)
    throw Error(Category::bad_pipeline,
                fmt::format("variable '{}': the type of the gradient is {}, but must be FLOAT32, FLOAT16 or BFLOAT16",
                            variable.name, name(dtype)));
  if (variable.gradient.shape.elements() != std::ssize(variable.value))
    throw Error(Category::bad_pipeline,
                fmt::format("variable '{}' has {} values, but its gradient has {}; give a gradient with as many "
                            "elements as the variable has values",
                            variable.name, variable.value.size(), variable.gradient.shape.elements()));
}

}  // namespace

void ReadyVariables::add(size_t variable) {
  if (ready_.at(variable))
    throw Error(
        Category::bad_pipeline,
        fmt::format(
            "ready: variable '{}' was already ready in this step; call ready() only once for each variable, and then "
            "step()",
            variables_[variable].name));
  ready_[variable] = true;
}

void ReadyVariables::expect_all() const {
  const auto late = std::find(ready_.begin(), ready_.end(), false);
  if (late != ready_.end())
    throw Error(
        Category::bad_pipeline,
        fmt::format("step: ready() was not called for variable '{}' in this step; call ready() for each variable "
                    "before step()",
                    variables_[static_cast<size_t>(late - ready_.begin())].name));
}

bool ReadyVariables::any() const { return std::find(ready_.begin(), ready_.end(), true) != ready_.end(); }

void Bucket::allocate(bool applies) {
  const auto memory_of = [&](gpu::Queue& queue) {
    return Memory{queue.allocate(gradient_bytes()), reinterpret_cast<float*>(queue.allocate(elements * sizeof(float)))};
  };
  here = memory_of(places->here());
  home = places->apart() ? memory_of(places->home()) : here;
  if (applies && places->apart()) masters = reinterpret_cast<float*>(places->home().allocate(elements * sizeof(float)));
}

void Bucket::begin_masters() {
  if (masters) places->home().copy(masters, home.numbers, elements * sizeof(float));
}

template <typename CopyOf>
void Bucket::copy_each(gpu::Queue& queue, CopyOf copy_of) const {
  std::vector<gpu::CopyPart> parts;
  for (size_t place = 0; place < variables.size(); place++) parts.push_back(copy_of(place));
  queue.copy(parts);
}

void Bucket::take_gradients(const std::vector<Variable>& of) {
  copy_each(places->here(), [&](size_t place) -> gpu::CopyPart {
    return {of[variables[place]].gradient.data, here.gradient + offsets[place] * size_of(dtype),
            size(place) * size_of(dtype)};
  });
}

void Bucket::divide_at(gpu::Queue& queue, float divisor, Verdict& finite) {
  const Memory& memory = &queue == &places->home() ? home : here;
  queue.divide({.args = {.in = memory.gradient,
                         .out = memory.numbers,
                         .divisor = divisor,
                         .finite = finite.at(queue),
                         .elements = elements},
                .dtype = dtype});
}

void Bucket::take_values(const std::vector<Variable>& of) {
  copy_each(places->here(), [&](size_t place) -> gpu::CopyPart {
    return {of[variables[place]].value.data(), here.numbers + offsets[place], size(place) * sizeof(float)};
  });
}

void Bucket::give_values(const std::vector<Variable>& to) {
  copy_each(places->here(), [&](size_t place) -> gpu::CopyPart {
    return {here.numbers + offsets[place], to[variables[place]].value.data(), size(place) * sizeof(float)};
  });
}

void Bucket::apply(const Apply& apply, const std::vector<Variable>& to, Stream trainer) {
  places->home().lead(trainer);
  try {
    for (size_t place = 0; place < variables.size(); place++)
      apply(variables[place], {master(place, to), size(place)}, {home.numbers + offsets[place], size(place)});
    places->home().follow(trainer);
  } catch (...) {
    places->home().drain(trainer);
    throw;
  }
}

void Bucket::take_masters(const std::vector<Variable>& of) {
  copy_each(places->home(), [&](size_t place) -> gpu::CopyPart {
    return {master(place, of), home.numbers + offsets[place], size(place) * sizeof(float)};
  });
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

size_t bucket_bytes_of(const DataParallelOptions& options, DeviceId device) {
  if (options.bucket_bytes > 0) return options.bucket_bytes;
  return device.kind == DeviceId::Kind::cuda ? size_t{32} << 20 : size_t{4} << 20;
}

std::vector<Bucket> make_buckets(const std::vector<Variable>& variables, const std::vector<int>& owners,
                                 size_t bucket_bytes, Places& places) {
  std::vector<Bucket> buckets;
  for (size_t v = variables.size(); v-- > 0;) {
    const Variable& variable = variables[v];
    check_variable(variable);
    const DType dtype = variable.gradient.dtype;
    const auto open = std::find_if(buckets.rbegin(), buckets.rend(),
                                   [&](const Bucket& b) { return b.owner == owners[v] && b.dtype == dtype; });
    const bool fits =
        open != buckets.rend() && (open->elements + variable.value.size()) * size_of(dtype) <= bucket_bytes;
    Bucket& bucket = fits ? *open : buckets.emplace_back(Bucket{&places, owners[v], dtype});
    bucket.variables.push_back(v);
    bucket.offsets.push_back(bucket.elements);
    bucket.elements += variable.value.size();
  }
  return buckets;
}

}  // namespace feedline
