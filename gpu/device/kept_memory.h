// Keeps memory for reuse while a feeder moves to a different position in the data. Allocating and pinning memory takes
// a long time. Freeing and unpinning memory waits for all work of the GPU, also for the trainer's.
#pragma once

#include <cstddef>

#include "feedline/device.h"

namespace feedline::gpu {

/// While an object of this class exists, in any thread, blocks of memory are not freed, but kept for the next request
/// of the same size for the same GPU. These are blocks of rings on GPUs, and blocks of the host that are pinned for a
/// GPU (Memory's second constructor). The destructor of the last object frees the blocks that are left. Freeing a block
/// waits for the work of the GPU, and that work may wait for other ranks. So no object should exist while a thread
/// waits for other ranks.
class KeptMemory {
 public:
  KeptMemory();
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
};

/// A block of memory that KeptMemory may keep, and the function that frees the block. Any thread may call that
/// function.
struct KeptBlock {
  DeviceId gpu;   // the GPU to which it belongs, or for which it is pinned
  bool on_gpu;    // whether it is memory of the GPU, not of the host
  void* address;  // nothing uses it
  size_t bytes;
  void (*free)(const KeptBlock& block) noexcept;
};
/// Keeps the block and returns true. Returns false if there is no KeptMemory, or no memory for the list of blocks.
bool keep(const KeptBlock& block) noexcept;
/// Returns the address of a kept block with these properties, or null if there is none. In that case frees the kept
/// blocks of different sizes (for the same GPU, with the same `on_gpu`), so that there is room for a new block.
void* take_kept(DeviceId gpu, bool on_gpu, size_t bytes) noexcept;

}  // namespace feedline::gpu
