// What only fake GPUs can show: which contexts are made, that everything is given back, and what each failure leads to.
#include "support/fake_cuda.h"

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "base/syscall_hooks.h"
#include "device_feed.h"
#include "gpu/cuda/cuda_call.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/device/gpu_model.h"
#include "gpu/device/kept_memory.h"
#include "gpu/device/memory.h"
#include "support/catch.h"
#include "support/device_buffer.h"
#include "support/given_back.h"
#include "support/log_lines.h"
#include "support/npy.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::test;

namespace {

std::string message_of(const std::function<void()>& body, Category category = Category::device_error) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(name(error.category()) == name(category));
    return error.message();
  }
  return "no error";
}

/// Returns so many numbers 0.5 as they lie in memory as FLOAT16.
std::string halves(int count) { return in_memory(std::vector<uint16_t>(static_cast<size_t>(count), 0x3800)); }

}  // namespace

TEST_CASE("devices by name; those that are not there are an error, or with auto the host") {
  set_fake_gpus(3);
  CHECK(parse_devices("cuda") == std::vector{cuda(0), cuda(1), cuda(2)});
  CHECK(parse_devices("auto") == std::vector{cuda(0), cuda(1), cuda(2)});
  CHECK(parse_devices("cuda:2,0") == std::vector{cuda(2), cuda(0)});
  CHECK(parse_devices("host") == std::vector{host()});
  CHECK(parse_devices("host:2") == std::vector{host(0), host(1)});
  CHECK(message_of([] { parse_devices("cuda:3"); }) ==
        "there is no GPU 3: the number of GPUs that this process sees is 3, and they are numbered from 0 "
        "(CUDA_VISIBLE_DEVICES may hide some)");
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:0,", "cuda:-1", "host:0", "host:x", "auto:1"})
    CHECK(
        message_of([&] { parse_devices(text); }, Category::bad_pipeline).find("is not a device; write host, host:4") !=
        std::string::npos);

  set_driver_error(cudaErrorInsufficientDriver);
  const std::string why =
      "the system has no CUDA driver, or its CUDA driver is older than the CUDA version that feedline was built with";
  CHECK(visible_gpus().why == why);
  CHECK(message_of([] { parse_devices("cuda"); }) == "there is no GPU: " + why);
  {
    const LogLines log;
    CHECK(parse_devices("auto") == std::vector{host()});
    CHECK(log.lines() == std::vector<std::string>{"no GPU can be used, so batches are made on the host: " + why});
  }
  const Data data({10});
  CHECK(message_of([&] { Feeder feeder(data.pipeline(batch_of(5, "DROP")), of_devices({cuda(0)})); }) ==
        "there is no GPU 0: " + why);
  set_driver_error(cudaErrorNoDevice);
  CHECK(visible_gpus().why.find("CUDA_VISIBLE_DEVICES") != std::string::npos);
  set_fake_gpus(2);
}

TEST_CASE("a GPU that is too old for the kernels is left out, unless it is asked for") {
  set_fake_gpus(3);
  set_capability(1, 6, 1);
  {
    const LogLines log;
    CHECK(parse_devices("cuda") == std::vector{cuda(0), cuda(2)});
    CHECK(log.lines() ==
          std::vector<std::string>{"GPU 1 is left out: the GPU has the compute capability 6.1, but feedline was built "
                                   "for " +
                                   gpu::oldest_capability() + " or higher"});
    CHECK(fake_cuda_state().contexts.empty());
  }
  const Data data({10});
  const std::string why =
      message_of([&] { Feeder feeder(data.pipeline(batch_of(5, "DROP")), of_devices(parse_devices("cuda:1"))); });
  CHECK(why.starts_with("GPU 1 has the compute capability 6.1, but feedline was built for "));
  CHECK(why.ends_with("leave out this GPU, or build feedline with -Dgpu_archs=61"));

  set_capability(0, 6, 1);
  set_capability(2, 5, 0);
  const LogLines log;
  CHECK(message_of([] { parse_devices("cuda"); }).starts_with("there is no GPU: feedline was built for the compute "));
  CHECK(parse_devices("auto") == std::vector{host()});
  set_fake_gpus(2);
}

