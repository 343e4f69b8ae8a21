#!/usr/bin/env bash
# ./dev build: the tool and the library, with kernels for every architecture of GPUs.
set -euo pipefail
source scripts/common.sh

need package tool mpi
options=()
[[ -f build/build.ninja ]] || options=(-Dtests=false -Dbench=false -Dpython=disabled)
configure build -Dcuda=auto "-Dgpu_archs=$(all_gpu_architectures)" "${options[@]}"
compile build feedline library
