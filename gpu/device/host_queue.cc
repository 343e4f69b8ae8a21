#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <vector>

#include "feedline/error.h"
#include "gpu/device/memory.h"
#include "gpu/device/queue.h"
#include "gpu/reduce/reduction.h"

namespace feedline::gpu {
namespace {

class HostQueue final : public Queue {
 public:
  explicit HostQueue(DeviceId user) : user_(user) {}

  DeviceId device() const noexcept override { return host(); }
  Stream stream() const noexcept override { return Stream::host; }
  std::byte* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;  // a block without bytes cannot be pinned
    Memory& memory = memory_.emplace_back(bytes);
    if (user_.kind == DeviceId::Kind::cuda && !memory.pin_for(user_))
      throw Error(
          Category::device_error,
          fmt::format("host memory for the exchange of gradients cannot be pinned for GPU {}; the log has the driver's "
                      "reason; most often the process or its container has too little memory",
                      user_.ordinal));
    return memory.bytes().data();
  }

  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy(std::span<const CopyPart> parts) override {
    for (const CopyPart& part : parts) copy(part.to, part.from, part.bytes);
  }
  void reduce(const ReduceLaunch& launch) override {
    const ReduceArgs& args = launch.args;
    std::vector<const std::byte*> from;
    for (uint64_t rank = 0; rank < args.ranks; rank++)
      from.push_back(args.in + rank * args.elements * size_of(launch.dtype));
    gpu::reduce(from, launch.dtype, launch.reduction, args.elements, args.out);
  }
  void divide(const DivideLaunch& launch) override {
    const DivideArgs& args = launch.args;
    bool finite = true;
    with_gradient_type(launch.dtype, [&](auto type) {
      for (uint64_t i = 0; i < args.elements; i++) {
        args.out[i] = divided<typename decltype(type)::t>(args, i);
        finite &= is_finite(args.out[i]);
      }
    });
    if (!finite) *args.finite = 0;
  }

  // The host does all work inside the calls, in their order, so there is nothing to order or to wait for.
  void enter_thread() override {}
  void follow(Stream) override {}
  void make_marks(size_t) override {}
  void mark(size_t, Stream) override {}
  void follow_mark(size_t) override {}
  void lead(Stream) override {}
  void drain(Stream) noexcept override {}
  void wait() override {}

 private:
  const DeviceId user_;
  std::deque<Memory> memory_;
};

}  // namespace

std::shared_ptr<Queue> host_queue(DeviceId user) { return std::make_shared<HostQueue>(user); }

}  // namespace feedline::gpu
