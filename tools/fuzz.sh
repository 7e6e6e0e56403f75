#!/bin/sh
# SPDX-License-Identifier: MIT
#
# fuzz.sh - run every fuzz target under libFuzzer for SECONDS each, starting from the committed
# corpus.
#
#     fuzz.sh [SECONDS]
#
# What is found new is kept in build-fuzz/corpus/.  An input that ends a target is kept there as
# well and named, and this script fails.  To make the committed corpus anew, as few files as reach
# what all reach:  build-fuzz/test/fuzz_ops -merge=1 test/fuzz/corpus/ops build-fuzz/corpus/ops
set -eu
seconds=${1:-60}
cd "$(dirname "$0")/.."

command -v clang >/dev/null || {
    echo "skipped: there is no clang, which has libFuzzer"
    exit 77
}
echo 'int LLVMFuzzerTestOneInput(const char *d, long n); int LLVMFuzzerTestOneInput(const char *d,
    long n) { return d == 0 && n < 0; }' |
    clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - 2>/dev/null || {
    echo "skipped: this clang has no libFuzzer"
    exit 77
}
if command -v ninja >/dev/null; then
    export CMAKE_GENERATOR="${CMAKE_GENERATOR:-Ninja}"
fi
cmake --preset fuzz --log-level=WARNING >/dev/null
cmake --build build-fuzz -j 2 --target fuzz_all
status=0
for target in build-fuzz/test/fuzz_*; do
    name=${target##*/fuzz_}
    mkdir -p "build-fuzz/corpus/$name"
    dictionary=
    if [ -f "test/fuzz/$name.dict" ]; then
        dictionary=-dict=test/fuzz/$name.dict
    fi
    echo "fuzz_$name, $seconds s"
    # Leaks are looked for by the target itself: at the end of an input the heap must be empty.
    ASAN_OPTIONS=detect_leaks=0 "$target" -max_total_time="$seconds" -max_len=512 -timeout=60 \
        -rss_limit_mb=4096 -print_final_stats=1 -verbosity=0 $dictionary \
        -artifact_prefix="build-fuzz/corpus/$name-" "build-fuzz/corpus/$name" \
        "test/fuzz/corpus/$name" || status=1
done
exit $status
