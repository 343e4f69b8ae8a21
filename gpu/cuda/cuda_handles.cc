#include "gpu/cuda/cuda_handles.h"

namespace feedline::gpu {

void check_device(DeviceId gpu, Stream stream) {
  if (!is_default(stream)) return;
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

}  // namespace feedline::gpu