TEST_CASE("the log says once when the driver must compile the kernels for a new GPU") {
  set_fake_gpus(2);
  set_capability(1, 99, 0);
  const Data data({10});
  const LogLines log;
  for (int i = 0; i < 2; i++) Feeder feeder(data.pipeline(batch_of(5, "DROP")), of_devices({cuda(1)}));
  CHECK(std::ranges::count_if(log.lines(), [](const std::string& line) {
          return line.starts_with("the driver compiles kernels for GPU 1 now");
        }) == 1);
  set_fake_gpus(2);
}

TEST_CASE("GPUs by UUID") {
  set_fake_gpus(3);
  const std::string rest = "000000-0000-0000-0000-000000000000";
  CHECK(parse_devices("cuda:GPU-12,GPU-10" + rest) == std::vector{cuda(2), cuda(0)});
  CHECK(parse_devices("cuda:GPU-11,0") == std::vector{cuda(1), cuda(0)});
  const std::string all = "; the GPUs that this process sees are GPU-10" + rest + ", GPU-11" + rest + ", GPU-12" + rest;
  CHECK(message_of([] { parse_devices("cuda:GPU-2"); }) == "no GPU has a UUID that begins with GPU-2" + all);
  CHECK(message_of([] { parse_devices("cuda:GPU-1"); }) == "more than one GPU has a UUID that begins with GPU-1" + all);
  CHECK(fake_cuda_state().contexts.empty());
  set_fake_gpus(2);
}

TEST_CASE("only the GPU that was asked for is touched, nothing leaks, copies are from pinned memory") {
  set_fake_gpus(4);
  const Data data({50});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(6, "DROP"));
  std::optional<Consumer> consumer;
  std::thread([&] { consumer.emplace(cuda(2)); }).join();
  CHECK(fake_cuda_state().contexts == std::set{2});
  for (int times = 0; times < 100; times++) {  // this thread's current device is another one
    Feeder feeder(pipeline, of_devices({cuda(2), cuda(2)}));
    for (int step = 0; step < times % 7; step++)
      for (int replica = 0; replica < 2; replica++) {
        Batch batch = feeder.next(replica);
        if (step % 3 == 1) batch.ready_on(consumer->stream());
        if (step % 3 == 2) batch.ready_on(Stream::host);
        if (step % 2 == 1) batch.release_on(consumer->stream());
      }
  }
  CHECK(fake_cuda_state().contexts == std::set{2});
  CHECK(fake_cuda_state().pageable_copies == 200);  // the tables of each replica, uploaded when its feeder is opened
  std::thread([&] { consumer.reset(); }).join();
  CHECK(all_is_given_back({}));
  set_fake_gpus(2);
}

TEST_CASE("a feeder that goes to another position uses the memory of its GPUs again, unless a batch has it") {
  set_fake_gpus(2);
  const Data data({50});
  const std::string mode = GENERATE(as<std::string>(), "SPLIT", "REPLICATE");
  const FakeCudaState before = fake_cuda_state();
  {
    Consumers consumers({cuda(0), cuda(1)});
    Feeder feeder(data.pipeline(outputs + batch_text(6, "DROP")).with("distribute.mode", mode),
                  of_devices({cuda(0), cuda(1)}));
    const auto step = [&] {
      std::vector<std::string> texts;
      for (int replica = 0; replica < 2; replica++) {
        Batch batch = feeder.next(replica);
        texts.push_back(consumers.text(batch));
      }
      return texts;
    };
    const std::vector<std::string> first = step(), second = step();
    SyscallHook& hook = syscall_hook<gpu::MallocOp>;
    for (int times = 0; times < 3; times++) {
      hook.fail_nth_call(1);
      feeder.set_epoch(0);
      CHECK(hook.pending());
      hook.fail_nth_call(0);
      CHECK(step() == first);
    }
    const size_t allocations = fake_cuda_state().allocations;
    Batch held = feeder.next(1);
    feeder.set_epoch(0);
    CHECK(fake_cuda_state().allocations > allocations);
    CHECK(step() == first);
    CHECK(consumers.text(held) == second[1]);
    held = Batch();
    feeder.set_epoch(0);
    CHECK(fake_cuda_state().allocations == allocations);
  }
  CHECK(all_is_given_back(before));
}

