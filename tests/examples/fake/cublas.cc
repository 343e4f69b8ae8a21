// A fake cuBLAS for fake GPUs, as far as the example calls it, and the fake GPUs themselves.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <utility>

#include "support/fake_cuda.h"

namespace {

[[maybe_unused]] const bool reachable = (feedline::test::act_reachable_memory(), true);

template <typename F>
void with_type(cudaDataType_t type, F f) {
  if (type == CUDA_R_32F)
    f(float());
  else if (type == CUDA_R_16F)
    f(__half());
  else
    f(__nv_bfloat16());
}

// Returns an element of op(matrix), whose elements are stored column by column.
template <typename T>
float element(const void* matrix, int leading, cublasOperation_t op, int row, int column) {
  if (op == CUBLAS_OP_T) std::swap(row, column);
  return float(static_cast<const T*>(matrix)[row + column * leading]);
}

}  // namespace

struct cublasContext {
  cudaStream_t stream = nullptr;
};

extern "C" {

const char* cublasGetStatusString(cublasStatus_t) { return "a simulated error"; }
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType_t type_a, int leading_a, const void* b,
                            cudaDataType_t type_b, int leading_b, const void* beta, void* c, cudaDataType_t type_c,
                            int leading_c, cublasComputeType_t compute, cublasGemmAlgo_t) {
  const bool known = compute == CUBLAS_COMPUTE_32F && type_a == type_b && (type_c == type_a || type_c == CUDA_R_32F);
  const bool fits =
      leading_a >= (op_a == CUBLAS_OP_T ? k : m) && leading_b >= (op_b == CUBLAS_OP_T ? n : k) && leading_c >= m;
  if (!known || !fits) return CUBLAS_STATUS_INVALID_VALUE;
  const float by = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  feedline::test::run_on_stream(handle->stream, [=] {
    with_type(type_a, [&](auto from) {
      with_type(type_c, [&](auto to) {
        using From = decltype(from);
        using To = decltype(to);
        for (int column = 0; column < n; column++)
          for (int row = 0; row < m; row++) {
            float sum = 0;
            for (int i = 0; i < k; i++)
              sum += element<From>(a, leading_a, op_a, row, i) * element<From>(b, leading_b, op_b, i, column);
            To& out = static_cast<To*>(c)[row + column * leading_c];
            out = To(by * sum + (keep != 0 ? keep * float(out) : 0));
          }
      });
    });
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
