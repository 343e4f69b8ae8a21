#!/usr/bin/env bash
# install_cuda.sh [FOLDER]: puts CUDA's compiler and runtime, NCCL and cuBLAS from PyPI into FOLDER (/usr/local/cuda),
# for machines whose distribution has none, such as those of CI. No GPU is needed: the tests simulate GPUs.
set -euo pipefail

folder=${1:-/usr/local/cuda}
if [[ -x $folder/bin/nvcc ]]; then
  echo "install_cuda.sh: $folder is there already"
  exit
fi
if [[ -e $folder && $(readlink "$folder") != "$folder-packages/"* ]]; then
  echo "install_cuda.sh: $folder is there, but has no bin/nvcc; remove it, or name another folder" >&2
  exit 1
fi
python3 -m venv --clear "$folder-packages"
"$folder-packages/bin/python" -m pip install --quiet --disable-pip-version-check \
  'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*' 'nvidia-cuda-crt==13.0.*' \
  'nvidia-nvvm==13.0.*' 'nvidia-nvtx==13.0.*' 'nvidia-nvml-dev==13.0.*' 'nvidia-nccl-cu13==2.30.7' 'nvidia-cublas==13.*'
packages=$("$folder-packages/bin/python" -c 'import nvidia; print(list(nvidia.__path__)[0])')
ln -sf "$packages/nccl/include/"* "$packages/cu13/include"
ln -sf "$packages/nccl/lib/"* "$packages/cu13/lib"
# Linkers look for names without a version.
for library in "$packages/cu13/lib/"*.so.*; do
  ln -sf "$(basename "$library")" "${library%%.so.*}.so"
done
ln -sfn lib "$packages/cu13/lib64"
ln -sfn "$packages/cu13" "$folder"
"$folder/bin/nvcc" --version | tail -n 1
