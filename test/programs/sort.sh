#!/bin/sh
# SPDX-License-Identifier: MIT
#
# sort with two threads under the library, with a buffer small enough that it also merges
# temporary files.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need sort
prove_preload

awk 'BEGIN { for (i = 0; i < 300000; i++) { print i * 7919 % 300007, "line", i % 101, i } }' \
    >"$scratch/data"
for options in '-n' '-k3,3n -k1,1nr' '-u -k3,3'; do
    # The options are words on purpose.
    # shellcheck disable=SC2086
    under_libc sort --parallel=2 -S 4M $options <"$scratch/data" >"$scratch/libc" ||
        fail "sort fails under libc"
    # shellcheck disable=SC2086
    run_held "$scratch/data" "$scratch/tally" sort --parallel=2 -S 4M $options
    same_output "sort $options" "$scratch/libc" "$scratch/tally"
done
under_tally sort --parallel=2 -S 200M -n <"$scratch/data" >"$scratch/tally" ||
    fail "sort with a large buffer"
sort -n -c "$scratch/tally" || fail "sort with a large buffer: not sorted"
echo "sort: $(wc -l <"$scratch/data") lines in three orders as under libc"
