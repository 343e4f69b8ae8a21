// Memory that a feeder keeps while it goes to another position. To allocate and pin memory takes long, and to free and
// unpin it waits for all work of the GPU, also for the trainer's.
#pragma once

#include <cstddef>

#include "feedline/device.h"

namespace feedline::gpu {

/// While an object of this class exists, in any thread, the memory of rings on GPUs and their pinned memory of the host
/// (Memory's second constructor) is not freed, but kept for the next that is wanted with the same size and GPU. The
/// destructor of the last object frees what is left. So none should exist while a thread waits for other ranks.
class KeptMemory {
 public:
  KeptMemory();
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
};

/// What the owners of such memory pass on: a block, and the function that frees it, on any thread.
struct KeptBlock {
  DeviceId gpu;   // the GPU to which it belongs, or for which it is pinned
  bool on_gpu;    // whether it is memory of the GPU
  void* address;  // nothing uses it
  size_t bytes;
  void (*free)(const KeptBlock& block) noexcept;
};
/// Keeps the block, or returns false if there is no KeptMemory.
bool keep(const KeptBlock& block) noexcept;
/// Returns a block of this kind that was kept, or null. If there is none, frees what was kept of other sizes, so that
/// there is room for another one.
void* take_kept(DeviceId gpu, bool on_gpu, size_t bytes) noexcept;

}  // namespace feedline::gpu