TEST_CASE("pinned memory is used again while memory is kept, if size and GPU are the same") {
  set_fake_gpus(2);
  constexpr size_t bytes = 1 << 20;
  const size_t pinned = fake_cuda_state().pinned;
  const auto address = [](size_t size, DeviceId gpu) { return gpu::Memory(size, gpu).bytes().data(); };
  {
    const gpu::KeptMemory kept;
    std::byte* const first = address(bytes, cuda(0));
    CHECK(fake_cuda_state().pinned == pinned + 1);
    gpu::Memory again(bytes, cuda(0));
    CHECK(again.bytes().data() == first);
    address(bytes, cuda(1));
    CHECK(fake_cuda_state().pinned == pinned + 2);
    gpu::Memory larger(2 * bytes, cuda(1));  // frees the other one
    CHECK(fake_cuda_state().pinned == pinned + 2);
  }
  CHECK(fake_cuda_state().pinned == pinned);
}

TEST_CASE("a batch whose stream captures is not overwritten when its feeder goes to another position") {
  set_fake_gpus(1);
  const LogLines unseen;
  const Data data({50});
  const FakeCudaState before = fake_cuda_state();
  {
    Consumer consumer(cuda(0));
    Feeder feeder(data.pipeline(outputs + batch_text(6, "DROP")), of_devices({cuda(0)}));
    Batch batch = feeder.next(0);
    batch.ready_on(consumer.stream());
    set_capturing(consumer.stream().cuda_stream(), true);
    batch = Batch();  // no event can tell when the stream has used it
    set_capturing(consumer.stream().cuda_stream(), false);
    SyscallHook& hook = syscall_hook<gpu::MallocOp>;
    hook.fail_nth_call(1);
    CHECK_THROWS_AS(feeder.set_epoch(0), Error);  // it needs other memory
    hook.fail_nth_call(0);
  }
  CHECK(all_is_given_back(before));
}

TEST_CASE("feeders begin, feed and end while a trainer captures a graph") {
  set_fake_gpus(2);
  const Data data({40});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(8, "DROP"));
  Consumer consumer, captures;
  const FakeCudaState before = fake_cuda_state();
  set_capturing(captures.stream().cuda_stream(), true);
  for (const std::string mode : {"SPLIT", "REPLICATE"}) {
    INFO(mode);
    Feeder feeder(pipeline.with("distribute.mode", mode), of_devices({cuda(0), cuda(1)}));
    for (int step = 0; step < 3; step++) {
      Batch batch = feeder.next(0);
      batch.ready_on(Stream::host);
      batch.release_on(Stream::host);
      batch = feeder.next(1, Stream::host);
    }
    feeder.set_epoch(1);
    Batch batch = feeder.next(0, consumer.stream());
    batch.release_on(consumer.stream());
  }
  set_capturing(captures.stream().cuda_stream(), false);
  CHECK(all_is_given_back(before));
}

TEST_CASE("a stream that captures is not given the release of a batch") {
  set_fake_gpus(1);
  const Data data({50});
  Feeder feeder(data.pipeline(batch_of(5, "DROP")), of_devices({cuda(0)}));
  Consumer consumer;
  Batch batch = feeder.next(0);
  set_capturing(consumer.stream().cuda_stream(), true);
  batch.release_on(consumer.stream());
  set_capturing(consumer.stream().cuda_stream(), false);
  CHECK(message_of([&] {
          while (feeder.next(0)) {
          }
        }).find("use next_into() to fill the memory that the graph reads") != std::string::npos);
  set_fake_gpus(2);
}

TEST_CASE("the default stream is not given the release of a batch while a stream captures that waits for it") {
  set_fake_gpus(1);
  const Data data({50});
  for (const unsigned flags : {cudaStreamDefault, cudaStreamNonBlocking}) {
    Feeder feeder(data.pipeline(batch_of(5, "DROP")), of_devices({cuda(0)}));
    require(cudaSetDevice(0));
    cudaStream_t captures = nullptr;
    require(cudaStreamCreateWithFlags(&captures, flags));
    Batch batch = feeder.next(0, Stream::cuda_legacy);
    set_capturing(captures, true);
    batch.release_on(Stream::cuda_legacy);
    set_capturing(captures, false);
    require(cudaStreamDestroy(captures));
    const auto rest = [&] {
      while (feeder.next(0)) {
      }
    };
    if (flags == cudaStreamNonBlocking) {
      rest();
      continue;
    }
    const std::string said = message_of(rest);
    CHECK(said.find("capture on a stream that was created with cudaStreamNonBlocking") != std::string::npos);
    CHECK(said.find("restart the process") == std::string::npos);
  }
  set_fake_gpus(2);
}

