// Chooses the GPU kernel that runs a spec, and makes its arguments. This needs no GPU.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "unpack/dispatch.h"
#include "unpack/unpack_spec.h"
#include "unpack/unpack_thread.h"

namespace feedline::unpack {

/// Names one of the compiled kernels: BitsOp, CopyOp and so on.
struct UnpackKernel {
  enum class Op : uint8_t {
    bits,
    copy,
    lookup,
    planes2,  // for pixels of 2 channels (planes3: of 3, planes4: of 4)
    planes3,
    planes4,
    convert_int64,
    convert_float32,
    convert_float64
  } op;
  DType out;
  bool vectors;  // whether each thread writes a vector of elements at a time; else it writes single elements

  auto operator<=>(const UnpackKernel&) const = default;
};

/// A kernel with its arguments. Its threads may run in any order.
struct UnpackLaunch {
  UnpackKernel kernel;
  UnpackArgs args;  // without the members that spread() sets

  bool empty() const noexcept { return args.rows == 0; }
};

/// Divides the rows among about `threads` threads, or among more if a single row needs more. Sets args.row_groups,
/// args.in_step and args.out_step, and returns the number of threads that the launch then has. Precondition: the launch
/// is not empty.
inline uint32_t spread(UnpackArgs& args, uint64_t threads) {
  args.row_groups = static_cast<uint32_t>(std::clamp<uint64_t>(threads / args.vectors.value, 1, args.rows));
  args.in_step = args.row_groups * args.in_stride;
  args.out_step = args.row_groups * args.out_stride;
  return args.vectors.value * args.row_groups;
}

/// The maximum number of launches that one grid does.
inline constexpr size_t launches_of_grid = 8;

/// Returns how many of the launches one grid does: the first launch and those directly behind it with the same kernel,
/// at most launches_of_grid. Precondition: there is a launch.
inline size_t count_for_grid(std::span<const UnpackLaunch> launches) {
  size_t count = 1;
  while (count < launches.size() && count < launches_of_grid && launches[count].kernel == launches[0].kernel) count++;
  return count;
}

/// Rows in device memory. Row i of the output begins at out + i * out_stride, and is made from row i of the input, or
/// from row numbers[i] if there are numbers. Row n of the input begins at in + n * in_stride. Strides are in bytes.
struct DeviceRows {
  const std::byte* in;
  uint64_t in_stride;
  std::byte* out;
  uint64_t out_stride;
  uint32_t count;                    // the number of output rows
  const int64_t* numbers = nullptr;  // in device memory, too
};

/// Makes the launches that unpack rows by one spec on a GPU. Immutable.
class DeviceUnpacker {
 public:
  /// Throws Error bad_pipeline for a spec that makes no sense, and for rows that are too large for a GPU: of 2 GiB or
  /// more, or with 2^31 elements or more.
  explicit DeviceUnpacker(const UnpackSpec& spec);

  /// Returns the kernels that launches may have. Which of them a launch has depends on how its rows are aligned.
  std::vector<UnpackKernel> kernels() const;

  /// Returns the tables that the kernel's threads read. The caller must copy them to the device, to an address that is
  /// a multiple of 16.
  std::span<const std::byte> tables() const noexcept { return tables_; }

  /// Returns the launch that unpacks `rows` as unpack/unpack_spec.h defines it. `tables` is the address of the
  /// device's copy of tables().
  UnpackLaunch launch(const DeviceRows& rows, const std::byte* tables) const noexcept;

 private:
  /// Appends a table to tables_, at a multiple of 16, and returns its offset there.
  template <typename T>
  size_t add_table(std::span<const T> values);

  UnpackKernel kernel_{};
  std::optional<UnpackKernel::Op> planes_;  // used instead of kernel_.op if the rows are aligned
  UnpackArgs args_{};
  uint32_t elements_ = 0, vector_ = 1;  // the number of elements in a row, and in a vector
  bool may_be_vectors_ = false;
  // Powers of 2, at most 16. All elements of a row lie at multiples of elements_apart_ bytes. All vectors of elements
  // begin at multiples of vectors_apart_ bytes, or of the bytes of a vector if these are fewer. Both are 0 for bit
  // fields and for elements whose bytes are reversed. vectors_apart_ is also 0 if the elements of a vector do not lie
  // one after another.
  uint64_t elements_apart_ = 0, vectors_apart_ = 0;
  size_t steps_at_ = 0, values_at_ = 0, channel_offset_at_ = 0;
  bool has_channel_offset_ = false;
  std::vector<std::byte> tables_;
};

/// Calls f(type<Op>{}), where Op is the template argument of unpack_thread() for this kernel.
template <typename F>
void with_kernel(const UnpackKernel& kernel, F&& f) {
  using Op = UnpackKernel::Op;
  const auto of_size = [&](auto&& f1) {
    switch (size_of(kernel.out)) {
      case 1:
        return f1(type<uint8_t>{});
      case 2:
        return f1(type<uint16_t>{});
      case 4:
        return f1(type<uint32_t>{});
      default:
        return f1(type<uint64_t>{});
    }
  };
  const auto sized = [&]<template <typename, int> typename Sized>() {
    of_size([&](auto value) {
      using Value = typename decltype(value)::t;
      kernel.vectors ? f(type<Sized<Value, vector_elements<Value>>>{}) : f(type<Sized<Value, 1>>{});
    });
  };
  const auto planes = [&](auto channels) {
    of_size([&](auto value) {
      using Value = typename decltype(value)::t;
      if constexpr (sizeof(Value) <= 4) f(type<PlanesOp<Value, channels()>>{});
    });
  };
  const auto convert = [&](auto wide) {
    using Wide = typename decltype(wide)::t;
    with_type(kernel.out, [&](auto to) {
      using To = typename decltype(to)::t;
      kernel.vectors ? f(type<ConvertOp<Wide, To, vector_elements<To>>>{}) : f(type<ConvertOp<Wide, To, 1>>{});
    });
  };
  switch (kernel.op) {
    case Op::bits:
      return sized.template operator()<BitsOp>();
    case Op::copy:
      return sized.template operator()<CopyOp>();
    case Op::lookup:
      return sized.template operator()<LookupOp>();
    case Op::planes2:
      return planes(std::integral_constant<int, 2>{});
    case Op::planes3:
      return planes(std::integral_constant<int, 3>{});
    case Op::planes4:
      return planes(std::integral_constant<int, 4>{});
    case Op::convert_int64:
      return convert(type<int64_t>{});
    case Op::convert_float32:
      return convert(type<float>{});
    case Op::convert_float64:
      return convert(type<double>{});
  }
}

}  // namespace feedline::unpack
