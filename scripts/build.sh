#!/usr/bin/env bash
# ./dev build: the tool and the library, with kernels for every architecture of GPUs.
set -euo pipefail
source scripts/common.sh

need package tool
configure build -Dcuda=auto "-Dgpu_archs=$(all_gpu_architectures)"
compile build feedline library