TEST_CASE("copies between pageable memory and a GPU: read at the call, and ended with it") {
  set_fake_gpus(1);
  const DeviceStream stream;
  const DeviceBuffer memory(sizeof(float));
  for (const bool pinned : {false, true}) {
    INFO(pinned);
    const PinnedFloats from_pinned(1);
    float pageable = 1, back = 0;
    float& from = pinned ? from_pinned.span()[0] : pageable;
    from = 1;
    {
      const Lazily nothing_yet;
      require(cudaLaunchHostFunc(
          stream.get(), [](void* value) { *static_cast<float*>(value) = 2; }, &from));
      require(cudaMemcpyAsync(memory.data(), &from, sizeof from, cudaMemcpyHostToDevice, stream.get()));
    }
    require(cudaMemcpyAsync(&back, memory.data(), sizeof back, cudaMemcpyDeviceToHost, stream.get()));
    CHECK(back == (pinned ? 2 : 1));
  }
  set_fake_gpus(2);
}

TEST_CASE("a batch that was ready on a default stream may die on any thread") {
  set_fake_gpus(2);
  const Data data({60});
  Feeder feeder(data.pipeline(batch_of(4, "DROP")), of_devices({cuda(1)}));
  for (int step = 0; step < 12; step++) {
    Batch batch = feeder.next(0);
    std::thread([&] {
      cudaSetDevice(1);
      batch.ready_on(step % 2 ? Stream::cuda_legacy : Stream::cuda_per_thread);
    }).join();
    std::thread([dies = std::move(batch)] {}).join();
  }
}

TEST_CASE("streams of another device are refused") {
  set_fake_gpus(2);
  const Data data({50});
  CHECK(message_of([] { Stream::cuda(nullptr); }, Category::bad_pipeline).find("Stream::cuda_legacy") !=
        std::string::npos);
  CHECK(message_of(
            [&] {
              Feeder feeder(data.pipeline(batch_of(5, "DROP")), of_devices({host(), cuda(0)}));
            },
            Category::bad_pipeline) ==
        "options.devices: the list names both the host and GPUs; make one feeder for the replicas on the host, and a "
        "second feeder for the replicas on GPUs");
  Feeder feeder(data.pipeline(batch_of(5, "DROP")), of_devices({cuda(1)}));
  const Batch batch = feeder.next(0);
  CHECK(message_of([&] { batch.ready_on(Stream::cuda_legacy); }, Category::bad_pipeline).find("cudaSetDevice(1)") !=
        std::string::npos);
  batch.ready_on(Stream::host);
  for (const int64_t number : {1, 2}) batch.ready_on(Stream::dlpack(number));  // those of the batch's GPU
  for (const int64_t number : {0, -1})
    CHECK(message_of([&] { Stream::dlpack(number); }, Category::bad_pipeline).find("does not name a CUDA stream") !=
          std::string::npos);
}

TEST_CASE("next() refuses a stream of another device") {
  set_fake_gpus(2);
  const Data data({50});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(5, "DROP"));
  Feeder feeder(pipeline, of_devices({cuda(1)})), beside(pipeline, of_devices({host()}));
  const Texts wanted = epoch_of(beside);
  Consumer consumer(cuda(1));
  for (const std::string& text : wanted[0]) {
    if (text != "end")
      for (int times = 0; times < 5; times++) {  // more often than there are buffers: three
        require(cudaSetDevice(0));
        CHECK(
            message_of([&] { feeder.next(0, Stream::cuda_legacy); }, Category::bad_pipeline).find("cudaSetDevice(1)") !=
            std::string::npos);
        CHECK(message_of([&] { feeder.next_into(0, {}, Stream::cuda_legacy); }, Category::bad_pipeline)
                  .find("cudaSetDevice(1)") != std::string::npos);
        require(cudaSetDevice(1));
      }
    Batch batch = feeder.next(0, consumer.stream());
    CHECK((batch ? consumer.text(batch) : "end") == text);
  }
  CHECK(feeder.report().steps == wanted[0].size() - 1);
}

