#!/usr/bin/env bash
# Runs clang-tidy on the product, with the checks that .clang-tidy lists.
set -euo pipefail
source scripts/common.sh

need package tool fuzz tidy
# Compiles every file by itself, without precompiled headers, so that each must include what it uses.
configure build-tidy -Dcuda=auto -Dgpu_archs=90 -Dtests=false -Dbench=false -Dpython=disabled -Dunity=off -Db_pch=false
compile build-tidy
here=$(pwd -P)
# run-clang-tidy takes a regular expression, and reports no error if no file matches it.
pattern="^$(sed 's/[^[:alnum:]_/-]/\\&/g' <<< "$here")/(base|io|unpack|gpu|ranks|pictures|flowgraph|training|trainer_bridge|tool)/"
files=$(python3 - "$pattern" << 'END'
import json, os, re, sys
commands = json.load(open("build-tidy/compile_commands.json"))
names = [os.path.normpath(os.path.join(command["directory"], command["file"])) for command in commands]
print(sum(bool(re.search(sys.argv[1], name)) for name in names))
END
)
[[ $files -gt 100 ]] || die "clang-tidy would read $files files in $here, not all of the product"
echo "clang-tidy reads $files files"
run-clang-tidy -quiet -p build-tidy -extra-arg=-Wno-unknown-warning-option -extra-arg=-Wno-shadow "$pattern"
