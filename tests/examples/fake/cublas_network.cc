// Compiles the example's own CUDA source with the host's compiler.
#include "../../../examples/cublas_network.cu"
