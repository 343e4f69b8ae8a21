#!/usr/bin/env bash
# ./dev gpu: a folder with the tests and benchmarks for GPUs, and the libraries that they need, for a machine that has
# a GPU and nothing else.
set -euo pipefail
source scripts/common.sh

need package tool mpi tests
configure build -Dcuda=enabled "-Dgpu_archs=$(all_gpu_architectures)" -Dtests=true -Dbench=true
programs=(
  tests/gpu/unpack_gpu_check tests/gpu/copy_gpu_check tests/feeder/device_feed_test tests/ranks/nccl_communicator_test
  tests/ranks/nccl_processes_test tests/ranks/nccl_ranks tests/feeder/nccl_feed_test
  tests/trainer_bridge/data_parallel_gpu_test examples/train_chess bench/gpu_bench)
compile build "${programs[@]}"
suite=build/gpu-suite
rm -rf "$suite"
mkdir -p "$suite/lib" "$suite/lib-of-compiler"
for program in "${programs[@]}"; do
  strip -o "$suite/$(basename "$program")" "build/$program"
  # Less what belongs to the other machine: its C library, and NCCL and cuBLAS, which are large.
  ldd "build/$program" | awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libdl|librt|libpthread|ld-linux|libnccl|libcublas|libcublasLt)[.-]/ { print $3 }'
done | sort -u | while read -r library; do
  # The compiler's libraries need a C library that is as new as this machine's; so the other machine's own are better.
  case "$library" in
    *libstdc++* | *libgcc_s*) strip -o "$suite/lib-of-compiler/$(basename "$library")" "$library" ;;
    *) strip -o "$suite/lib/$(basename "$library")" "$library" ;;
  esac
done
mkdir -p "$suite/examples" "$suite/tests/golden"
cp examples/train.textproto "$suite/examples"
cp tests/examples/train_gpu_test.py "$suite"
cp -r tests/golden/chess "$suite/tests/golden"
cp scripts/gpu_suite_run.sh "$suite/run"
du -sh "$suite"
