// Devices (the host and GPUs) on which a replica's tensors lie, and streams: queues of work (copies and kernels) that a
// device does in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/export.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace feedline {

/// The device of a replica's tensors: the host, or the GPU with this CUDA ordinal. The host is a device, too; the
/// ordinal of the host only numbers replicas.
struct DeviceId {
  enum class Kind : uint8_t { host, cuda } kind = Kind::host;
  int ordinal = 0;
  bool operator==(const DeviceId&) const = default;
};
constexpr DeviceId host(int ordinal = 0) { return {DeviceId::Kind::host, ordinal}; }
constexpr DeviceId cuda(int ordinal) { return {DeviceId::Kind::cuda, ordinal}; }

/// The number of GPUs that this process may use, and the reason if there are none.
struct Gpus {
  int count = 0;    // their ordinals are 0 to count - 1
  std::string why;  // if count is 0, the reason in one line: "feedline was built without CUDA", "the CUDA driver finds
                    // no GPU", ...
};
/// Returns the GPUs that this process may use. Does not create a CUDA context on any of them.
FEEDLINE_PUBLIC Gpus visible_gpus();

/// Returns the devices that `text` names, one for each replica: "host" (one replica on the host), "host:4" (four
/// replicas on the host; 1024 at most), "cuda" (all GPUs), "cuda:0,2" (these GPUs, by ordinal), "cuda:GPU-5a1b" (the
/// GPU whose UUID begins so; nvidia-smi -L lists them), or "auto". "auto" means all GPUs. If no GPU can be used, "auto"
/// means the host, and one line in the log says why. "All GPUs" leaves out GPUs that are too old for the kernels of
/// this build (some of them only drive a display); a line in the log names each GPU that is left out. Throws Error
/// bad_pipeline for any other text, and device_error if the text asks for a GPU that does not exist.
FEEDLINE_PUBLIC std::vector<DeviceId> parse_devices(std::string_view text);

/// A reference to a stream, that is, to a queue of work on a device. It may be copied freely and owns nothing. A device
/// does the work of one stream in order. Between streams, and between a stream and the host, only Batch::ready_on() and
/// Batch::release_on() create an order.
///
/// Every stream must be named. There is no default, and a Stream cannot be made of 0 or nullptr. CUDA takes 0 and
/// nullptr for its legacy default stream, which waits for all other streams. A program that only forgot to name a
/// stream must not get that stream.
class Stream {
 public:
  Stream(int) = delete;
  Stream(std::nullptr_t) = delete;

  /// Refers to a CUDA stream of the program, which must outlive the batches that are used on it. Throws Error
  /// bad_pipeline for null; the default streams have names of their own below.
  static FEEDLINE_PUBLIC Stream cuda(CUstream_st* stream);
  /// CUDA's default streams of the calling thread's current device. That device must be the batch's.
  static const Stream cuda_legacy, cuda_per_thread;
  /// Refers to a CUDA stream as the consumers of DLPack tensors name it: 1 and 2 are the legacy and the per-thread
  /// default stream of the batch's GPU, whatever device is current, and any other number is the handle of a stream.
  /// Throws Error bad_pipeline for 0 and for negative numbers.
  static FEEDLINE_PUBLIC Stream dlpack(int64_t number);

  /// The calling thread as a stream: a thread does its work in order. A call that makes this stream wait makes the
  /// calling thread wait.
  static const Stream host;

  /// Returns whether this is a stream of the host or of a GPU.
  constexpr DeviceId::Kind kind() const noexcept { return kind_; }
  /// Returns the stream as CUDA's functions take it. Precondition: kind() is cuda.
  CUstream_st* cuda_stream() const noexcept { return reinterpret_cast<CUstream_st*>(handle_); }
  /// Returns true if dlpack() made this stream from the number 1 or 2: the stream is then a default stream of the
  /// batch's GPU. Returns false for all other streams, also for cuda_legacy and cuda_per_thread, which are default
  /// streams of the thread's current device.
  constexpr bool of_the_batch() const noexcept { return of_the_batch_; }
  bool operator==(const Stream&) const = default;

 private:
  explicit constexpr Stream(DeviceId::Kind kind, uintptr_t handle, bool of_the_batch = false) noexcept
      : kind_(kind), of_the_batch_(of_the_batch), handle_(handle) {}
  DeviceId::Kind kind_;
  bool of_the_batch_;
  uintptr_t handle_;
};
inline constexpr Stream Stream::host{DeviceId::Kind::host, 0};
inline constexpr Stream Stream::cuda_legacy{DeviceId::Kind::cuda, 1};      // cudaStreamLegacy
inline constexpr Stream Stream::cuda_per_thread{DeviceId::Kind::cuda, 2};  // cudaStreamPerThread

}  // namespace feedline
