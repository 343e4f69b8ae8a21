#include "flowgraph/chunk/slots.h"

#include <algorithm>
#include <utility>

namespace feedline::flow {
namespace {

std::deque<Chunk> make_chunks(const MemoryPlan& plan, std::span<std::byte> memory) {
  std::deque<Chunk> chunks;
  const std::span scratch = memory.subspan(plan.slots * plan.slot_data_bytes);
  for (uint32_t s = 0; s < plan.slots; s++)
    chunks.emplace_back(s, memory.subspan(s * plan.slot_data_bytes, plan.slot_data_bytes),
                        scratch.subspan(s * plan.slot_arena_bytes, plan.slot_arena_bytes));
  return chunks;
}

}  // namespace

Slots::Slots(const MemoryPlan& plan, DeviceId copied_to)
    : memory_(std::max<uint64_t>(1, plan.slots * (plan.slot_data_bytes + plan.slot_arena_bytes)), copied_to),
      read_memory_(memory_.bytes().first(plan.slots * plan.slot_data_bytes)),
      chunks_(make_chunks(plan, memory_.bytes())),
      pool_(pointers_to(chunks_)) {}

ChunkRef Slots::take(size_t keep) {
  const auto chunk = pool_.take(keep);
  if (!chunk) return nullptr;
  // The deleter moves `slots` out of itself when it runs. The chunk's weak reference to itself
  // (enable_shared_from_this) keeps the deleter alive, so a deleter that kept `slots` would keep the slots alive for
  // ever.
  return {*chunk, [slots = shared_from_this()](Chunk* done) mutable {
            const auto ours = std::move(slots);
            ours->pool_.give_back(done);
          }};
}

}  // namespace feedline::flow
