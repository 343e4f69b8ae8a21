#!/usr/bin/env bash
# count_cpu.sh TEST ARGUMENTS...: runs a test, and writes its command line and the output of `times` to a file in
# $FEEDLINE_CPU_TIMES, for scripts/times.py. Meson keeps in memory what a test prints. So a test that prints more than
# 32 MiB is ended by SIGPIPE, and the log has the last lines of these 32 MiB.
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
