#!/bin/sh
# guarded.sh BUILD THREADS: the driver of the guard's tests in one process with the guard and the device of a sanitizer
# build. It runs twice, so that the second finds the first one's executables in the cache. Any finding of the
# sanitizer ends it.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XLANE_GUARD_PLUGIN="$PWD/$1/libxlane-cpu.so" XLANE_STATE="$dir/state" XLANE_CACHE="$dir/cache"
export TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}"
for run in cold warm; do
    XLANE_RUN="$dir/$run" "$1/test/tool/guard" "$1/libxlane-guard.so" 12 "$2" >"$dir/sum"
    grep -q '^sum ' "$dir/sum"
    echo "ok $1 guard $run, $2 threads"
done
