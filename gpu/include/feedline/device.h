// Where a replica's tensors live, and the order in which its device works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/export.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace feedline {

/// Where a replica's tensors live: in the memory of the host, or of the GPU with this CUDA ordinal.
struct DeviceId {
  enum class Kind : uint8_t { host, cuda } kind = Kind::host;
  int ordinal = 0;
  bool operator==(const DeviceId&) const = default;
};
constexpr DeviceId host(int ordinal = 0) { return {DeviceId::Kind::host, ordinal}; }
constexpr DeviceId cuda(int ordinal) { return {DeviceId::Kind::cuda, ordinal}; }

/// The GPUs that this process may use. None: `why` says so in one line ("feedline was built without CUDA", "the system
/// has no CUDA driver"...). Makes no context on any.
struct Gpus {
  int count = 0;
  std::string why;
};
FEEDLINE_PUBLIC Gpus visible_gpus();

/// "host", "host:4" (so many replicas), "cuda" (all GPUs), "cuda:0,2" (these), or "auto": all GPUs, or where there is
/// none the host, with one line in the log that says why. Throws Error bad_pipeline for another text, device_error for
/// GPUs that are asked for and not there.
FEEDLINE_PUBLIC std::vector<DeviceId> parse_devices(std::string_view text);

/// A queue of a device's work, by reference: copied freely, owns nothing. What is given to one stream is done in order;
/// between streams, and between a stream and the host, only Batch::ready_on and Batch::release_on make an order.
///
/// Every stream is named. There is none by default and none made of 0 or nullptr, which CUDA takes for its legacy
/// default stream: who forgets to say which stream is meant must not get one that waits for all others.
class Stream {
 public:
  Stream(int) = delete;
  Stream(std::nullptr_t) = delete;

  /// The stream, which must outlive the batches that are used on it. Throws Error bad_pipeline for null: the default
  /// streams have names.
  static FEEDLINE_PUBLIC Stream cuda(CUstream_st* stream);
  /// CUDA's default streams of the calling thread's current device, which is to be the batch's.
  static const Stream cuda_legacy, cuda_per_thread;

  /// The thread that uses it: what it does, it does in order. So waiting on this stream is the thread's own waiting.
  static const Stream host;

  /// Whose stream it is.
  constexpr DeviceId::Kind kind() const noexcept { return kind_; }
  /// As CUDA's functions take it. Precondition: kind() is cuda.
  CUstream_st* cuda_stream() const noexcept { return reinterpret_cast<CUstream_st*>(handle_); }
  bool operator==(const Stream&) const = default;

 private:
  explicit constexpr Stream(DeviceId::Kind kind, uintptr_t handle) noexcept : kind_(kind), handle_(handle) {}
  DeviceId::Kind kind_;
  uintptr_t handle_;
};
inline constexpr Stream Stream::host{DeviceId::Kind::host, 0};
inline constexpr Stream Stream::cuda_legacy{DeviceId::Kind::cuda, 1};      // cudaStreamLegacy
inline constexpr Stream Stream::cuda_per_thread{DeviceId::Kind::cuda, 2};  // cudaStreamPerThread

}  // namespace feedline
