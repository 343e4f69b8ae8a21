#include "flowgraph/batch/batch_buffers.h"

namespace feedline::flow {
namespace {

std::vector<BatchBuffer> make_buffers(size_t count, uint64_t bytes, std::byte* memory, int replica,
                                      const BatchRing::Content& content) {
  std::vector<BatchBuffer> buffers(count);
  for (BatchBuffer& buffer : buffers) {
    buffer.memory = memory;
    buffer.content = content(memory);
    buffer.content.replica = replica;
    memory += bytes;
  }
  return buffers;
}

BatchContent content_of(const Plan& plan, std::byte* memory) {
  BatchContent content;
  for (const BatchTensor& tensor : plan.memory.tensors)
    content.tensors.push_back({tensor.name, {memory + tensor.offset, tensor.dtype, tensor.shape.with_rows(0)}});
  return content;
}

}  // namespace

BatchRing::BatchRing(const Plan& plan, int replica, DeviceId copied_to)
    : BatchRing(
          plan.memory.buffers_per_replica, plan.memory.buffer_bytes, replica,
          [&](std::byte* memory) { return content_of(plan, memory); }, copied_to) {}

BatchRing::BatchRing(size_t buffers, uint64_t buffer_bytes, int replica, const Content& content, DeviceId copied_to)
    : memory_(buffers * buffer_bytes, copied_to),
      buffers_(make_buffers(buffers, buffer_bytes, memory_.bytes().data(), replica, content)),
      pool_(pointers_to(buffers_)) {}

BatchRing::BatchRing(std::shared_ptr<gpu::DeviceRing> device, size_t buffers, uint64_t buffer_bytes, int replica,
                     const Content& content)
    : device_(std::move(device)),
      buffers_(make_buffers(buffers, buffer_bytes, device_->memory(), replica, content)),
      pool_(pointers_to(buffers_), Pool<BatchBuffer*>::Next::oldest) {
  for (size_t i = 0; i < buffers; i++) buffers_[i].content.order = &device_->order(i);
}

std::shared_ptr<const BatchContent> BatchRing::share(BatchBuffer* buffer) {
  return {&buffer->content, [ring = shared_from_this(), buffer](const BatchContent* content) {
            if (content->order) content->order->let_go();
            buffer->lender.reset();
            ring->pool_.give_back(buffer);
          }};
}

}  // namespace feedline::flow
