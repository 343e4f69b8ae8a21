#include "copy_device.h"
#include "feedline/device.h"
#include "gpu/device/queue.h"

namespace feedline::test {

std::optional<std::string> no_device() {
  const Gpus gpus = visible_gpus();
  return gpus.count > 0 ? std::nullopt : std::optional(gpus.why);
}

// The vectors begin at multiples of 16, as the memory of the GPU does.
void make_copies(std::span<const gpu::CopyPart> parts, const Bytes& from, Bytes& to) {
  const auto queue = gpu::cuda_queue(cuda(0));
  std::byte* const from_there = queue->allocate(from.size() + 1);
  std::byte* const to_there = queue->allocate(to.size() + 1);
  queue->copy(from_there, from.data(), from.size());
  queue->copy(to_there, to.data(), to.size());
  std::vector<gpu::CopyPart> there;
  for (const gpu::CopyPart& part : parts)
    there.push_back({from_there + (static_cast<const std::byte*>(part.from) - from.data()),
                     to_there + (static_cast<std::byte*>(part.to) - to.data()), part.bytes});
  queue->copy(there);
  queue->copy(to.data(), to_there, to.size());
  queue->wait();
}

}  // namespace feedline::test
