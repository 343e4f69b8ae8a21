// The memory that is read into, and who may use it.
#pragma once

#include <deque>
#include <memory>
#include <span>

#include "flowgraph/chunk/chunk.h"
#include "flowgraph/chunk/pool.h"
#include "flowgraph/plan/plan.h"
#include "gpu/device/memory.h"

namespace feedline::flow {

/// Lives as long as the graph or a batch that was lent rows does.
class Slots : public std::enable_shared_from_this<Slots> {
 public:
  /// copied_to: where batches that lie in it are wanted; then it is pinned.
  explicit Slots(const Plan& plan, DeviceId copied_to = host());

  /// Of one slot, to which it goes back by itself. Null: none is free beyond those to keep.
  ChunkRef take(size_t keep = 0);

  Pool<Chunk*>& pool() noexcept { return pool_; }

  /// All that is read into, in one piece, so that it can be registered with the kernel.
  std::span<std::byte> read_memory() const noexcept { return read_memory_; }

 private:
  gpu::Memory memory_;
  std::span<std::byte> read_memory_;
  std::deque<Chunk> chunks_;
  Pool<Chunk*> pool_;
};

}  // namespace feedline::flow
