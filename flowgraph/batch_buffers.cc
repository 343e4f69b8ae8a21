#include "flowgraph/batch_buffers.h"

namespace feedline::flow {
namespace {

std::vector<BatchBuffer> make_buffers(const Plan& plan, std::byte* memory, int replica) {
  std::vector<BatchBuffer> buffers(plan.buffers_per_replica);
  for (BatchBuffer& buffer : buffers) {
    buffer.memory = memory;
    buffer.content.replica = replica;
    for (const BatchTensor& tensor : plan.tensors)
      buffer.content.tensors.push_back(
          {tensor.name, {memory + tensor.offset, tensor.dtype, tensor.shape.with_rows(0)}});
    memory += plan.buffer_bytes;
  }
  return buffers;
}

std::vector<BatchBuffer*> pointers(std::vector<BatchBuffer>& buffers) {
  std::vector<BatchBuffer*> out;
  for (BatchBuffer& buffer : buffers) out.push_back(&buffer);
  return out;
}

}  // namespace

BatchRing::BatchRing(const Plan& plan, const gpu::Device& device, int replica)
    : memory_(device.allocate(plan.buffers_per_replica * plan.buffer_bytes)),
      buffers_(make_buffers(plan, memory_.bytes().data(), replica)),
      pool_(pointers(buffers_)) {}

std::shared_ptr<const BatchContent> BatchRing::share(BatchBuffer* buffer) {
  return {&buffer->content, [ring = shared_from_this(), buffer](const BatchContent*) {
            buffer->lender.reset();
            ring->pool_.give_back(buffer);
          }};
}

}  // namespace feedline::flow
