#!/usr/bin/env bash
# ./dev format: formats the sources; --check only says whether any needs it.
set -euo pipefail
source scripts/common.sh

need format
case "${1:-}" in
  '') options=(-i) ;;
  --check) options=(--dry-run --Werror) ;;
  *) die "format takes --check or nothing, not '$1'" ;;
esac
# Searches every folder, so that none is forgotten, except those of builds and of downloaded sources.
find . \( -path './build*' -o -path ./subprojects -o -path './.?*' \) -prune -o \
  \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 \
  | xargs -0 clang-format "${options[@]}"
