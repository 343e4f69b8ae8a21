#!/usr/bin/env bash
# The packages of packages.txt.
#
#   packages.sh install SET...   installs those of these sets that are missing, where there is apt
#   packages.sh missing NAME...  says what is missing, by the names of meson.build, and how to install it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=scripts/common.sh
source ./common.sh

# The rows of the table, without the spaces around its columns.
rows() {
  sed -e '/^#/d' -e 's/ *| */|/g' packages.txt
}

# packages_named COLUMN NAME...: the packages of that column, without repetitions.
packages_named() {
  local column=$1
  shift
  rows | awk -F '|' -v column="$column" -v names="$*" '
    BEGIN { count = split(names, list, " "); for (i = 1; i <= count; i++) wanted[list[i]] }
    $2 in wanted && $column != "-" && !seen[$column]++ { printf " %s", $column }'
}

missing() {
  local name
  echo "These are missing:"
  for name in "$@"; do
    rows | awk -F '|' -v name="$name" '$2 == name { printf "  %-14s %s\n", name, $6 }'
  done
  local line column packages
  while IFS='|' read -r column line; do
    packages=$(packages_named "$column" "$@")
    [[ -z $packages ]] || echo "$line$packages"
  done << 'END'
3|  on Debian and Ubuntu:  apt-get install
4|  on Fedora (not tried): dnf install
5|  on Arch (not tried):   pacman -S --needed
END
}

install() {
  [[ $(uname) == Linux ]] || die "feedline runs on Linux; $(uname) is not supported"
  command -v apt-get dpkg-query > /dev/null || return 0
  local set debian reason absent=() lines=''
  while IFS='|' read -r set _ debian _ _ reason; do
    [[ " $* " == *" $set "* && $debian != - ]] || continue
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$debian" 2> /dev/null) == installed ]] && continue
    absent+=("$debian")
    lines+=$(printf '  %-20s %s' "$debian" "$reason")$'\n'
  done < <(rows)
  [[ ${#absent[@]} == 0 ]] && return
  printf 'These packages are missing:\n%s' "$lines"
  local as_root=()
  if [[ $EUID != 0 ]]; then
    command -v sudo > /dev/null || die "the packages can only be installed as root, and there is no sudo; as root, run: apt-get install ${absent[*]}"
    as_root=(sudo)
  fi
  if [[ ${CI:-} != true && ${FEEDLINE_YES:-} != 1 && -t 0 ]]; then
    local answer
    read -r -p 'Install them with apt-get? [Y/n] ' answer
    [[ $answer =~ ^([Yy].*)?$ ]] || die "these packages are needed; to install them yourself, run: apt-get install ${absent[*]}"
  fi
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${absent[@]}"
}

"$@"
