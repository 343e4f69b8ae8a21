#include "training/places.h"

#include <fmt/format.h>

#include "base/leak.h"
#include "feedline/error.h"
#include "gpu/device/device_name.h"

namespace feedline {
namespace {

void check_options(const DataParallelOptions& options, DeviceId home) {
  if (options.stream.kind() != options.device.kind || options.stream == Stream::cuda_per_thread)
    throw Error(Category::bad_pipeline,
                fmt::format("options.stream: the stream belongs to a different device than the variables, or is the "
                            "per-thread default stream, which several threads cannot share; use a different stream "
                            "of {}",
                            device_name(options.device)));
  if (home.kind == DeviceId::Kind::cuda && home != options.device)
    throw Error(Category::bad_pipeline,
                fmt::format("the variables are on {}, but the communicator is for memory of {}; make a communicator "
                            "for memory of the host or of the variables' GPU",
                            device_name(options.device), device_name(home)));
}

}  // namespace

Places::Places(const DataParallelOptions& options, DeviceId home) {
  check_options(options, home);
  host_ = gpu::host_queue(options.device);
  here_ = options.device.kind == DeviceId::Kind::cuda ? gpu::cuda_queue(options.device) : host_;
  home_ = home.kind == DeviceId::Kind::cuda ? here_ : host_;
}

void Places::to_home(void* at_home, const void* here, size_t bytes) {
  if (!apart()) return;
  here_->copy(at_home, here, bytes);
  here_->wait();
}

void Places::to_here(void* here, const void* at_home, size_t bytes) {
  if (apart()) here_->copy(here, at_home, bytes);
}

void Places::keep_host_memory() const { leak(host_); }

Verdict::Verdict(Places& places)
    : places_(places), host_(reinterpret_cast<int32_t*>(places.allocate_on_host(sizeof *host_))) {
  const auto flag_on = [&](gpu::Queue& queue) {
    const bool on_host = queue.device().kind == DeviceId::Kind::host;
    return on_host ? host_ : reinterpret_cast<int32_t*>(queue.allocate(sizeof *host_));
  };
  here_ = flag_on(places.here());
  home_ = places.apart() ? flag_on(places.home()) : here_;
}

void Verdict::begin(gpu::Queue& on) {
  // Does not write a 1 again: the copy of the earlier 1 may still be under way, if nobody has read the verdict since.
  if (*host_ != 1) *host_ = 1;
  if (at(on) != host_) on.copy(at(on), host_, sizeof *host_);
}

bool Verdict::read() {
  if (here_ != host_) places_.here().copy(host_, here_, sizeof *host_);
  places_.here().wait();
  return *host_ != 0;
}

}  // namespace feedline
