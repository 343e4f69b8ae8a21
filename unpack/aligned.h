// Vectors whose memory begins at a cache line, so that a SIMD load touches as few cache lines as possible.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace feedline::unpack {

template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t line{64};

  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) noexcept {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), line)); }
  void deallocate(T* p, size_t) noexcept { ::operator delete(p, line); }
  bool operator==(const LineAllocator&) const = default;
};

template <typename T>
using aligned_vector = std::vector<T, LineAllocator<T>>;

}  // namespace feedline::unpack
