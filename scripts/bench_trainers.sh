#!/usr/bin/env bash
# ./dev bench trainers: runs trainers with feedline's loader, and with the loaders of their frameworks.
set -euo pipefail
source scripts/common.sh

python_package
build/python-env/bin/python -m pip install --quiet --disable-pip-version-check matplotlib
PYTHONPATH=$PWD/build/python LD_LIBRARY_PATH=/usr/local/cuda/lib64 build/python-env/bin/python bench/trainers/compare.py "$@"
