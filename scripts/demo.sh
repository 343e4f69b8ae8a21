#!/usr/bin/env bash
# ./dev demo: from nothing to a feed that one can watch.
set -euo pipefail
source scripts/common.sh

need package tool
# Its replicas are on the host: only where there is a GPU does it take the time to compile kernels. It needs nothing of
# the tests.
options=()
[[ -e /dev/nvidiactl || -f build/build.ninja ]] || options=(-Dcuda=disabled -Dtests=false -Dbench=false -Dpython=disabled)
configure build "${options[@]}"
compile build feedline
start=$SECONDS
build/feedline demo --dir build/demo "$@"
echo "running took $((SECONDS - start)) s"
