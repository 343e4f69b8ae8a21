#!/usr/bin/env bash
# count_cpu.sh TEST ARGUMENTS...: runs a test, and writes its words and what `times` says to a file in
# $FEEDLINE_CPU_TIMES. scripts/times.py reads them. Meson keeps in memory what a test prints, so a test that goes on
# printing is ended by SIGPIPE after 32 MiB, of which the log then has the last lines.
"$@" > >(head -c 32M) 2> >(head -c 32M >&2)
status=$?
{
  separator=''
  for word in "$@"; do
    printf '%s%s' "$separator" "$word"
    separator=$(printf '\037')
  done
  echo
  LC_ALL=C times
} > "$FEEDLINE_CPU_TIMES/$$"
exit "$status"
