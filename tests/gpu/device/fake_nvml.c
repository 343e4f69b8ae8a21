/* Stands in for NVIDIA's management library: a machine with two GPUs, of which the second tells neither how busy it is
   nor how it is connected. If `fake_nvml_failure` is set, counting them fails with that. */
#include <stdio.h>

typedef struct {
  unsigned gpu, memory;
} Utilization;
typedef struct {
  unsigned long long total, free, used;
} Memory;

_Atomic int fake_nvml_failure = 0;
static char devices[2];

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return fake_nvml_failure;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = devices + index;
  return 0;
}
int nvmlDeviceGetName(void* device, char* text, unsigned size) {
  snprintf(text, size, "Fake GPU %d", (int)((char*)device - devices));
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  snprintf(text, size, "GPU-%d", (int)((char*)device - devices));
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* rates) {
  rates->gpu = 63;
  rates->memory = 7;
  return device == devices ? 0 : 3; /* NVML_ERROR_NOT_SUPPORTED */
}
int nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* generation) {
  *generation = 5;
  return device == devices ? 0 : 3;
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* lanes) {
  *lanes = 4;
  return device == devices ? 0 : 3;
}
int nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* lanes) {
  *lanes = 16;
  return device == devices ? 0 : 3;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  (void)device;
  memory->total = 80ull << 30;
  memory->used = 20ull << 30;
  memory->free = 60ull << 30;
  return 0;
}
