/* A library of NCCL's name with one of its functions, as a framework may have loaded it. */
const char* ncclGetErrorString(int result);
const char* ncclGetErrorString(int result) { return result == 0 ? "the framework's" : "unknown"; }