TEST_CASE("GPUs that are given the same rows reach one another, if they can") {
  const LogLines unseen;
  const Data data({50});
  const Pipeline pipeline = data.pipeline(batch_of(5, "DROP")).with("distribute.mode", "REPLICATE");
  for (int times = 0; times < 2; times++) {  // access enabled the first time stays enabled
    if (times == 0) set_fake_gpus(4);
    Feeder feeder(pipeline, of_devices({cuda(2), cuda(0), cuda(0), cuda(3)}));
    CHECK(fake_cuda_state().reaching == std::set<std::pair<int, int>>{{0, 2}, {3, 0}});
    CHECK(fake_cuda_state().contexts == std::set{0, 2, 3});
  }
  set_fake_gpus(2);
}

TEST_CASE("rows are uploaded to each GPU that cannot have them from the one before it") {
  const Data data({50});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(5, "DROP")).with("distribute.mode", "REPLICATE");
  Feeder beside(pipeline, of_devices({host()}));
  const Texts wanted = epoch_of(beside);
  std::string log;
  // Feeds an epoch, and returns how many of the three GPUs the rows were uploaded to.
  const auto uploads = [&](const Pipeline& of, const std::vector<DeviceId>& devices) {
    const LogLines lines;
    Consumers consumers(devices);
    Feeder feeder(of, of_devices(devices));
    for (size_t step = 0; step + 1 < wanted[0].size(); step++)
      for (int replica = 0; replica < 3; replica++) {
        Batch batch = feeder.next(replica);
        CHECK(consumers.text(batch) == wanted[0][step]);
      }
    log.clear();
    for (const std::string& line : lines.lines()) log += line + "\n";
    // Later batches are on their way, and have been given to some of the GPUs only.
    const Report report = feeder.report();
    return std::lround(3.0 * static_cast<double>(report.uploaded_bytes) /
                       static_cast<double>(report.uploaded_bytes + report.between_gpus_bytes));
  };
  using Catch::Contains;
  set_fake_gpus(12);
  const std::vector<DeviceId> three = {cuda(9), cuda(10), cuda(11)};
  CHECK(uploads(pipeline.with("distribute.peer", "OFF"), three) == 3);
  CHECK(log.empty());
  CHECK(fake_cuda_state().reaching.empty());
  CHECK(uploads(pipeline.with("distribute.peer", "OFF"), {cuda(9), cuda(9), cuda(9)}) == 1);

  act_garbled(9);
  CHECK(uploads(pipeline, three) == 2);
  CHECK_THAT(
      log, Contains("GPU 10 cannot read the memory of GPU 9, so rows for both GPUs are copied from the host to each of "
                    "them: a test copy between these GPUs arrived with wrong bytes"));
  CHECK(fake_cuda_state().reaching == std::set<std::pair<int, int>>{{11, 10}});

  set_fake_gpus(12);
  act_unreachable(10);
  CHECK(uploads(pipeline, three) == 2);
  CHECK_THAT(log, Contains("GPU 11 cannot read the memory of GPU 10") &&
                      Contains("CUDA offers no peer access between these GPUs"));
  CHECK(fake_cuda_state().reaching == std::set<std::pair<int, int>>{{10, 9}});

  set_fake_gpus(12);
  set_peer_error(cudaErrorMapBufferObjectFailed);  // as drivers do that offer what they cannot do
  CHECK(uploads(pipeline, three) == 3);
  CHECK_THAT(log, Contains("cudaDeviceEnablePeerAccess"));

  set_fake_gpus(12);
  CHECK(uploads(pipeline, three) == 1);
  CHECK(log.empty());
  set_fake_gpus(2);
}

