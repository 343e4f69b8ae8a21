// A replica's ring of output buffers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "feedline/batch.h"
#include "flowgraph/chunk.h"
#include "flowgraph/plan.h"
#include "flowgraph/pool.h"
#include "gpu/device.h"

namespace feedline::flow {

/// Memory for every tensor of a batch, and what is in it now.
struct BatchBuffer {
  std::byte* memory = nullptr;
  std::shared_ptr<const Chunk> lender;  // whose slot some of the tensors lie in; Plan::lends
  BatchContent content;                 // tensors: of the graph's batches as Plan::tensors, in their order
};

/// Lives as long as the graph or a batch does.
class BatchRing : public std::enable_shared_from_this<BatchRing> {
 public:
  /// Of a plan's batches.
  BatchRing(const Plan& plan, const gpu::Device& device, int replica);
  /// `content`: the tensors of a buffer that begins there.
  BatchRing(size_t buffers, uint64_t buffer_bytes, const gpu::Device& device, int replica,
            const std::function<BatchContent(std::byte*)>& content);

  Pool<BatchBuffer*>& pool() noexcept { return pool_; }

  /// A batch whose last user gives the buffer back.
  std::shared_ptr<const BatchContent> share(BatchBuffer* buffer);

  /// Batches that the caller has and has not given back; kept by Delivery.
  std::atomic<size_t> held{0};

 private:
  gpu::Memory memory_;
  std::vector<BatchBuffer> buffers_;
  Pool<BatchBuffer*> pool_;
};

}  // namespace feedline::flow
