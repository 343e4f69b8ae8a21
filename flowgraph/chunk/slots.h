// The slots: the memory into which chunks are read.
#pragma once

#include <deque>
#include <memory>
#include <span>

#include "flowgraph/chunk/chunk.h"
#include "flowgraph/chunk/pool.h"
#include "flowgraph/plan/memory_plan.h"
#include "gpu/device/memory.h"

namespace feedline::flow {

/// The memory of all slots, and a pool of the free ones. It lives as long as the graph or any ChunkRef. A batch whose
/// tensors point into a slot keeps a ChunkRef (MemoryPlan::lends).
class Slots : public std::enable_shared_from_this<Slots> {
 public:
  /// `copied_to` is the device to which batches in the slots are copied (MemoryPlan::lends). If it is a GPU, the memory
  /// is pinned.
  explicit Slots(const MemoryPlan& plan, DeviceId copied_to);

  /// Takes a free slot and returns its chunk. The slot is given back when the last ChunkRef is gone. Returns null if at
  /// most `keep` slots are free.
  ChunkRef take(size_t keep = 0);

  Pool<Chunk*>& pool() noexcept { return pool_; }

  /// The memory of all slots into which files are read. It is one contiguous range, so that it can be registered with
  /// the kernel.
  std::span<std::byte> read_memory() const noexcept { return read_memory_; }

 private:
  gpu::Memory memory_;
  std::span<std::byte> read_memory_;
  std::deque<Chunk> chunks_;
  Pool<Chunk*> pool_;
};

}  // namespace feedline::flow
