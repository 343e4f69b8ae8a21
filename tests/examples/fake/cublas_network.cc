// The example's own code, which is CUDA's for nvcc, for the host's compiler.
#include "../../../examples/cublas_network.cu"
