#include "gpu/device/gpu_usage.h"

#include <dlfcn.h>

#include <array>
#include <system_error>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"

namespace feedline::gpu {
namespace {

// The parts of NVML, the NVIDIA Management Library, that are used here. CUDA's toolkit does not always have NVML's
// header. The functions and structures are those of NVML's reference, docs.nvidia.com/deploy/nvml-api. They do not
// change, because later versions of them get different names (_v2).
using Result = int;  // nvmlReturn_t; 0: success
using Device = struct NvmlDevice*;
struct Utilization {  // nvmlUtilization_t, in percent
  unsigned gpu, memory;
};
struct NvmlMemory {  // nvmlMemory_t, in bytes
  unsigned long long total, free, used;
};
constexpr size_t text_bytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE, NVML_DEVICE_UUID_V2_BUFFER_SIZE

class Nvml {
 public:
  Nvml() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    Result (*init)() = nullptr;
    found_ = find(library, "nvmlInit_v2", init) && find(library, "nvmlDeviceGetCount_v2", count_) &&
             find(library, "nvmlDeviceGetHandleByIndex_v2", by_index_) && find(library, "nvmlDeviceGetName", name_) &&
             find(library, "nvmlDeviceGetUUID", uuid_) &&
             find(library, "nvmlDeviceGetUtilizationRates", utilization_) &&
             find(library, "nvmlDeviceGetMemoryInfo", memory_) &&
             find(library, "nvmlDeviceGetMaxPcieLinkGeneration", generation_) &&
             find(library, "nvmlDeviceGetCurrPcieLinkWidth", lanes_) &&
             find(library, "nvmlDeviceGetMaxPcieLinkWidth", most_lanes_) && init() == 0;
  }

  std::vector<GpuUsage> all() const {
    std::vector<GpuUsage> usage;
    unsigned count = 0;
    if (!found_ || count_(&count) != 0) return usage;
    for (unsigned i = 0; i < count; i++) {
      Device device = nullptr;
      NvmlMemory memory{};
      if (by_index_(i, &device) != 0 || memory_(device, &memory) != 0) continue;
      Utilization busy{};
      const bool known = utilization_(device, &busy) == 0;
      usage.push_back({.name = text_of(name_, device),
                       .uuid = text_of(uuid_, device),
                       .busy = known ? std::optional(busy.gpu / 100.0) : std::nullopt,
                       .memory_used = memory.used,
                       .memory_bytes = memory.total,
                       .pcie_generation = number_of(generation_, device),
                       .pcie_lanes = number_of(lanes_, device),
                       .pcie_most_lanes = number_of(most_lanes_, device)});
    }
    return usage;
  }

 private:
  template <typename Function>
  static bool find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr;
  }
  static unsigned number_of(Result (*ask)(Device, unsigned*), Device device) {
    unsigned number = 0;
    return ask(device, &number) == 0 ? number : 0;
  }
  static std::string text_of(Result (*ask)(Device, char*, unsigned), Device device) {
    std::array<char, text_bytes> text{};
    return ask(device, text.data(), text.size() - 1) == 0 ? text.data() : "";
  }

  bool found_ = false;
  Result (*count_)(unsigned*) = nullptr;
  Result (*by_index_)(unsigned, Device*) = nullptr;
  Result (*name_)(Device, char*, unsigned) = nullptr;
  Result (*uuid_)(Device, char*, unsigned) = nullptr;
  Result (*utilization_)(Device, Utilization*) = nullptr;
  Result (*memory_)(Device, NvmlMemory*) = nullptr;
  Result (*generation_)(Device, unsigned*) = nullptr;
  Result (*lanes_)(Device, unsigned*) = nullptr;
  Result (*most_lanes_)(Device, unsigned*) = nullptr;
};

/// The last answer of the library, and whether a thread is asking the library now. This object is never destroyed,
/// because the thread may still use it when the program ends.
struct Known {
  Mutex mutex;
  std::vector<GpuUsage> gpus FEEDLINE_GUARDED_BY(mutex);
  bool asking FEEDLINE_GUARDED_BY(mutex) = false;
};

}  // namespace

std::vector<GpuUsage> gpu_usage() {
  static Known& known = *new Known;
  const Lock lock(known.mutex);
  if (!known.asking) try {
      start_thread("feedline-nvml", [] {
        static const Nvml& nvml = *new Nvml;
        std::vector<GpuUsage> gpus = nvml.all();
        const Lock asked(known.mutex);
        known.gpus = std::move(gpus);
        known.asking = false;
      }).detach();
      known.asking = true;                // before the thread can reset it, it needs the lock
    } catch (const std::system_error&) {  // the thread cannot be started; the next call tries again
    }
  return known.gpus;
}

}  // namespace feedline::gpu
