#!/bin/sh
# SPDX-License-Identifier: MIT
#
# xz with two threads under the library: compresses to the same bytes as under libc, and back.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need xz
prove_preload

awk 'BEGIN { for (i = 0; i < 300000; i++) { print i, i * 7919 % 10007, "a text again", i % 13 } }' \
    >"$scratch/data"
under_libc xz -T2 -2 --block-size=1MiB -c <"$scratch/data" >"$scratch/libc" ||
    fail "xz fails under libc"
run_held "$scratch/data" "$scratch/tally" xz -T2 -2 --block-size=1MiB -c
cmp "$scratch/libc" "$scratch/tally" || fail "xz: the compressed bytes differ from those under libc"
run_held "$scratch/tally" "$scratch/back" xz -T2 -d -c
cmp "$scratch/data" "$scratch/back" || fail "xz: decompressing does not give the data back"
echo "xz: $(wc -c <"$scratch/data") bytes to $(wc -c <"$scratch/tally") and back, as under libc"
