// Where a replica's tensors live, and the order in which its device works.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedline {

/// Where a replica's tensors live.
struct DeviceId {
  enum class Kind : uint8_t { host } kind = Kind::host;
  int ordinal = 0;
  bool operator==(const DeviceId&) const = default;
};
inline DeviceId host(int ordinal = 0) { return {DeviceId::Kind::host, ordinal}; }

/// A queue of a device's work, by reference: copied freely, owns nothing. What is given to one stream is done in order;
/// between streams, and between a stream and the host, only Batch::ready_on and Batch::release_on make an order.
///
/// Every stream is named. There is none by default and none made of 0 or nullptr, which CUDA takes for its legacy
/// default stream: who forgets to say which stream is meant must not get one that waits for all others.
class Stream {
 public:
  Stream(int) = delete;
  Stream(std::nullptr_t) = delete;

  /// Whose stream it is.
  constexpr DeviceId::Kind kind() const noexcept { return kind_; }
  bool operator==(const Stream&) const = default;

  /// The thread that uses it: what it does, it does in order. So waiting on this stream is the thread's own waiting.
  static const Stream host;

 private:
  explicit constexpr Stream(DeviceId::Kind kind) noexcept : kind_(kind) {}
  DeviceId::Kind kind_;
};
inline constexpr Stream Stream::host{DeviceId::Kind::host};

}  // namespace feedline
