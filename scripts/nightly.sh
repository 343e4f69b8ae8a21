#!/usr/bin/env bash
# ./dev nightly [PART...] [--seconds N]: runs the checks that take too long for a commit or a merge. Each part has a log
# in build/nightly. A part that fails does not keep the others from running. Exits with 1 if a part failed.
set -euo pipefail
source scripts/common.sh

run_part() { # PART SECONDS
  case "$1" in
    stress) # tests that kill processes, thousands of times
      tested_build -Dbench=false
      # shellcheck disable=SC2046 # a list of words
      compile build $(scripts/targets_of.py build nightly)
      in_memory run_tests build --suite nightly
      ;;
    address | thread) scripts/sanitize.sh "$1" ;;
    fuzzing) scripts/fuzz.sh --seconds "$2" ;;
    architectures) # kernels for every generation of GPUs
      if ! type -P nvcc > /dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
        [[ ${CI:-} != true ]] || die "there is no nvcc; scripts/install_cuda.sh installs one"
        echo "skipped: there is no nvcc"
        exit 77
      fi
      scripts/gpu.sh
      ;;
    wheel) scripts/wheel.sh ;;
    fallbacks) # the copies of libraries in subprojects/ instead of the system's
      need package tool mpi tests
      scripts/fetch_sources.sh protobuf catch2 cli11 nlohmann_json
      configure build-fallbacks -Dcuda=disabled -Dpython=disabled -Dbench=false \
        -Dforce_fallback_for=CLI11,nlohmann_json,catch2
      compile build-fallbacks
      in_memory run_tests build-fallbacks --suite unit --suite golden --suite headers --no-suite merge
      ;;
    tidy) scripts/tidy.sh ;;
  esac
}

# A part is a process of its own, so that `set -e` holds in it.
if [[ ${1:-} == --part ]]; then
  run_part "$2" "$3"
  exit
fi

parts=(stress address thread fuzzing architectures wheel fallbacks tidy)
chosen=()
seconds=60
while [[ $# -gt 0 ]]; do
  case "$1" in
    --seconds) seconds=${2:?--seconds takes a number} && shift ;;
    *) [[ " ${parts[*]} " == *" $1 "* ]] || die "nightly has no part '$1'; its parts are: ${parts[*]}"; chosen+=("$1") ;;
  esac
  shift
done
[[ ${#chosen[@]} -gt 0 ]] || chosen=("${parts[@]}")

need package tool mpi tests python fuzz tidy # now, while the user can be asked
mkdir -p build/nightly
: > build/nightly/summary
failed=0
for part in "${chosen[@]}"; do
  start=$SECONDS
  log=build/nightly/$part.log
  echo "$part: $log"
  code=0
  # In the background, because Meson answers Ctrl-C in the terminal by ending one test, and continues with the next.
  in_background "$log" scripts/nightly.sh --part "$part" "$seconds"
  wait_for_it || code=$?
  case "$code" in
    0) result=passed ;;
    77) result=skipped ;;
    *)
      result=FAILED
      failed=1
      tail -n 40 "$log"
      ;;
  esac
  counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tr '\n' ';' || true)
  printf '%-13s %-7s %4d min  %s\n' "$part" "$result" $(((SECONDS - start + 59) / 60)) "${counts%;}" >> build/nightly/summary
done
cat build/nightly/summary
exit "$failed"
