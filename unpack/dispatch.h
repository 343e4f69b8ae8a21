// Turns a DType, known at run time, into a C++ type, known at compile time.
#pragma once

#include "unpack/cast.h"

namespace feedline::unpack {

/// Stands for the type T in calls.
template <typename T>
struct type {
  using t = T;
};
/// Calls f(type<T>{}), where T is the element type of `dtype`. Precondition: `dtype` is not unset or bytes.
template <typename F>
decltype(auto) with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean:
      return f(type<Bool>{});
    case DType::uint8:
      return f(type<uint8_t>{});
    case DType::int8:
      return f(type<int8_t>{});
    case DType::uint16:
      return f(type<uint16_t>{});
    case DType::int16:
      return f(type<int16_t>{});
    case DType::uint32:
      return f(type<uint32_t>{});
    case DType::int32:
      return f(type<int32_t>{});
    case DType::int64:
      return f(type<int64_t>{});
    case DType::float16:
      return f(type<Half>{});
    case DType::bfloat16:
      return f(type<BFloat>{});
    case DType::float32:
      return f(type<float>{});
    case DType::float64:
      return f(type<double>{});
    case DType::unset:
    case DType::bytes:
      break;
  }
  __builtin_unreachable();
}

}  // namespace feedline::unpack
