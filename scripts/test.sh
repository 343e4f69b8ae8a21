#!/usr/bin/env bash
# ./dev test: the tests of a commit. With arguments, which go to `meson test`, any others.
set -euo pipefail
source scripts/common.sh

tested_build -Dbench=false
mkdir -p build/logs
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT  # an installation that nobody waits for
python_environment torch-alone > build/logs/torch.log 2>&1 &
if [[ $# == 0 ]]; then
  targets=$(scripts/targets_of.py build commit)
  # shellcheck disable=SC2086 # a list of words
  compile build $targets
  set -- --suite commit
else
  compile build
fi
wait $! || echo "PyTorch could not be installed (build/logs/torch.log), so its tests are skipped"
in_memory run_tests build "$@"
