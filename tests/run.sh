#!/usr/bin/env bash
# Builds everything and runs the tests: tests/run.sh [--sanitizers] [--nightly] [ctest arguments].
#   --sanitizers  first also the unit tests under ASan and UBSan, and under TSan whatever has threads: data, checkpoints,
#                 communication, and replicas that train
#   --nightly     also kills and failures, many times over
# Every other argument goes to ctest: tests/run.sh -L unit, tests/run.sh -R Batch.
set -euo pipefail
cd "$(dirname "$0")/.."
. ./setup.sh

preset=release
sanitizers=
arguments=()
for argument in "$@"; do
  case $argument in
    --sanitizers) sanitizers=yes ;;
    --nightly) preset=nightly ;;
    *) arguments+=("$argument") ;;
  esac
done

failed=()
run() {  # PRESET TEST_PRESET [ctest arguments]; builds the preset's own targets
  local build=$1 test=$2
  shift 2
  echo "== $test: build"
  cmake --preset "$build" >/dev/null
  cmake --build --preset "$build"
  echo "== $test: tests"
  ctest --preset "$test" -j "$(nproc)" "$@" || failed+=("$test")
}

if [ "$sanitizers" ]; then
  run debug debug "${arguments[@]}"
  run tsan tsan "${arguments[@]}"
fi
run release "$preset" "${arguments[@]}"

if [ "${#failed[@]}" != 0 ]; then
  echo "== FAILED: ${failed[*]}"
  exit 1
fi