namespace {

/// A stream of GPU 0, and 100 bytes on each of two GPUs.
struct TwoGpus {
  TwoGpus() {
    set_fake_gpus(2);
    for (const int gpu : {1, 0}) {
      require(cudaSetDevice(gpu));
      require(cudaMalloc(&memory[gpu], 100));
    }
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~TwoGpus() {
    cudaStreamDestroy(stream);
    for (void* one : memory) cudaFree(one);
  }
  TwoGpus(const TwoGpus&) = delete;
  TwoGpus& operator=(const TwoGpus&) = delete;

  /// Runs a kernel that copies floats to the memory of GPU 0.
  cudaError_t run_kernel(void* from, uint64_t elements) const {
    const cudaError_t error = gpu::launch_reduce({.args = {.in = static_cast<std::byte*>(from),
                                                           .out = static_cast<std::byte*>(memory[0]),
                                                           .ranks = 1,
                                                           .elements = elements},
                                                  .dtype = DType::float32,
                                                  .reduction = Reduction::sum},
                                                 stream);
    cudaStreamSynchronize(stream);
    return error;
  }

  void* memory[2] = {};
  cudaStream_t stream = nullptr;
};

/// Runs a hidden case of this program in a process of its own, and returns whether that ended well.
bool ends_well(const std::string& test) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  return std::system(("'" + program + "' '" + test + "' > /dev/null 2>&1").c_str()) == 0;
}

}  // namespace

