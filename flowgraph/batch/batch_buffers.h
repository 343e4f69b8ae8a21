// A replica's ring of output buffers.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "feedline/batch.h"
#include "flowgraph/chunk/chunk.h"
#include "flowgraph/chunk/pool.h"
#include "flowgraph/plan/plan.h"
#include "gpu/device/device_ring.h"
#include "gpu/device/memory.h"

namespace feedline::flow {

/// Memory for every tensor of a batch, and what is in it now.
struct BatchBuffer {
  std::byte* memory = nullptr;
  std::chrono::steady_clock::time_point written;  // last; the beginning of time: never
  PassAudit passes;                               // of `content.audit`; ExpectedAudit::passes
  std::shared_ptr<const Chunk> lender;            // whose slot some of the tensors lie in; Plan::lends
  BatchContent content;                           // tensors: of the graph's batches as Plan::tensors, in their order
};

/// Lives as long as the graph or a batch does.
class BatchRing : public std::enable_shared_from_this<BatchRing> {
 public:
  /// `content`: the tensors of a buffer that begins there.
  using Content = std::function<BatchContent(std::byte*)>;

  /// Of a plan's batches, in the memory of the host; pinned, if they are to be copied to a GPU.
  BatchRing(const Plan& plan, int replica, DeviceId copied_to = host());
  BatchRing(size_t buffers, uint64_t buffer_bytes, int replica, const Content& content, DeviceId copied_to = host());
  /// In the buffers of a GPU.
  BatchRing(std::shared_ptr<gpu::DeviceRing> device, size_t buffers, uint64_t buffer_bytes, int replica,
            const Content& content);

  Pool<BatchBuffer*>& pool() noexcept { return pool_; }

  bool on_device() const noexcept { return device_ != nullptr; }
  size_t number_of(const BatchBuffer* buffer) const noexcept { return static_cast<size_t>(buffer - buffers_.data()); }

  /// A batch whose last user gives the buffer back.
  std::shared_ptr<const BatchContent> share(BatchBuffer* buffer);

  /// Batches that the caller has and has not given back; kept by Delivery.
  std::atomic<size_t> held{0};

 private:
  gpu::Memory memory_;                       // of the host,
  std::shared_ptr<gpu::DeviceRing> device_;  // or of a GPU
  std::vector<BatchBuffer> buffers_;
  Pool<BatchBuffer*> pool_;
};

}  // namespace feedline::flow
