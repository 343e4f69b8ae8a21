#!/bin/sh
# install_test.sh SOURCE BUILD FILE: installs the build into an empty folder and moves it. Then builds and runs a small
# program (consumer/) that finds the library by Meson, by pkg-config and by CMake. FILE has 150 records.
set -eu

if ! command -v cmake > /dev/null; then
  echo "skipped: there is no cmake"
  exit 77
fi
unset LD_LIBRARY_PATH # Meson names the build folder there: what is installed must be found without
source=$1
build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$3" "$work/records.tfrecord"
cp -R "$source/tests/install/consumer" "$work/consumer"
mkdir "$work/source"
cd "$source"
cp -R meson.build meson_options.txt base io unpack gpu ranks pictures flowgraph training trainer_bridge scripts subprojects "$work/source"
cd "$work"

quietly() {
  "$@" > log 2>&1 || { cat log; exit 1; }
}

runs() { # WAY PROGRAM
  answer=$("$2" records.tfrecord)
  echo "$1: $answer"
  [ "$answer" = "read 150, fed 150" ]
}

trains() { # WAY PROGRAM
  answer=$("$2")
  echo "$1, training: $answer"
  [ "$answer" = "finite 1, value 3" ]
}

runs_ranks() { # WAY PROGRAM
  answer=$(mpirun --allow-run-as-root --oversubscribe -n 2 "$2" records.tfrecord)
  echo "$1, mpirun: $answer"
  [ "$answer" = "2 ranks fed 150" ]
}

# Builds this tree as a subproject of another Meson project. It must add neither its tests nor its installation.
cp -R consumer superproject
mkdir superproject/subprojects
cp -R source superproject/subprojects/feedline
quietly meson setup build-superproject superproject
grep -q 'Dependency feedline found: YES .*(overridden)' log
grep -q 'Dependency feedline-training found: YES .*(overridden)' log

rm -rf source superproject build-superproject

quietly env DESTDIR="$work/installed" meson install -C "$build" --no-rebuild
# The installation may be moved, and needs neither the source tree nor the build folder.
mv "$(dirname "$(dirname "$(find installed -path '*/bin/feedline')")")" elsewhere
[ -f elsewhere/share/doc/feedline/docs/pipeline.md ]
if grep -rIl -e "$source" -e "$build" elsewhere; then
  echo "these name the source tree"
  exit 1
fi

PKG_CONFIG_PATH=$(dirname "$(find "$work/elsewhere" -name feedline.pc)")
export PKG_CONFIG_PATH

quietly meson setup build-meson consumer
quietly ninja -C build-meson
runs Meson build-meson/consumer
trains Meson build-meson/train

# shellcheck disable=SC2046,SC2086 # both are lists of words
quietly ${CXX:-c++} -std=c++20 consumer/main.cc -o by-pkg-config $(pkg-config --cflags --libs feedline)
LD_LIBRARY_PATH=$(pkg-config --variable=libdir feedline)
export LD_LIBRARY_PATH
runs pkg-config ./by-pkg-config
# shellcheck disable=SC2046,SC2086 # both are lists of words
quietly ${CXX:-c++} -std=c++20 consumer/train.cc -o train $(pkg-config --cflags --libs feedline-training)
trains pkg-config ./train
if pkg-config --exists feedline-mpi; then
  # shellcheck disable=SC2046 # a list of words
  quietly mpicxx -std=c++20 consumer/ranks.cc -o ranks $(pkg-config --cflags --libs feedline-mpi)
  runs_ranks pkg-config ./ranks
fi
unset LD_LIBRARY_PATH

quietly cmake -G Ninja -S consumer -B build-cmake -DCMAKE_PREFIX_PATH="$work/elsewhere"
quietly cmake --build build-cmake
runs CMake build-cmake/consumer
trains CMake build-cmake/train
if [ -x build-cmake/ranks ]; then runs_ranks CMake build-cmake/ranks; fi
