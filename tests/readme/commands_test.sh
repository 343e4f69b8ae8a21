#!/bin/sh
# commands_test.sh TOOL SOURCE README: runs the blocks of a README marked `sh run`, as a reader would paste them.
set -eu

commands=$("$2/tests/readme/blocks.py" "sh run" "$2/$3")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/build"
tool=$(realpath "$1")
ln -s "$tool" "$(dirname "$tool")/examples" "$folder/build"
ln -s "$2/examples" "$2/tests" "$folder"
cd "$folder"
# The commands name ports, which another run on this machine may use at this time.
exec 9> "/tmp/feedline-documents-$(id -u).lock"
flock 9
sh -eux -c "$commands"
