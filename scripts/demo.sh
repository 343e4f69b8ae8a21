#!/usr/bin/env bash
# ./dev demo: from nothing to a feed that one can watch.
set -euo pipefail
source scripts/common.sh

need package tool
# It needs nothing of the tests. Its replicas are on the host: only where there is a GPU does it take the time to compile
# kernels.
options=()
if [[ ! -f build/build.ninja ]]; then
  options=(-Dtests=false -Dbench=false -Dpython=disabled)
  [[ -e /dev/nvidiactl ]] || options+=(-Dcuda=disabled)
fi
configure build "${options[@]}"
compile build feedline
start=$SECONDS
build/feedline demo --dir build/demo "$@"
echo "running took $((SECONDS - start)) s"
