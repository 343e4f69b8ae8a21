#!/bin/sh
# demo_test.sh SOURCE TOOL: the demo makes its data, feeds it, and says what to do next.
set -eu

tool=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
answer=$("$1/scripts/demo_feed.sh" "$tool" "$work/demo" 2) || { echo "$answer"; exit 1; }
has() { # TEXT TIMES
  found=$(echo "$answer" | grep -c -e "$1") || true
  [ "$found" -eq "$2" ] || { echo "$answer"; echo "'$1' stands in $found lines, not in $2"; exit 1; }
}
has "There is no trainer" 1
has " records in [0-9,]* steps" 5
has "first batch after " 5
has "inspect --pipeline" 1
for set in chess photos planar digits penguins; do
  has "^$set " 1
  "$tool" check "$work/demo/$set.textproto" > /dev/null
  "$tool" verify "$work/demo/$set-00003-of-00004.tfrecord" > /dev/null
done