TEST_CASE("fake CUDA refuses what CUDA refuses, and ends the program where a GPU would do wrong") {
  {
    const TwoGpus gpus;
    std::vector<std::byte> bytes(4096);
    void* const first = gpus.memory[0];
    CHECK(cudaMemcpyAsync(first, bytes.data(), 100, cudaMemcpyDefault, gpus.stream) == cudaSuccess);
    CHECK(cudaMemcpyAsync(first, bytes.data(), 101, cudaMemcpyDefault, gpus.stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(bytes.data(), static_cast<std::byte*>(first) + 50, 51, cudaMemcpyDefault, gpus.stream) ==
          cudaErrorInvalidValue);
    CHECK(cudaMemsetAsync(first, 0, 101, gpus.stream) == cudaErrorInvalidValue);
    require(cudaSetDevice(1));
    CHECK(gpus.run_kernel(first, 1) == cudaErrorInvalidResourceHandle);  // the stream is one of GPU 0
    require(cudaSetDevice(0));
  }
  CHECK(ends_well("a kernel on its own memory"));
  CHECK(ends_well("a kernel on memory that it reaches"));
  CHECK_FALSE(ends_well("a kernel on memory that it does not reach"));
  CHECK_FALSE(ends_well("a kernel past the end of its memory"));
  CHECK_FALSE(ends_well("words that are copied and not aligned"));
  CHECK_FALSE(ends_well("elements that are loaded and not aligned"));
  CHECK_FALSE(ends_well("vectors that are not aligned"));
}

TEST_CASE("a kernel on its own memory", "[.alone]") {
  const TwoGpus gpus;
  CHECK(gpus.run_kernel(gpus.memory[0], 25) == cudaSuccess);
}
TEST_CASE("a kernel on memory that it reaches", "[.alone]") {
  const TwoGpus gpus;
  require(cudaDeviceEnablePeerAccess(1, 0));
  CHECK(gpus.run_kernel(gpus.memory[1], 25) == cudaSuccess);
}
TEST_CASE("a kernel on memory that it does not reach", "[.alone]") {
  const TwoGpus gpus;
  CHECK(gpus.run_kernel(gpus.memory[1], 25) == cudaSuccess);
}
TEST_CASE("a kernel past the end of its memory", "[.alone]") {
  const TwoGpus gpus;
  CHECK(gpus.run_kernel(gpus.memory[0], 256) == cudaSuccess);
}
TEST_CASE("words that are copied and not aligned", "[.alone]") {
  const TwoGpus gpus;
  auto* const bytes = static_cast<std::byte*>(gpus.memory[0]);
  gpu::CopyArgs copies{};
  copies.parts[copies.count++] = {.from = bytes + 1, .to = bytes + 64, .bytes = 16, .word = 4, .after = 1};
  CHECK(gpu::launch_copy(copies, gpus.stream) == cudaSuccess);
  cudaStreamSynchronize(gpus.stream);
}
TEST_CASE("elements that are loaded and not aligned", "[.alone]") {
  const TwoGpus gpus;
  unpack::UnpackSpec spec;
  spec.stored = spec.out = DType::float32;
  spec.shape = {1};
  spec.stride_bits = {32};
  const unpack::DeviceUnpacker unpacker(spec);
  auto* const bytes = static_cast<std::byte*>(gpus.memory[0]);
  unpack::UnpackLaunch launch = unpacker.launch({bytes, 4, bytes + 64, 4, 1}, bytes);
  launch.args.in += 1;
  CHECK(gpu::launch_unpack({&launch, 1}, gpus.stream) == cudaSuccess);
  cudaStreamSynchronize(gpus.stream);
}
TEST_CASE("vectors that are not aligned", "[.alone]") {
  const TwoGpus gpus;
  unpack::UnpackLaunch launch{};
  launch.kernel = {.op = unpack::UnpackKernel::Op::copy, .out = DType::float32, .vectors = true};
  launch.args.in = static_cast<std::byte*>(gpus.memory[0]) + 64;
  launch.args.out = static_cast<std::byte*>(gpus.memory[0]) + 4;
  launch.args.out_stride = 16;
  launch.args.vectors = unpack::Divisor(1);
  launch.args.rows = 1;
  CHECK(gpu::launch_unpack({&launch, 1}, gpus.stream) == cudaSuccess);
  cudaStreamSynchronize(gpus.stream);
}

TEST_CASE("any failing CUDA call: the feed is right, or ends with the reason") {
  const LogLines unseen;
  const std::string mode = GENERATE(as<std::string>(), "SPLIT", "REPLICATE");
  const std::vector<DeviceId> devices = mode == "SPLIT" ? std::vector{cuda(1)} : std::vector{cuda(1), cuda(2)};
  set_fake_gpus(3);
  const Data data({60});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(16, "PAD")).with("distribute.mode", mode);
  Feeder beside(pipeline, of_devices({host()}));
  const Texts wanted = epoch_of(beside);
  // Feeds an epoch. Returns the message of the error that ended it, or "".
  const auto feed = [&]() -> std::string {
    try {
      Consumers consumers(devices);
      Feeder feeder(pipeline, of_devices(devices));
      for (size_t step = 0; step < wanted[0].size(); step++)
        for (int replica = 0; replica < feeder.replicas(); replica++) {
          Batch batch = feeder.next(replica);
          if (batch && step == 1) {
            Batch copy = batch.copy();
            CHECK(consumers.text(copy) == wanted[0][step]);
          }
          const std::string text = batch ? consumers.text(batch) : "end";
          CHECK(text == wanted[0][step]);
        }
    } catch (const Error& error) {
      CHECK(error.category() == Category::device_error);
      return error.message();
    }
    return "";
  };
  CHECK(feed() == "");
  std::map<std::string, int> errors;
  for (SyscallHook* hook : SyscallHook::all()) {
    const std::string name = hook->name();
    if (name.rfind("cuda", 0) != 0) continue;
    const FakeCudaState before = fake_cuda_state();
    for (int64_t n = 1;; n++) {
      INFO(name << ", call " << n);
      hook->fail_nth_call(n);
      const std::string error = feed();
      const bool has_fired = !hook->pending();
      hook->fail_nth_call(0);
      if (!error.empty()) {
        errors[name]++;
        const std::string what = ": " + name +
                                 ": unspecified launch failure (cudaErrorLaunchFailure); after such a failure all "
                                 "later calls for this GPU fail: restart the process";
        CHECK((error == "GPU 1" + what || (error == "GPU 2" + what && mode == "REPLICATE")));
      }
      if (!has_fired) break;
    }
    INFO(name);
    // A feeder that cannot select a GPU any more frees nothing there, and a copy is not freed if its streams are
    // refused.
    const std::set<std::string> leaves_memory = {"cudaSetDevice", "cudaThreadExchangeStreamCaptureMode",
                                                 "cudaFreeAsync", "cudaStreamIsCapturing"};
    if (!leaves_memory.contains(name))
      CHECK(all_is_given_back(before, mode == "REPLICATE"));  // a failed communicator keeps the memory that it reads
  }
  for (const char* name : {"cudaSetDevice", "cudaThreadExchangeStreamCaptureMode", "cudaMalloc", "cudaMallocAsync",
                           "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "cudaMemcpyAsync",
                           "cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventSynchronize",
                           "cudaEventElapsedTime", "cudaStreamIsCapturing", "cudaFuncGetAttributes",
                           "cudaGetDriverEntryPointByVersion", "cudaStreamSynchronize"}) {
    INFO(name);
    CHECK(errors[name] > 0);
  }
  CHECK(errors["cudaHostRegister"] == 0);         // a failure only makes the copies pageable
  CHECK(errors["cudaDeviceCanAccessPeer"] == 0);  // rows are then uploaded to each GPU
  CHECK(errors["cudaDeviceEnablePeerAccess"] == 0);
  set_fake_gpus(2);
}

