#!/usr/bin/env bash
# ./dev demo [MEGABYTES [REPLICAS]]: builds the tool, and feeds sample data.
set -euo pipefail
source scripts/common.sh

need package tool
# The demo needs no tests, and feeds replicas on the host. So kernels, which take long to compile, are compiled only if
# there is a GPU.
options=()
if [[ ! -f build/build.ninja ]]; then
  options=(-Dtests=false -Dbench=false -Dpython=disabled)
  [[ -e /dev/nvidiactl ]] || options+=(-Dcuda=disabled)
fi
configure build "${options[@]}"
compile build feedline
start=$SECONDS
scripts/demo_feed.sh build/feedline build/demo "$@"
echo "running took $((SECONDS - start)) s"
