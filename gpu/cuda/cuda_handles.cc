#include "gpu/cuda/cuda_handles.h"

namespace feedline::gpu {

void check_device(DeviceId gpu, Stream stream) {
  if (!is_default(stream) || stream.of_the_batch()) return;
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == gpu.ordinal) return;
  throw Error(Category::bad_pipeline, fmt::format("a default stream belongs to the thread's current device, GPU {}, "
                                                  "but the data is on GPU {}: call cudaSetDevice({}) first",
                                                  current, gpu.ordinal, gpu.ordinal));
}

void check_no_capture(DeviceId gpu, cudaStream_t stream, const char* what) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  call<IsCapturingOp>(gpu, [&] { return cudaStreamIsCapturing(stream, &capture); });
  if (capture != cudaStreamCaptureStatusNone) throw failure(gpu, what, cudaErrorStreamCaptureUnsupported);
}

void copy_on(DeviceId gpu, const Context& context, Stream stream, void* to, const void* from, size_t bytes) {
  if (stream.kind() == DeviceId::Kind::host)
    throw Error(Category::bad_pipeline, "Stream::host was given for a batch on a GPU; give a stream of that GPU");
  check_device(gpu, stream);
  const ScopedContext scoped(context);
  call<MemcpyOp>(gpu, [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.cuda_stream()); });
}

}  // namespace feedline::gpu
