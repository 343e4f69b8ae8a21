#!/usr/bin/env bash
# ./dev fuzz [--seconds N]: fuzzes each target under sanitizers, and feeds random pipelines for as long.
set -euo pipefail
source scripts/common.sh

seconds=60
while [[ $# -gt 0 ]]; do
  case "$1" in
    --seconds) seconds=${2:?--seconds takes a number} && shift 2 ;;
    --seconds=*) seconds=${1#*=} && shift ;;
    *) die "fuzz takes --seconds N, not '$1'" ;;
  esac
done
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "--seconds takes a number of seconds, not '$seconds'"
need package tool mpi tests fuzz
# Coverage is measured by clang's own counters, from which llvm-cov counts the lines.
CC=clang CXX=clang++ CXXFLAGS="-fprofile-instr-generate -fcoverage-mapping" LDFLAGS=-fprofile-instr-generate \
  configure build-fuzz -Dpython=disabled -Dcuda=disabled -Dbench=false -Dfuzzing_engine=libfuzzer -Dbuildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false
compile build-fuzz fuzz
failed=0
tested_build -Dbench=false
compile build feedline python/feedline/_feedline.pyi tests/property/c_feed
echo "random pipelines for $seconds s"
FEEDLINE_TOOL=$PWD/build/feedline FEEDLINE_C_FEED=$PWD/build/tests/property/c_feed PYTHONPATH=$PWD/build/python \
  in_memory build/python-env/bin/python \
  tests/property/property_test.py --seconds "$seconds" --seed "$(date +%s)" || failed=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
echo "each target for $seconds s, $(nproc) at a time; logs: build-fuzz/NAME.log"
for source in tests/fuzz/*_fuzz.cc; do
  while [[ $(jobs -rp | wc -l) -ge $(nproc) ]]; do wait -n || true; done
  name=$(basename "$source" _fuzz.cc)
  mkdir -p "build-fuzz/found/$name"
  rm -f "build-fuzz/$name".{profraw,profdata,result}
  target=("build-fuzz/tests/fuzz/${name}_fuzz" -timeout=10 -artifact_prefix="build-fuzz/$name-")
  # Lines are counted of the corpus alone. New inputs go to the first folder; inputs that make the target fail go beside
  # the log. -entropic=0: all inputs are changed equally often, because each reaches something that no other does.
  {
    LLVM_PROFILE_FILE=build-fuzz/$name.profraw "${target[@]}" -runs=0 "tests/fuzz/corpus/$name" \
      && LLVM_PROFILE_FILE=/dev/null "${target[@]}" -max_total_time="$seconds" -entropic=0 -print_final_stats=1 \
        "build-fuzz/found/$name" "tests/fuzz/corpus/$name"
  } > "build-fuzz/$name.log" 2>&1 \
    && echo ok > "build-fuzz/$name.result" || echo failed > "build-fuzz/$name.result" &
done
wait
# lines_reached NAME: prints how many lines a target's corpus reaches (scripts/fuzz_lines.py) of the files that it names
# in "// covers: FILE...".
lines_reached() {
  local -a files
  read -ra files <<< "$(sed -n 's,^// covers: ,,p' "tests/fuzz/$1_fuzz.cc" | tr '\n' ' ')"
  [[ ${#files[@]} -gt 0 ]] || { echo "covers: is missing" && return 1; }
  [[ ${files[0]} != nothing ]] || return 0
  llvm-profdata merge -sparse "build-fuzz/$1.profraw" -o "build-fuzz/$1.profdata" || return 1
  scripts/fuzz_lines.py "build-fuzz/tests/fuzz/$1_fuzz" "build-fuzz/$1.profdata" "${files[@]}"
}
printf '%-14s %12s %10s %10s  %s\n' target executions edges lines result
for source in tests/fuzz/*_fuzz.cc; do
  name=$(basename "$source" _fuzz.cc)
  result=$(cat "build-fuzz/$name.result") || result=failed
  lines=''
  [[ $result != ok ]] || lines=$(lines_reached "$name") || result="$result, but few lines"
  printf '%-14s %12s %10s %10s  %s\n' "$name" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "build-fuzz/$name.log")" \
    "$(grep -o ' cov: [0-9]*' "build-fuzz/$name.log" | tail -n 1 | cut -d ' ' -f 3)" "${lines%%$'\n'*}" "$result"
  [[ $lines == *$'\n'* ]] && sed 1d <<< "$lines" | sed 's/^/               /'
  [[ $result == ok ]] && continue
  failed=1
  tail -n 30 "build-fuzz/$name.log"
done
[[ $failed == 0 ]] || die "a fuzz target or a random pipeline failed; the log of a target names the input that made it fail"