TEST_CASE("a table on GPUs: each once, all is given back, and a failing call ends the feed with the reason") {
  const LogLines unseen;
  set_fake_gpus(3);
  const FakeCudaState others = fake_cuda_state();  // what failures in other tests have left
  const Data data({40});
  const std::string path =
      data.dir().write("table.npy", npy("<f4", "(40, 3)", in_memory(std::vector<float>(40 * 3, 0.5f))));
  const Pipeline pipeline = data.pipeline(
      "output { name: 'row' dtype: FLOAT16 feature: 'id' lookup { table: 'table.npy' on_device: true } } batch { "
      "batch_size_per_replica: 2 last_batch_policy: DROP }");
  // Returns the message of the error that ended the feed, or "".
  const auto feed = [&](const std::vector<DeviceId>& devices) -> std::string {
    try {
      Consumers consumers(devices);
      Feeder feeder(pipeline, of_devices(devices));
      for (int replica = 0; replica < feeder.replicas(); replica++) {
        Batch batch = feeder.next(replica);
        const std::string text = consumers.text(batch);
        CHECK(text.ends_with("row FLOAT16[2, 3] " + halves(6)));
      }
      feeder.set_state(feeder.get_state(0, 1));
      for (int replica = 0; replica < feeder.replicas(); replica++) feeder.next(replica);
    } catch (const Error& error) {
      CHECK(error.category() == Category::device_error);
      CHECK((error.place().file.empty() || error.place().file == path));
      return error.message();
    }
    return "";
  };
  CHECK(feed({cuda(1), cuda(1), cuda(2)}) == "");
  CHECK(all_is_given_back(others));
  bool named = false;
  for (SyscallHook* hook : SyscallHook::all()) {
    const std::string name = hook->name();
    if (name.rfind("cuda", 0) != 0) continue;
    const FakeCudaState before = fake_cuda_state();
    for (int64_t n = 1;; n++) {
      INFO(name << ", call " << n);
      hook->fail_nth_call(n);
      const std::string error = feed({cuda(1)});
      const bool has_fired = !hook->pending();
      hook->fail_nth_call(0);
      if (!error.empty()) CHECK_THAT(error, Catch::Contains("GPU 1: " + name + ": unspecified launch failure"));
      named = named ||
              (name == "cudaMalloc" &&
               error.starts_with("the table cannot be copied to GPU 1, where it takes 492 B: GPU 1: cudaMalloc: ") &&
               error.ends_with("; if the GPU has too little memory, leave out lookup.on_device"));
      if (!has_fired) break;
    }
    INFO(name);
    const std::set<std::string> leaves_memory = {"cudaSetDevice", "cudaThreadExchangeStreamCaptureMode",
                                                 "cudaFreeAsync", "cudaStreamIsCapturing"};
    if (!leaves_memory.contains(name)) CHECK(all_is_given_back(before));
  }
  CHECK(named);
  set_fake_gpus(2);
}

TEST_CASE("a GPU that fails in the middle ends the feed with the reason") {
  const LogLines unseen;
  for (int at = 0; at < 4; at++) {
    set_fake_gpus(1);
    const Data data({100});
    Feeder feeder(data.pipeline(outputs + batch_text(4, "DROP")), of_devices({cuda(0)}));
    Batch held;
    for (int step = 0; step < at; step++) held = feeder.next(0);
    fail_gpus();
    const std::string message = message_of([&] {
      for (;;) {
        held = feeder.next(0);
        held.ready_on(Stream::host);
      }
    });
    CHECK(message.find("GPU 0: cuda") == 0);
    CHECK(message.find("restart the process") != std::string::npos);
  }
  set_fake_gpus(2);
}
