#!/usr/bin/env bash
# fetch_sources.sh NAME...: puts the sources of subprojects (protobuf, catch2, cli11, nlohmann_json, tbb) into
# subprojects/, from the distribution's source packages, if these have the version that the wrap file names. Of sources
# that are there already, it replaces only our Meson files. If there is no such source package, Meson downloads what the
# wrap file names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../subprojects"

command -v apt-get > /dev/null || exit 0
declare -A package_of=([protobuf]=protobuf [catch2]=catch2 [cli11]=cli11 [nlohmann_json]=nlohmann-json3 [tbb]=onetbb)
work=''
trap '[[ -z $work ]] || rm -rf "$work"' EXIT

# Downloads apt's lists of source packages, which the system may not use, into a folder of our own. So no root is
# needed.
make_lists() {
  mkdir -p "$work/sources" "$work/lists" "$work/cache"
  sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/*.sources > "$work/sources/all.sources" 2> /dev/null || true
  sed 's/^deb /deb-src /' /etc/apt/sources.list /etc/apt/sources.list.d/*.list > "$work/sources/all.list" 2> /dev/null || true
  options=(-q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/sources" -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update > "$work/log" 2>&1 || true
}

for name in "$@"; do
  folder=$(sed -n 's/^directory = //p' "$name.wrap")
  if [[ -d $folder ]]; then
    cmp --quiet "packagefiles/$name/meson.build" "$folder/meson.build" || cp "packagefiles/$name/meson.build" "$folder"
    continue
  fi
  if [[ -z $work ]]; then
    work=$(mktemp -d -p "$PWD" .fetch-XXXXXX) || exit 0 # nothing can be written here
    make_lists
  fi
  unpacked=$work/$name/unpacked
  mkdir -p "$unpacked"
  if ! (cd "$work/$name" && apt-get "${options[@]}" source --download-only "${package_of[$name]}") >> "$work/log" 2>&1; then
    tail -n 3 "$work/log" >&2
    echo "fetch_sources.sh: there is no source package of $name; Meson will download it" >&2
    continue
  fi
  archive=("$work/$name"/*_"${folder##*-}"[.+]*orig.tar.[!a]*[!c])
  if [[ ! -e ${archive[0]} ]]; then
    echo "fetch_sources.sh: the source package of $name has another version than $folder; Meson will download it" >&2
    continue
  fi
  tar xf "${archive[0]}" -C "$unpacked" --strip-components 1
  cp "packagefiles/$name/meson.build" "$unpacked"
  mv -T "$unpacked" "$folder" 2> /dev/null || [[ -d $folder ]] # another process may have made the folder first
done
