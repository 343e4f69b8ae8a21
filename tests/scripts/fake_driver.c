// Stands in for CUDA's driver, libcuda.so.1, with two GPUs.
#include <stdio.h>

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
int cuDeviceGet(int* device, int number) {
  *device = number;
  return 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  snprintf(name, (size_t)size, "Fake GPU %d", device);
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = 0;
  return device;
}
