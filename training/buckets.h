// Buckets: groups of variables whose gradients are sent together.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "feedline/data_parallel.h"
#include "training/places.h"

namespace feedline {

/// Variables that have the same owner and the same gradient dtype. Their gradients lie one after another in one buffer.
/// In the names of members, "here" is the device on which the trainer's variables lie, and "home" is the device on
/// which gradients are summed and applied; class Places says when these differ.
struct Bucket {
  Places* places;
  int owner = -1;  // the rank, or server, that applies the gradients; -1: every rank
  DType dtype = DType::unset;
  std::vector<size_t> variables = {};  // their numbers in the model
  std::vector<size_t> offsets = {};    // for each of `variables`: the element of the bucket at which it begins
  size_t elements = 0;

  struct Memory {
    std::byte* gradient = nullptr;  // the gradients in `dtype`, as they are sent, in the order of `variables`
    float* numbers = nullptr;       // first the mean gradients, then the values that are sent back
  };
  Memory here = {}, home = {};
  float* masters = nullptr;  // float32 master copies, at home; null: `apply` changes the variables themselves

  /// Allocates the memory. `applies` says that this rank changes the variables, so it needs masters if `here` is not
  /// `home`.
  void allocate(bool applies);

  size_t gradient_bytes() const noexcept { return elements * size_of(dtype); }
  std::span<std::byte> gradient_at(const Memory& place) const noexcept { return {place.gradient, gradient_bytes()}; }
  TensorView tensor_at(const Memory& place) const noexcept {
    return {place.gradient, dtype, {static_cast<int64_t>(elements)}};
  }
  std::span<std::byte> numbers_at(const Memory& place) const noexcept {
    return std::as_writable_bytes(std::span(place.numbers, elements));
  }

  // The functions below give their copies and calculations to the gpu::Queue of the device. The host does them at once,
  // a GPU does them asynchronously. The ..._to_home() copies are complete when the call returns.
  void take_gradients(const std::vector<Variable>& of);  // copies the gradients into `here`
  void gradient_to_home() { places->to_home(home.gradient, here.gradient, gradient_bytes()); }
  void numbers_to_home() { places->to_home(home.numbers, here.numbers, elements * sizeof(float)); }
  void numbers_to_here() { places->to_here(here.numbers, home.numbers, elements * sizeof(float)); }
  /// Computes numbers = gradient / divisor. If any quotient is infinite or NaN, clears the flag `finite`.
  void divide_at(gpu::Queue& queue, float divisor, Verdict& finite);
  void take_values(const std::vector<Variable>& of);  // copies the values into `here.numbers`
  void give_values(const std::vector<Variable>& to);  // copies the values out of `here.numbers`
  // Copies `home.numbers` into the masters, if there are any.
  void begin_masters();
  // Copies the values that apply() has changed (the masters, or the variables themselves) into `home.numbers`.
  void take_masters(const std::vector<Variable>& of);
  // Calls the optimizer for each variable, with the mean gradients in `home.numbers`. `trainer` is the stream on which
  // the optimizer works.
  void apply(const Apply& apply, const std::vector<Variable>& to, Stream trainer);

 private:
  // Gives the queue one copy for each variable: copy_of(place), where `place` is the variable's index in `variables`.
  template <typename CopyOf>
  void copy_each(gpu::Queue& queue, CopyOf copy_of) const;
  size_t size(size_t place) const noexcept {
    return (place + 1 < offsets.size() ? offsets[place + 1] : elements) - offsets[place];
  }
  float* master(size_t place, const std::vector<Variable>& of) const noexcept {
    return masters ? masters + offsets[place] : of[variables[place]].value.data();
  }
};

/// The set of variables whose gradients are ready in this step. add() throws Error bad_pipeline for a variable that is
/// ready already, and expect_all() for one that is not ready.
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

/// Returns the owner of each variable. The variables are assigned from the largest to the smallest, each to the owner
/// that has the smallest number of elements so far.
std::vector<int> place_by_size(const std::vector<Variable>& variables, int owners);

/// Returns options.bucket_bytes. If that is 0, returns the default for a communicator that takes memory of `device`.
size_t bucket_bytes_of(const DataParallelOptions& options, DeviceId device);

/// Groups the variables into buckets, the last variables first; a bucket has one owner and one dtype. The buckets have
/// no memory yet (see Bucket::allocate). Throws Error bad_pipeline for a variable whose gradient does not match its
/// value.
std::vector<Bucket> make_buckets(const std::vector<Variable>& variables, const std::vector<int>& owners,
                                 size_t bucket_bytes, Places& places);

}  // namespace feedline
