#!/usr/bin/env bash
# ./dev sanitize: the tests under sanitizers. Arguments go to `meson test`.
set -euo pipefail
source scripts/common.sh

need package tool mpi tests
status=0
echo "== AddressSanitizer and UndefinedBehaviorSanitizer: all tests except the suite install, which builds programs without them"
configure build-asan -Dpython=disabled -Dbench=false -Dgpu_archs=90 -Dbuildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false
compile build-asan
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
in_memory run_tests build-asan --timeout-multiplier 5 --suite commit --suite merge --no-suite install "$@" || status=1

echo "== ThreadSanitizer: the tests that do not use oneTBB. The library of oneTBB is not instrumented, so ThreadSanitizer"
echo "   cannot see how it synchronises threads, and would report races that do not exist"
# Each file by itself: else a program would link oneTBB for what another file needs.
configure build-tsan -Dunity=off -Dpython=disabled -Dbench=false -Dgpu_archs=90 -Dbuildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false
tests=()
while IFS=$'\t' read -r name program; do
  ninja -C build-tsan -j "$(nproc)" "$program" > build-tsan/ninja.log || { cat build-tsan/ninja.log; exit 1; }
  if [[ $(ldd "build-tsan/$program") == *libtbb* ]]; then
    echo "left out: $name: uses oneTBB"
  else
    tests+=("$name")
  fi
done < <(scripts/programs_without_tbb.py build-tsan)
for program in tests/ranks/{tcp_ranks,mpi_ranks,libother_nccl.so} tests/gpu/libfake_nvml.so; do  # what tests need besides
  ninja -C build-tsan "$program" > build-tsan/ninja.log || true  # not every build has it
done
[[ " ${tests[*]} " == *data_parallel* ]] || die "no test of data parallelism is left for ThreadSanitizer"
export TSAN_OPTIONS=suppressions=$PWD/tests/tsan.supp
in_memory run_tests build-tsan --timeout-multiplier 10 --suite commit --suite merge "${tests[@]}" || status=1
exit "$status"
