// A trainer that captures CUDA graphs while a feed runs. Runs on real GPUs only.
#include <cuda_runtime_api.h>

#include <memory>
#include <thread>

#include "device_feed.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("a trainer captures a graph while feeds begin and end, and replays it on what next_into() fills") {
  if (no_gpus()) return;
  const Data data({60});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(6, "DROP"));
  Consumer trainer;
  const cudaStream_t stream = trainer.stream().cuda_stream();
  constexpr size_t bytes = 6 * 4 * 8 * sizeof(float);
  const DeviceBuffer bits(bytes), copied(bytes);
  const std::vector<NamedTensor> to = {{"bits", {bits.data(), DType::float32, {6, 4, 8}}}};

  // This mode forbids every thread of the process the calls that would wait for a GPU or allocate its memory.
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  require(cudaMemcpyAsync(copied.data(), bits.data(), bytes, cudaMemcpyDeviceToDevice, stream));
  std::string thrown;
  std::thread([&] {
    try {
      for (int times = 0; times < 3; times++) {
        Feeder feeder(pipeline, of_devices(gpus(1)));
        for (int step = 0; step < 5; step++) {
          Batch batch = feeder.next(0);
          batch.ready_on(Stream::host);
          batch.release_on(Stream::host);
        }
      }
    } catch (const std::exception& error) {
      thrown = error.what();
    }
  }).join();
  CHECK(thrown == "");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  require(cudaStreamEndCapture(stream, &graph));
  require(cudaGraphInstantiate(&replay, graph, 0));

  Feeder feeder(pipeline, of_devices(gpus(1))), beside(pipeline, of_devices({host()}));
  for (int step = 0; step < 10; step++) {
    REQUIRE(feeder.next_into(0, to, trainer.stream()));
    require(cudaGraphLaunch(replay, stream));
    const Batch wanted = beside.next(0);
    CHECK(trainer.read(copied.data(), bytes) == host_bytes(wanted.at("bits")));
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}
