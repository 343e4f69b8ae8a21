// The output buffers of a replica: the memory of its batches.
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

/// The memory for every tensor of a batch, and what is in it now.
struct BatchBuffer {
  std::byte* memory = nullptr;
  std::chrono::steady_clock::time_point written;  // when it was written last; time_point(): never
  PassAudit passes;                               // each pass's part of `content.audit` (only with epoch.steps)
  std::shared_ptr<const Chunk> lender;            // the chunk in whose slot some tensors lie (MemoryPlan::lends)
  BatchContent content;                           // in a graph, its tensors are MemoryPlan::tensors, in the same order
};

/// The buffers of a replica, and a pool of the free ones. They live as long as the graph or any of its batches.
class BatchRing : public std::enable_shared_from_this<BatchRing> {
 public:
  /// Returns the content of a buffer that begins at the given address, with its tensors.
  using Content = std::function<BatchContent(std::byte*)>;

  /// Makes the buffers of a plan's batches in host memory, which is pinned if they are to be copied to a GPU.
  BatchRing(const Plan& plan, int replica, DeviceId copied_to = host());
  BatchRing(size_t buffers, uint64_t buffer_bytes, int replica, const Content& content, DeviceId copied_to);
  /// Uses the buffers of a GPU.
  BatchRing(std::shared_ptr<gpu::DeviceRing> device, size_t buffers, uint64_t buffer_bytes, int replica,
            const Content& content);

  Pool<BatchBuffer*>& pool() noexcept { return pool_; }

  bool on_device() const noexcept { return device_ != nullptr; }
  size_t number_of(const BatchBuffer* buffer) const noexcept { return static_cast<size_t>(buffer - buffers_.data()); }

  /// Returns the content of a taken buffer. The buffer goes back to the pool when the last reference is gone.
  std::shared_ptr<const BatchContent> share(BatchBuffer* buffer);

  /// How many batches the trainer holds. Delivery keeps the count.
  std::atomic<size_t> held{0};

 private:
  gpu::Memory memory_;                       // the buffers, if they are in host memory
  std::shared_ptr<gpu::DeviceRing> device_;  // the buffers, if they are on a GPU
  std::vector<BatchBuffer> buffers_;
  Pool<BatchBuffer*> pool_;
};

}  // namespace feedline::flow
