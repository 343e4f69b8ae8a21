#!/usr/bin/env bash
# ./dev sanitize [address | thread]: the tests under sanitizers: both, or one. Further arguments go to `meson test`.
set -euo pipefail
source scripts/common.sh

need package tool mpi tests python
python_environment requirements
python=$PWD/build/python-env/bin/python
options=(-Dbench=false -Dgpu_archs=90 -Dbuildtype=debugoptimized -Dcpp_args=-g1 -Db_lundef=false)
sanitizers=(address thread)
case "${1:-}" in
  address | thread) sanitizers=("$1") && shift ;;
esac
# The suite install builds programs without sanitizers.
tests=(--suite commit --suite merge --no-suite install --no-suite python --no-suite trainers "$@")
status=0

for sanitizer in "${sanitizers[@]}"; do
  if [[ $sanitizer == address ]]; then
    echo "== AddressSanitizer and UndefinedBehaviorSanitizer: all tests in C++, and random pipelines"
    configure build-asan "${options[@]}" -Dpython=enabled "-Dpython_interpreter=$python" -Db_sanitize=address,undefined
    compile build-asan
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 in_memory run_tests build-asan --timeout-multiplier 5 "${tests[@]}" ||
      status=1
  else
    # The suite no-workers repeats all cases of the feeder three times, which takes two hours under ThreadSanitizer. Each
    # case runs once without it, and those that are about threads run on one CPU, too.
    echo "== ThreadSanitizer: the same tests, without the suite no-workers"
    # ThreadSanitizer sees only code that is compiled with it. So oneTBB, which synchronises the feed's threads, is
    # compiled with it, too.
    scripts/fetch_sources.sh tbb
    configure build-tsan "${options[@]}" -Dpython=disabled -Db_sanitize=thread -Dforce_fallback_for=tbb
    compile build-tsan
    TSAN_OPTIONS=suppressions=$PWD/tests/tsan.supp in_memory run_tests build-tsan --timeout-multiplier 30 \
      --no-suite no-workers "${tests[@]}" ||
      status=1
  fi
done
exit "$status"
