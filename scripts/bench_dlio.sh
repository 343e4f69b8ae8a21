#!/usr/bin/env bash
# ./dev bench dlio: compares feedline, as a reader of DLIO, with DLIO's own readers.
set -euo pipefail
source scripts/common.sh

python_package
mkdir -p build/dlio
python=build/python-env/bin/python
[[ -e build/dlio/packages/dlio_benchmark ]] || "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
  --target build/dlio/packages --requirement bench/dlio/requirements.txt
PYTHONPATH=$PWD/build/python:$PWD/build/dlio/packages "$python" bench/dlio/compare_readers.py --out build/dlio "$@"
