#!/usr/bin/env bash
# ./dev bench: the benchmarks; `bench peers`, `bench trainers` and `bench dlio` are scripts of their own.
set -euo pipefail
source scripts/common.sh

case "${1:-}" in
  peers | trainers | dlio) exec "scripts/bench_$1.sh" "${@:2}" ;;
esac
need package tool mpi tests
configure build -Dcuda=auto "-Dgpu_archs=$(all_gpu_architectures)" -Dtests=true -Dbench=true
compile build
meson test -C build --no-rebuild --benchmark --verbose "$@"
