#!/bin/sh
# commands_test.sh SOURCE: ./dev finds a script for each command that its help lists, and refuses what it does not know.
set -eu

cd "$1"
refused() { # WORDS MESSAGE
  # shellcheck disable=SC2086 # a list of words
  if answer=$(./dev $1 2>&1); then
    echo "./dev $1 was not refused"
    exit 1
  fi
  case "$answer" in
    *"$2"*) ;;
    *) echo "./dev $1: $answer"; exit 1 ;;
  esac
}
refused frobnicate "there is no command 'frobnicate'"
refused "nightly frobnicate" "nightly has no part 'frobnicate'; its parts are: stress "
refused "fuzz --seconds soon" "--seconds takes a number of seconds, not 'soon'"
refused "gpu --four 90" "gpu takes --for and --python, not '--four'"
refused gpu-results "gpu-results takes the folder with the results"
for command in $(./dev help | sed -n 's/^  \([a-z]*\) .*/\1/p' | sort -u); do
  [ -x "scripts/$command.sh" ] || { echo "there is no scripts/$command.sh"; exit 1; }
  bash -n "scripts/$command.sh"
done
