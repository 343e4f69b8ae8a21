#!/bin/sh
# missing_test.sh SOURCE: where libraries are missing, Meson says so in one message that names all of them, and what
# three distributions call them.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# pkg-config finds nothing here, and ISA-L and liburing are found by nothing else.
if PKG_CONFIG_LIBDIR="$work" PKG_CONFIG_PATH='' meson setup "$work/build" "$1" -Dcuda=disabled \
  -Dpython=disabled --wrap-mode=nodownload > "$work/log" 2>&1; then
  echo "Meson was content without pkg-config's files"
  exit 1
fi
says() {
  grep -qF -- "$1" "$work/log" || { cat "$work/log"; echo "the message does not say: $1"; exit 1; }
}
says 'These are missing:'
says 'libisal        inflates gzip and zlib'
says 'libpng         decodes PNG'
says 'on Debian and Ubuntu:  apt-get install'
for package in libisal-dev libpng-dev isa-l-devel libpng-devel; do says " $package"; done
[ "$(grep -c 'ERROR:' "$work/log")" = 1 ] || { cat "$work/log"; exit 1; }
echo "one message"
