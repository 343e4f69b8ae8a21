// The order of what rings give to GPUs, and what a GPU that fails leads to, on fake GPUs: what feeds cannot show, or
// show only by chance.
#include "gpu/device/device_ring.h"

#include <string>

#include "feedline/error.h"
#include "gpu/cuda/cuda_handles.h"
#include "gpu/cuda/cuda_peer.h"
#include "support/catch.h"
#include "support/device_buffer.h"
#include "support/fake_cuda.h"
#include "support/log_lines.h"

using namespace feedline;
using namespace feedline::gpu;
using namespace feedline::test;

namespace {

constexpr DeviceId gpu0 = cuda(0);
constexpr size_t part = 256;  // bytes

/// A ring of one buffer of two parts, and a launch that makes the second part from the first one.
class Ring {
 public:
  std::byte* at(size_t offset) const { return ring_->memory() + offset; }
  StreamOrder& order() const { return ring_->order(0); }
  DeviceRing* operator->() const { return ring_.get(); }

  /// Copies a part of `from` to the offset, and unpacks the first part if asked to.
  void fill(const std::string& from, size_t offset, bool unpacks) const {
    const CopyToDevice copy{std::as_bytes(std::span(from)), at(offset)};
    const unpack::UnpackLaunch launch = unpacker_.launch({at(0), part, at(part), part, 1}, ring_->tables());
    ring_->fill(0, {&copy, 1}, {&launch, unpacks ? 1u : 0u});
  }
  /// Returns the second part, as it is after what was waited for.
  std::string second() const {
    std::string bytes(part, '\0');
    require(cudaMemcpy(bytes.data(), at(part), part, cudaMemcpyDeviceToHost));
    return bytes;
  }

 private:
  static unpack::UnpackSpec spec() {
    unpack::UnpackSpec spec;
    spec.stored = spec.out = DType::uint8;
    spec.shape = {part};
    spec.stride_bits = {8};
    return spec;
  }
  const unpack::DeviceUnpacker unpacker_{spec()};
  const std::shared_ptr<DeviceRing> ring_ = open_device_ring({.gpu = gpu0,
                                                              .buffers = 1,
                                                              .buffer_bytes = 2 * part,
                                                              .copies = 2,
                                                              .tables = unpacker_.tables(),
                                                              .kernels = unpacker_.kernels()});
};

bool reaches(DeviceId gpu, DeviceId other) {
  bool reaches = false;
  on_gpu(gpu, [&] { reaches = reach(gpu, other); });
  return reaches;
}

}  // namespace

TEST_CASE("a buffer is filled again after the kernels of its last content, also if nobody waited for them") {
  const Lazily lazily;
  const Ring ring;
  const std::string first(part, '1'), second(part, '2');
  ring.fill(first, 0, true);
  ring->finish_copy();
  ring.order().let_go();
  ring.fill(second, part, false);
  ring->finish_copy();
  ring.order().ready_on(Stream::host);
  CHECK(ring.second() == second);
}

TEST_CASE("a ring that is drained reads its sources no more") {
  const Lazily lazily;
  const Ring ring;
  std::string source(part, '1');
  ring.fill(source, part, false);
  ring->drain();
  source.assign(part, '2');
  ring.order().ready_on(Stream::host);
  CHECK(ring.second() == std::string(part, '1'));
}

TEST_CASE("a buffer that a stream of another GPU uses lives until that has ended, and is not filled again") {
  const Lazily lazily;
  require(cudaSetDevice(1));
  const DeviceStream stream;
  const DeviceBuffer copied(part);
  require(cudaSetDevice(0));
  const std::string source(part, '1');
  {
    const Ring ring;
    ring.fill(source, part, false);
    ring->finish_copy();
    ring.order().ready_on(Stream::cuda(stream.get()));
    require(cudaMemcpyAsync(copied.data(), ring.at(part), part, cudaMemcpyDefault, stream.get()));
    ring.order().let_go();  // an event of GPU 0 cannot be recorded on a stream of GPU 1
    CHECK_THROWS_WITH(ring.fill(source, part, false), Catch::StartsWith("GPU 0: cudaEventRecord"));
  }
  require(cudaStreamSynchronize(stream.get()));
  std::string bytes(part, '\0');
  require(cudaMemcpy(bytes.data(), copied.data(), part, cudaMemcpyDeviceToHost));
  CHECK(bytes == source);
}

TEST_CASE("a copy of a batch says so if the GPU fails meanwhile") {
  const Lazily lazily;
  const Ring ring;
  const std::string source(part, '1');
  ring.fill(source, part, false);
  ring.order().ready_on(Stream::host);
  const CopyWithin all{ring.at(0), 2 * part, 0};
  CHECK(ring.order().copy({&all, 1}, 2 * part));
  fail_gpus_after(1);  // a wait; then comes the copy
  CHECK_THROWS_WITH(ring.order().copy({&all, 1}, 2 * part),
                    Catch::StartsWith("GPU 0: cudaStreamSynchronize: unspecified launch failure"));
  set_fake_gpus(8);
}

TEST_CASE("a GPU that fails while a pattern goes to another one and back does not reach it") {
  const Lazily lazily;
  for (int copies = 0; copies < 3; copies++) {
    const DeviceId other = cuda(2 + copies);
    set_fake_gpus(8);
    fail_gpus_after(static_cast<size_t>(copies));
    const LogLines log;
    CHECK_FALSE(reaches(cuda(1), other));
    REQUIRE(log.lines().size() == 1);
    CHECK_THAT(log.lines()[0], Catch::Contains(": unspecified launch failure"));
    set_fake_gpus(8);
    CHECK(reaches(cuda(1), other));
  }
}

TEST_CASE("the log says once why a GPU does not reach another one") {
  set_fake_gpus(8);
  act_unreachable(5);
  const LogLines log;
  for (int times = 0; times < 2; times++) CHECK_FALSE(reaches(cuda(1), cuda(5)));
  CHECK(log.lines().size() == 1);
  set_fake_gpus(8);
}
