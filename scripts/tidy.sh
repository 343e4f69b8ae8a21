#!/usr/bin/env bash
# What clang-tidy says of the product, by the list in .clang-tidy.
set -euo pipefail
source scripts/common.sh

need package tool fuzz tidy
# Every file by itself, without precompiled headers: so each must include what it uses.
configure build-tidy -Dcuda=auto -Dgpu_archs=90 -Dtests=false -Dbench=false -Dpython=disabled -Dunity=off -Db_pch=false
compile build-tidy
run-clang-tidy -quiet -p build-tidy -extra-arg=-Wno-unknown-warning-option -extra-arg=-Wno-shadow \
  "^$PWD/(base|io|gpu|ranks|pictures|flowgraph|trainer_bridge|tool)/"
