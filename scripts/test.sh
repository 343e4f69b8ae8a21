#!/usr/bin/env bash
# ./dev test: runs the tests of a commit or, with arguments for `meson test`, any other tests.
set -euo pipefail
source scripts/common.sh

tested_build -Dbench=false
in_background build/logs/torch.log python_environment torch-alone
if [[ $# == 0 ]]; then
  targets=$(scripts/targets_of.py build commit)
  # shellcheck disable=SC2086 # a list of words
  compile build $targets
  set -- --suite commit
else
  compile build
fi
if ! wait_for_it; then
  cat build/logs/torch.log
  [[ ${CI:-} != true ]] || die "PyTorch could not be installed"
  echo "PyTorch could not be installed (build/logs/torch.log), so its tests are skipped"
fi
in_memory run_tests build "$@"
