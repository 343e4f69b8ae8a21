#!/usr/bin/env bash
# ./dev merge: the tests that a change must pass before it is merged, besides those of a commit: the build as a whole,
# the frameworks, further settings of the feeder, files on a disk, and clang's analysis of locks.
set -euo pipefail
source scripts/common.sh

need fuzz
# Not every distribution has a browser that tests can drive; where there is none, the tests of the page are skipped.
need monitor || [[ ${CI:-} != true ]] || die "what the tests of the monitor need could not be installed"
tested_build -Dbench=true
in_background build/logs/frameworks.log python_environment torch-alone frameworks frameworks-alone frameworks-last
compile build
if ! wait_for_it; then
  cat build/logs/frameworks.log
  [[ ${CI:-} != true ]] || die "the frameworks could not be installed"
  echo "not every framework could be installed (build/logs/frameworks.log), so that tests are skipped"
fi
scripts/check_locks.py build
run_tests build --suite merge "$@"
