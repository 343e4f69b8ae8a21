#!/usr/bin/env bash
# Every test of GPUs, then how fast kernels and copies are. Exits with 1 where a test failed; says what was not run.
cd "$(dirname "${BASH_SOURCE[0]}")" || exit
status=0
# NCCL and cuBLAS are the system's, or those of a Python environment.
wheels=$(python3 -c 'import glob, nvidia; print(*(lib for path in nvidia.__path__ for lib in glob.glob(path + "/*/lib")), sep=":")' 2> /dev/null || true)
export LD_LIBRARY_PATH=$PWD/lib:$wheels:${LD_LIBRARY_PATH:-}
# A C++ library that is older than the compiler's makes every program fail. Then its own is the last resort.
if ldd ./unpack_gpu_check 2>&1 | grep -qE "version .GLIBCXX_.* not found|lib(stdc\+\+|gcc_s).* => not found"; then
  export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$PWD/lib-of-compiler
fi
# check COMMAND...: runs a program whose name is the first word that begins with "./".
check() {
  local program code=0
  for program in "$@"; do [[ $program == ./* && -x $program && $program != *.py ]] && break; done
  echo "== $*"
  if ldd "$program" | grep "not found"; then
    echo "NOT RUN: $program: this machine lacks the libraries above"
    return
  fi
  "$@" || code=$?
  case "$code" in
    0) ;;
    77) echo "NOT RUN: $program says why" ;;
    *) status=1 ;;
  esac
}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for program in ./unpack_gpu_check ./copy_gpu_check ./device_feed_test ./nccl_communicator_test ./nccl_processes_test ./nccl_feed_test ./data_parallel_gpu_test; do
  check "$program"
done
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    check compute-sanitizer --tool "$tool" --error-exitcode 1 ./unpack_gpu_check --cases 200
  done
  check compute-sanitizer --error-exitcode 1 ./copy_gpu_check
  # Calls of CUDA that fail are no errors here: feedline and NCCL ask for what a GPU may not have, and go on without it.
  # Of programs with NCCL only our own kernels are checked. (A thousand feeders would take hours.)
  check compute-sanitizer --report-api-errors no --error-exitcode 1 ./device_feed_test '~a thousand*'
  for program in ./nccl_communicator_test ./nccl_feed_test ./data_parallel_gpu_test; do
    check compute-sanitizer --report-api-errors no --kernel-name kernel_substring=feedline --error-exitcode 1 "$program"
  done
else
  echo "NOT RUN: the checks with compute-sanitizer, which is not installed"
fi
# A training on GPUs beside the same training on the host, on the GPUs that CUDA_VISIBLE_DEVICES leaves.
gpus=$(if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then tr ',' '\n' <<< "$CUDA_VISIBLE_DEVICES"; else nvidia-smi --list-gpus; fi | wc -l)
check python3 ./train_gpu_test.py ./train_chess ./train_chess . "$gpus"
./unpack_gpu_check --bench "${1:-}"
./gpu_bench || echo "gpu_bench: a figure is below its target (MISSED), or the benchmark did not run"
exit "$status"
