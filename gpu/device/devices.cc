// Makes devices from texts, and streams from CUDA's handles.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "base/parse.h"
#include "feedline/device.h"
#include "feedline/error.h"
#include "gpu/device/device_ring.h"
#include "gpu/device/gpu_model.h"

namespace feedline {
namespace {

[[noreturn]] void refuse(std::string_view text) {
  throw Error(
      Category::bad_pipeline,
      fmt::format("devices: '{}' is not a device; write host, host:4, cuda, cuda:0,1, cuda:GPU-5a1b or auto", text));
}

// Returns the number if the whole text is a decimal number that is not negative; nullopt for any other text.
std::optional<int> number_in(std::string_view text) {
  const auto number = parse_number<int>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

// Returns the GPUs that can run the kernels. Logs a warning for each GPU that cannot run them, which most likely only
// drives a display.
std::vector<DeviceId> all_gpus(const Gpus& gpus) {
  std::vector<DeviceId> devices;
  for (int ordinal = 0; ordinal < gpus.count; ordinal++) {
    const gpu::GpuModel model = gpu::model_of(cuda(ordinal));
    if (model.kernels() != gpu::GpuModel::Kernels::none)
      devices.push_back(cuda(ordinal));
    else
      log_warning(
          fmt::format("GPU {} is left out: the GPU has the compute capability {}.{}, but feedline was built for {} or "
                      "higher",
                      ordinal, model.major, model.minor, gpu::oldest_capability()));
  }
  return devices;
}

void check_ordinal(int ordinal, const Gpus& gpus) {
  if (ordinal >= 0 && ordinal < gpus.count) return;
  throw Error(Category::device_error, gpus.count == 0
                                          ? fmt::format("there is no GPU {}: {}", ordinal, gpus.why)
                                          : fmt::format("there is no GPU {}: the number of GPUs that this process sees "
                                                        "is {}, and they are numbered from 0 (CUDA_VISIBLE_DEVICES may "
                                                        "hide some)",
                                                        ordinal, gpus.count));
}

// Returns the GPU whose UUID begins with `uuid`.
DeviceId gpu_with(std::string_view uuid, const Gpus& gpus) {
  std::string all;
  std::vector<DeviceId> found;
  for (int ordinal = 0; ordinal < gpus.count; ordinal++) {
    const std::string known = gpu::model_of(cuda(ordinal)).uuid;
    if (known.starts_with(uuid)) found.push_back(cuda(ordinal));
    all += fmt::format("{}{}", all.empty() ? "" : ", ", known);
  }
  if (found.size() == 1) return found[0];
  throw Error(Category::device_error, gpus.count == 0 ? fmt::format("there is no GPU {}: {}", uuid, gpus.why)
                                                      : fmt::format("{} GPU has a UUID that begins with {}; the GPUs "
                                                                    "that this process sees are {}",
                                                                    found.empty() ? "no" : "more than one", uuid, all));
}

std::vector<DeviceId> listed_gpus(std::string_view list, std::string_view text, const Gpus& gpus) {
  std::vector<DeviceId> devices;
  for (;;) {
    const size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    if (item.starts_with("GPU-")) {
      devices.push_back(gpu_with(item, gpus));
    } else {
      const auto ordinal = number_in(item);
      if (!ordinal) refuse(text);
      check_ordinal(*ordinal, gpus);
      devices.push_back(cuda(*ordinal));
    }
    if (comma == std::string_view::npos) return devices;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

std::vector<DeviceId> parse_devices(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const bool listed = colon != std::string_view::npos;
  const std::string_view rest = listed ? text.substr(colon + 1) : std::string_view();
  if (kind == "host") {
    const auto replicas = listed ? number_in(rest) : 1;
    if (!replicas || *replicas == 0 || *replicas > 1024) refuse(text);
    std::vector<DeviceId> devices;
    for (int ordinal = 0; ordinal < *replicas; ordinal++) devices.push_back(host(ordinal));
    return devices;
  }
  if (kind != "cuda" && (kind != "auto" || listed)) refuse(text);
  const Gpus gpus = visible_gpus();
  if (listed) return listed_gpus(rest, text, gpus);
  std::string why = gpus.why;
  if (gpus.count > 0) {
    if (std::vector<DeviceId> devices = all_gpus(gpus); !devices.empty()) return devices;
    why = fmt::format(
        "feedline was built for the compute capability {} or higher; build feedline with -Dgpu_archs for older GPUs",
        gpu::oldest_capability());
  }
  if (kind == "cuda") throw Error(Category::device_error, fmt::format("there is no GPU: {}", why));
  log_warning(fmt::format("no GPU can be used, so batches are made on the host: {}", why));
  return {host()};
}

void gpu::check_devices(std::span<const DeviceId> devices) {
  const auto is_gpu = [](DeviceId device) { return device.kind == DeviceId::Kind::cuda; };
  if (std::ranges::none_of(devices, is_gpu)) return;
  const Gpus gpus = visible_gpus();
  for (const DeviceId device : devices)
    if (is_gpu(device)) check_ordinal(device.ordinal, gpus);
}

Stream Stream::cuda(CUstream_st* stream) {
  if (!stream)
    throw Error(Category::bad_pipeline,
                "a null CUDA stream is the legacy default stream, which waits for all other streams; if this stream is "
                "wanted, write Stream::cuda_legacy");
  return Stream(DeviceId::Kind::cuda, reinterpret_cast<uintptr_t>(stream));
}

Stream Stream::dlpack(int64_t number) {
  if (number <= 0)
    throw Error(Category::bad_pipeline,
                fmt::format("{} does not name a CUDA stream; write 1 for the legacy default stream, 2 for the "
                            "per-thread default stream, or the handle of a stream",
                            number));
  return Stream(DeviceId::Kind::cuda, static_cast<uintptr_t>(number), number <= 2);
}

}  // namespace feedline
