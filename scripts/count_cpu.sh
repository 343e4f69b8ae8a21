#!/bin/sh
# count_cpu.sh TEST ARGUMENTS...: runs a test, and writes its words and what `times` says to a file in
# $FEEDLINE_CPU_TIMES. scripts/times.py reads them.
"$@"
status=$?
{
  separator=''
  for word in "$@"; do
    printf '%s%s' "$separator" "$word"
    separator=$(printf '\037')
  done
  echo
  times
} > "$FEEDLINE_CPU_TIMES/$$"
exit "$status"
