/* The structs of DLPack 1.0 (dmlc.github.io/dlpack/latest/c_api.html), in which frameworks hand tensors to each other.
   They are DLPack's own names and layout: a program that includes DLPack's dlpack.h, from version 1.0 on, before this
   header uses those instead. (Distributions carry older headers, which lack DLManagedTensorVersioned.) C11 and C++. */
#ifndef FEEDLINE_DLPACK_H_
#define FEEDLINE_DLPACK_H_

#include <stdint.h> /* NOLINT: this is C, too */

#ifndef DLPACK_MAJOR_VERSION

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 } DLDataTypeCode;

#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef struct {
  uint8_t code; /* a DLDataTypeCode */
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides; /* in elements */
  uint64_t byte_offset;
} DLTensor;

/* The struct of versions before 1.0. */
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

typedef struct {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

/* A tensor, and the function which whoever uses the tensor calls once, when the tensor is no longer needed. */
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

#ifdef __cplusplus
}
#endif

#endif /* DLPACK_MAJOR_VERSION */

#endif /* FEEDLINE_DLPACK_H_ */
