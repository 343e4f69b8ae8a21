# Functions that the scripts of ./dev share. A script sources it after `cd` to the root of the source tree.
# shellcheck shell=bash

die() {
  echo "./dev: $*" >&2
  exit 1
}

# need SET...: installs what these sets of packages.txt lack.
need() {
  scripts/packages.sh install "$@"
}

# configure FOLDER OPTIONS...: has Meson configure the build in FOLDER.
configure() {
  local folder=$1 again=()
  shift
  [[ -f $folder/build.ninja ]] && again=(--reconfigure)
  set -- "-Dwerror=$([[ ${CI:-} == true ]] && echo true || echo false)" "$@"
  mkdir -p "$folder"
  if ! meson setup "${again[@]}" "$folder" "$@" > "$folder/configure.log" 2>&1; then
    cat "$folder/configure.log"
    die "Meson could not configure $folder"
  fi
}

# compile FOLDER TARGETS...: compiles, then says how long it took, and what took longest.
compile() {
  local folder=$1 start=$SECONDS
  shift
  cp "$folder/.ninja_log" "$folder/ninja_log.before" 2> /dev/null || : > "$folder/ninja_log.before"
  ninja -C "$folder" -j "$(nproc)" "$@"
  scripts/times.py compiled "$folder" --before "$folder/ninja_log.before" --seconds $((SECONDS - start)) || true
}

# tested_build OPTIONS...: installs what the tests need, and configures the folder build with tests. On a machine
# without a GPU, kernels are compiled only for the GPUs that the tests simulate.
tested_build() {
  need package tool mpi tests python
  python_environment requirements
  local architectures=90  # of the GPUs that the tests simulate
  [[ -e /dev/nvidiactl ]] && architectures=$(all_gpu_architectures)
  configure build -Dcuda=auto "-Dgpu_archs=$architectures" -Dtests=true -Dpython=enabled \
    "-Dpython_interpreter=$PWD/build/python-env/bin/python" "$@"
}

all_gpu_architectures() {
  sed -n "s/^option('gpu_archs'.* value: \[\([^]]*\)\].*/\1/p" meson_options.txt | tr -d "' "
}

# virtual_environment FOLDER [PYTHON]: makes a virtual environment of Python, unless FOLDER has one that works. Callers
# note in FOLDER what they have installed, so that the notes are gone if the environment is made anew.
virtual_environment() {
  "$1/bin/python" -m pip --version > /dev/null 2>&1 && return
  mkdir -p "$(dirname "$1")"
  "${2:-python3}" -m venv --clear "$1"
}

# python_environment LIST...: makes a virtual environment, build/python-env, with the packages of these lists of
# tests/python.
python_environment() {
  local python=build/python-env/bin/python list options
  virtual_environment build/python-env
  for list in "$@"; do
    cmp --quiet "tests/python/$list.txt" "build/python-env/$list" && continue
    options=()
    [[ $list == *-alone ]] && options=(--no-deps)
    "$python" -m pip install --quiet --disable-pip-version-check "${options[@]}" --requirement "tests/python/$list.txt"
    cp "tests/python/$list.txt" "build/python-env/$list"
  done
}

# run_tests FOLDER ARGUMENTS...: runs `meson test`, then prints how long it took, and which tests did not pass. Fails if
# a test failed.
run_tests() {
  local folder=$1 status=0 start=$SECONDS log=$1/meson-logs/testlog-count_cpu.sh.json
  shift
  case " $* " in
    *" --gdb "* | *" --list "* | *" --wrapper"*)
      meson test -C "$folder" --no-rebuild "$@"
      return
      ;;
  esac
  export FEEDLINE_CPU_TIMES=$PWD/$folder/cpu-times
  rm -rf "$FEEDLINE_CPU_TIMES" "$log"
  mkdir -p "$FEEDLINE_CPU_TIMES"
  # One more than there are CPUs, because some tests wait for clocks and disks.
  meson test -C "$folder" --no-rebuild --num-processes $(($(nproc) + 1)) --print-errorlogs \
    --wrapper "$(printf %q "$PWD/scripts/count_cpu.sh")" "$@" || status=$?
  [[ -s $log ]] || die "no such test is in the tier commit; to run one of another: ./dev test --suite merge NAME"
  scripts/times.py tested "$folder" --seconds $((SECONDS - start)) || true
  scripts/count_tests.py "$log" || status=1
  return "$status"
}

# in_background LOG COMMAND...: runs COMMAND in the background. When the script ends, COMMAND and all processes that it
# has started are ended. Its standard input is empty, because it cannot ask the user anything. wait_for_it waits for
# COMMAND, and returns its exit status.
in_background() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  set -m # a group of processes of its own
  "$@" < /dev/null > "$log" 2>&1 &
  set +m
  trap 'kill -- -'$!' 2> /dev/null || true' EXIT
}
wait_for_it() {
  local code=0
  wait $! || code=$?
  trap - EXIT
  return "$code"
}

# memory_folder: makes a folder in memory (tmpfs) and prints its path, if there is room and programs can be run from
# there. Otherwise prints nothing.
memory_folder() {
  local folder
  [[ $(stat -f -c %T /dev/shm 2> /dev/null) == tmpfs && $(df --output=avail -B 1G /dev/shm | tail -n 1) -ge 4 ]] || return 0
  folder=$(mktemp -d /dev/shm/feedline-XXXXXX)
  cp "$(type -P true)" "$folder/runs"
  if "$folder/runs" 2> /dev/null; then
    rm "$folder/runs"
    echo "$folder"
  else
    rm -rf "$folder"
  fi
}

# in_memory COMMAND...: runs COMMAND with its temporary files in memory, because a test of logic need not wait for a
# disk. If TMPDIR is set, the files are there instead.
in_memory() (
  if [[ -z ${TMPDIR:-} ]]; then
    # No other variable may have this name: if a signal ends a function, the trap sees the local variables of that
    # function.
    temporary_in_memory=$(memory_folder)
    if [[ -n $temporary_in_memory ]]; then
      trap 'rm -rf "$temporary_in_memory"' EXIT
      export TMPDIR=$temporary_in_memory
      echo "temporary files are in memory: $TMPDIR"
    fi
  fi
  "$@"
)

# python_package: builds the Python package in build/python, and installs every framework in build/python-env.
python_package() {
  tested_build -Dbench=false
  python_environment torch-alone frameworks frameworks-alone frameworks-last
  compile build python/feedline/_feedline.pyi  # the file of the package that is made last
}
