#include "gpu/device/kept_memory.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "base/mutex.h"

namespace feedline::gpu {
namespace {

struct State {
  Mutex mutex;
  int scopes FEEDLINE_GUARDED_BY(mutex) = 0;  // the number of objects of KeptMemory
  std::vector<KeptBlock> blocks FEEDLINE_GUARDED_BY(mutex);
};
// Never destroyed, because memory may be freed when the process ends.
State& kept() {
  static State& of_process = *new State;
  return of_process;
}

void free_all(const std::vector<KeptBlock>& blocks) noexcept {
  for (const KeptBlock& block : blocks) block.free(block);
}

}  // namespace

KeptMemory::KeptMemory() {
  const Lock lock(kept().mutex);
  kept().scopes++;
}

KeptMemory::~KeptMemory() {
  std::vector<KeptBlock> left;
  {
    const Lock lock(kept().mutex);
    if (--kept().scopes == 0) left.swap(kept().blocks);
  }
  free_all(left);
}

bool keep(const KeptBlock& block) noexcept {
  const Lock lock(kept().mutex);
  if (kept().scopes == 0) return false;
  try {
    kept().blocks.push_back(block);
    return true;
  } catch (const std::exception&) {
    return false;  // no memory for the list
  }
}

void* take_kept(DeviceId gpu, bool on_gpu, size_t bytes) noexcept {
  std::vector<KeptBlock> others;
  {
    const Lock lock(kept().mutex);
    std::vector<KeptBlock>& blocks = kept().blocks;
    const auto found = std::ranges::find_if(blocks, [&](const KeptBlock& block) {
      return block.gpu == gpu && block.on_gpu == on_gpu && block.bytes == bytes;
    });
    if (found != blocks.end()) {
      void* const address = found->address;
      blocks.erase(found);
      return address;
    }
    const auto of_others = std::partition(blocks.begin(), blocks.end(), [&](const KeptBlock& block) {
      return block.gpu != gpu || block.on_gpu != on_gpu;
    });
    try {
      others.assign(of_others, blocks.end());
      blocks.erase(of_others, blocks.end());
    } catch (const std::exception&) {
      // No memory for the list: the blocks stay kept and are freed later.
    }
  }
  free_all(others);
  return nullptr;
}

}  // namespace feedline::gpu
