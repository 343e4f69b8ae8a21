#!/usr/bin/env bash
# ./dev gpu [--for 90] [--python PYTHON]: makes a kit for a machine that has a GPU, but neither a compiler nor a
# network: tests, benchmarks, what they need, and the program `run`. The kit is build/gpu-suite, packed as
# build/gpu-suite.tgz.
set -euo pipefail
source scripts/common.sh

architectures=$(all_gpu_architectures)
pythons=(python3.12 "$HOME"/.pyenv/versions/3.12*/bin/python3.12)
while [[ $# -gt 0 ]]; do
  case "$1" in
    --for) architectures=${2:?--for takes a compute capability, such as 90} ;;
    --python) pythons=("${2:?--python takes an interpreter}") ;;
    *) die "gpu takes --for and --python, not '$1'" ;;
  esac
  shift 2
done
python=
for candidate in "${pythons[@]}"; do
  if "$candidate" -c '' 2> /dev/null; then
    python=$candidate
    break
  fi
done

need package tool mpi tests
configure build -Dcuda=enabled "-Dgpu_archs=$architectures" -Dtests=true -Dbench=true
programs=(
  tests/unpack/unpack_gpu_check tests/gpu/copy_gpu_check tests/gpu/host_function_copy_test tests/feeder/device_feed_test
  tests/ranks/nccl_communicator_test tests/ranks/nccl_processes_test tests/ranks/nccl_ranks tests/feeder/nccl_feed_test
  tests/training/data_parallel_gpu_test examples/train_chess bench/gpu_bench bench/feed_bench)
compile build "${programs[@]}"
suite=build/gpu-suite
rm -rf "$suite" "$suite.tgz"
mkdir -p "$suite/lib" "$suite/lib-of-compiler"
for program in "${programs[@]}"; do
  strip --strip-debug -o "$suite/$(basename "$program")" "build/$program"  # function names stay, for stacks
  # Leaves out libraries that the other machine has: the C library, and NCCL and cuBLAS, which are large.
  ldd "build/$program" | awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libdl|librt|libpthread|ld-linux|libnccl|libcublas|libcublasLt)[.-]/ { print $3 }'
done | sort -u | while read -r library; do
  # The compiler's libraries need a C library as new as this machine's. So they lie apart, and `run` uses them only if
  # the other machine's are too old.
  case "$library" in
    *libstdc++* | *libgcc_s*) folder=$suite/lib-of-compiler ;;
    *) folder=$suite/lib ;;
  esac
  strip --strip-debug -o "$folder/$(basename "$library")" "$library"
done
if [[ -n $python ]]; then
  scripts/wheel.sh "$python"
  # shellcheck disable=SC2012 # the newest wheel; no name of a wheel has special characters
  cp "$(ls -t build/wheels/feedline-*.whl | head -n 1)" "$suite"
  # What the random pipelines need besides NumPy.
  "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$suite" google-crc32c ml_dtypes pillow protobuf
else
  echo "the kit has no wheel, so its checks of the Python package are skipped: there is none of ${pythons[*]}"
fi
# Files of the source tree that steps read have the same paths in the kit.
tar c --exclude='*.feedline-*' --exclude=__pycache__ examples bench/peers/*.textproto bench/trainers \
  tests/golden/{captions,chess,images,proto,sequence,video} tests/property tests/reference | tar x -C "$suite"
cp tests/examples/train_gpu_test.py scripts/gpu/*.py "$suite"
mv "$suite/run.py" "$suite/run"
tar czf "$suite.tgz" -C build gpu-suite
size=$(stat -c %s "$suite.tgz")
echo "$suite.tgz: $((size >> 20)) MiB, unpacked $(du -sm "$suite" | cut -f 1) MiB"
[[ $size -le $((56 << 20)) ]] || echo "that is more than 56 MiB; --for 90 takes kernels for one generation of GPUs"
echo "there: tar xzf gpu-suite.tgz && gpu-suite/run --minutes 8 --out results; here: ./dev gpu-results results"
