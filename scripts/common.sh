# What the scripts of ./dev share. A script sources it after `cd` to the root of the source tree.
# shellcheck shell=bash

die() {
  echo "./dev: $*" >&2
  exit 1
}

# need SET...: installs what these sets of packages.txt lack.
need() {
  scripts/packages.sh install "$@"
}

# configure FOLDER OPTIONS...
configure() {
  local folder=$1 again=()
  shift
  [[ -f $folder/build.ninja ]] && again=(--reconfigure)
  [[ ${CI:-} == true ]] && set -- -Dwerror=true "$@"
  mkdir -p "$folder"
  if ! meson setup "${again[@]}" "$folder" "$@" > "$folder/configure.log" 2>&1; then
    cat "$folder/configure.log"
    die "Meson could not configure $folder"
  fi
}

# compile FOLDER TARGETS...: says at the end how long it took, and what took longest.
compile() {
  local folder=$1 lines=0 start=$SECONDS
  shift
  [[ -f $folder/.ninja_log ]] && lines=$(wc -l < "$folder/.ninja_log")
  ninja -C "$folder" -j "$(nproc)" "$@"
  scripts/times.py compiled "$folder" --skip "$lines" --seconds $((SECONDS - start))
}

# tested_build OPTIONS...: the build that is tested, with kernels for one generation of GPUs where there is no GPU.
tested_build() {
  need package tool tests python
  local architectures=90  # that of the fake GPUs of the tests
  [[ -e /dev/nvidiactl ]] && architectures=$(all_gpu_architectures)
  configure build -Dcuda=auto "-Dgpu_archs=$architectures" -Dtests=true -Dpython=enabled \
    "-Dpython_interpreter=$PWD/build/python-env/bin/python" "$@"
}

all_gpu_architectures() {
  sed -n "s/^option('gpu_archs'.* value: \[\([^]]*\)\].*/\1/p" meson_options.txt | tr -d "' "
}

# python_environment LIST...: a virtual environment, build/python-env, with what these lists of tests/python name.
python_environment() {
  local python=build/python-env/bin/python list options
  mkdir -p build
  [[ -x $python ]] || python3 -m venv build/python-env
  for list in "$@"; do
    cmp --quiet "tests/python/$list.txt" "build/python-env/$list" && continue
    options=()
    [[ $list == *-alone ]] && options=(--no-deps)
    "$python" -m pip install --quiet --disable-pip-version-check "${options[@]}" --requirement "tests/python/$list.txt"
    cp "tests/python/$list.txt" "build/python-env/$list"
  done
}

# run_tests FOLDER ARGUMENTS...: `meson test`, then the last word on the run. Fails where a test failed.
run_tests() {
  local folder=$1 status=0 start=$SECONDS
  shift
  export FEEDLINE_CPU_TIMES=$PWD/$folder/cpu-times
  rm -rf "$FEEDLINE_CPU_TIMES"
  mkdir -p "$FEEDLINE_CPU_TIMES"
  meson test -C "$folder" --no-rebuild --print-errorlogs --wrapper "$PWD/scripts/count_cpu.sh" "$@" || status=$?
  scripts/times.py tested "$folder" --seconds $((SECONDS - start))
  scripts/count_tests.py "$folder/meson-logs/testlog-count_cpu.sh.json" || status=1
  return "$status"
}

# in_memory COMMAND...: runs it with temporary files in memory, where there is room: a test of logic need not wait for a
# disk. TMPDIR, if it is set, decides.
in_memory() {
  local free=0
  [[ $(stat -f -c %T /dev/shm 2> /dev/null) == tmpfs ]] && free=$(df --output=avail -B 1G /dev/shm | tail -n 1)
  if [[ -n ${TMPDIR:-} || $free -lt 4 ]]; then
    "$@"
    return
  fi
  local folder status=0
  folder=$(mktemp -d /dev/shm/feedline-XXXXXX)
  TMPDIR=$folder "$@" || status=$?
  rm -rf "$folder"
  return "$status"
}

# python_package: the Python package in build/python, with every framework in build/python-env.
python_package() {
  need package tool tests python
  python_environment requirements torch-alone frameworks frameworks-alone frameworks-last
  tested_build -Dbench=false
  compile build python/feedline/_feedline.pyi  # the package's last file
}
