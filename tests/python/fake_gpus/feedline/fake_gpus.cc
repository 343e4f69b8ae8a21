// Drives the fake GPUs (support/fake_cuda.h) that this build of the extension module runs on. It is a second module in
// the same file, because the fake's state is hidden there.
#include <cuda_runtime_api.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <future>
#include <stdexcept>
#include <string>

#include "support/fake_cuda.h"

namespace nb = nanobind;

namespace {

void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// A consumer's stream, which can be slow.
class FakeStream {
 public:
  explicit FakeStream(int device) {
    require(cudaSetDevice(device));
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~FakeStream() {
    let_go();
    nb::gil_scoped_release released;
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
    for (std::string& out : read_) cudaHostUnregister(out.data());
  }
  FakeStream(const FakeStream&) = delete;

  uintptr_t handle() const { return reinterpret_cast<uintptr_t>(stream_); }
  /// Makes all work that the stream is given from now on wait for let_go().
  void hold() {
    std::shared_future<void> gate = gate_.emplace_back().get_future().share();
    feedline::test::run_on_stream(stream_, [gate] { gate.wait(); });
  }
  void let_go() {
    for (std::promise<void>& gate : gate_) gate.set_value();
    gate_.clear();
  }
  /// Gives the stream the work to copy the bytes to the host, and returns its number. The memory is pinned, because
  /// CUDA waits for a copy to other memory of the host.
  size_t read(uintptr_t address, size_t bytes) {
    std::string& out = read_.emplace_back(bytes, '\0');
    require(cudaHostRegister(out.data(), bytes, cudaHostRegisterDefault));
    require(cudaMemcpyAsync(out.data(), reinterpret_cast<void*>(address), bytes, cudaMemcpyDeviceToHost, stream_));
    return read_.size() - 1;
  }
  /// Waits for all work, and returns what a read() has found.
  nb::bytes found(size_t number) {
    {
      nb::gil_scoped_release released;
      require(cudaStreamSynchronize(stream_));
    }
    return nb::bytes(read_[number].data(), read_[number].size());
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::deque<std::promise<void>> gate_;
  std::deque<std::string> read_;
};

}  // namespace

NB_MODULE(_fake_gpus, module) {
  module.def("set_fake_gpus", feedline::test::set_fake_gpus);
  nb::class_<FakeStream>(module, "FakeStream")
      .def(nb::init<int>())
      .def_prop_ro("handle", &FakeStream::handle)
      .def("hold", &FakeStream::hold)
      .def("let_go", &FakeStream::let_go)
      .def("read", &FakeStream::read)
      .def("found", &FakeStream::found);
}
