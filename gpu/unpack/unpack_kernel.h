// Chooses the GPU kernel that runs a spec, and makes its arguments. This needs no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gpu/unpack/dispatch.h"
#include "gpu/unpack/unpack_spec.h"
#include "gpu/unpack/unpack_thread.h"

namespace feedline::gpu {

/// Names one of the compiled kernels.
struct UnpackKernel {
  enum class Op : uint8_t { bits, copy, convert_int64, convert_float32, convert_float64 } op;
  DType out;
  bool vectors;  // whether each thread writes a vector of elements at a time; else it writes single elements
};

/// A kernel with its arguments. Its threads may run in any order.
struct UnpackLaunch {
  UnpackKernel kernel;
  UnpackArgs args;
  uint64_t threads = 0;  // 0: there is nothing to do
};

/// Rows in device memory. Row i of the output begins at out + i * out_stride, and is made from row i of the input, or
/// from row numbers[i] if there are numbers. Row n of the input begins at in + n * in_stride. Strides are in bytes.
struct DeviceRows {
  const std::byte* in;
  uint64_t in_stride;
  std::byte* out;
  uint64_t out_stride;
  uint64_t count;                    // of the output
  const int64_t* numbers = nullptr;  // in device memory, too
};

/// Makes the launches that unpack rows by one spec on a GPU. Immutable.
class DeviceUnpacker {
 public:
  /// Throws Error bad_pipeline for a spec that makes no sense.
  explicit DeviceUnpacker(const UnpackSpec& spec);

  const UnpackKernel& kernel() const noexcept { return kernel_; }

  /// Returns the tables that the kernel's threads read. The caller must copy them to the device, to an address that is
  /// a multiple of 16.
  std::span<const std::byte> tables() const noexcept { return tables_; }

  /// Returns the launch that unpacks `rows` as gpu/unpack/unpack_spec.h defines it. `tables` is the address of the
  /// device's copy of tables().
  UnpackLaunch launch(const DeviceRows& rows, const std::byte* tables) const noexcept;

 private:
  /// Appends a table to tables_, at a multiple of 16, and returns its offset there.
  template <typename T>
  size_t add_table(std::span<const T> values);

  UnpackKernel kernel_{};
  UnpackArgs args_{};
  uint64_t elements_ = 0;
  bool may_be_aligned_ = false;
  size_t steps_at_ = 0, bit_values_at_ = 0, channel_offset_at_ = 0;
  bool has_channel_offset_ = false;
  std::vector<std::byte> tables_;
};

/// Calls f(type<Op>{}, std::integral_constant<int, vector>{}) with the template arguments of unpack_thread() for a
/// kernel.
template <typename F>
void with_kernel(const UnpackKernel& kernel, F&& f) {
  const auto sized = [&](auto op) {
    using Op = typename decltype(op)::t;
    kernel.vectors ? f(op, std::integral_constant<int, vector_elements<typename Op::Out>>{})
                   : f(op, std::integral_constant<int, 1>{});
  };
  const auto of_size = [&](auto f1) {
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
  switch (kernel.op) {
    case UnpackKernel::Op::bits:
      return of_size([&](auto value) { sized(type<BitsOp<typename decltype(value)::t>>{}); });
    case UnpackKernel::Op::copy:
      return of_size([&](auto value) { sized(type<CopyOp<typename decltype(value)::t>>{}); });
    case UnpackKernel::Op::convert_int64:
      return with_type(kernel.out, [&](auto to) { sized(type<ConvertOp<int64_t, typename decltype(to)::t>>{}); });
    case UnpackKernel::Op::convert_float32:
      return with_type(kernel.out, [&](auto to) { sized(type<ConvertOp<float, typename decltype(to)::t>>{}); });
    case UnpackKernel::Op::convert_float64:
      return with_type(kernel.out, [&](auto to) { sized(type<ConvertOp<double, typename decltype(to)::t>>{}); });
  }
}

}  // namespace feedline::gpu
