#!/usr/bin/env bash
# ./dev merge: the tests that a change must pass besides those of a commit, before it is merged: the build as a whole,
# the frameworks, the feeder in its other ways, files on a disk, and what clang says of locks.
set -euo pipefail
source scripts/common.sh

need fuzz monitor
tested_build -Dbench=true
mkdir -p build/logs
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT  # an installation that nobody waits for
python_environment torch-alone frameworks frameworks-alone frameworks-last > build/logs/frameworks.log 2>&1 &
compile build
if ! wait $!; then
  cat build/logs/frameworks.log
  [[ ${CI:-} != true ]] || die "the frameworks could not be installed"
  echo "not every framework could be installed (build/logs/frameworks.log), so that tests are skipped"
fi
scripts/check_locks.py build
run_tests build --suite merge "$@"
