#!/bin/sh
# SPDX-License-Identifier: MIT
#
# callgrind_annotate sees our totals, functions and lines.

# shellcheck source=test/interop/exported.sh
. "$(dirname -- "$0")/exported.sh"

need callgrind_annotate
exported hostile hostile.callgrind
under_libc callgrind_annotate --auto=no --show-percs=no --threshold=100 \
    "$exported/hostile.callgrind" >"$scratch/printed" 2>"$scratch/errors" ||
    fail "callgrind_annotate: status $?: $(cat "$scratch/errors")"
[ ! -s "$scratch/errors" ] || fail "callgrind_annotate complains: $(cat "$scratch/errors")"

# The default metric first, then the others in their order.
same "the totals" "$(sed -n 's/,//g; s/ *PROGRAM TOTALS$//p' "$scratch/printed" | tr -s ' ' |
    sed 's/^ //')" \
    "$(truth inuse_space) $(truth alloc_objects) $(truth alloc_space) $(truth inuse_objects)"
grep -q 'calculated' "$scratch/printed" && fail "the totals are calculated, not ours"

# What the plain function has itself: 40 bytes, and 100 each that the functions after it left there.
found=$(awk '/plain_function:plain_function/ { gsub(/,/, ""); print $1 }' "$scratch/printed")
same "what plain_function has" "$found" 140

# With what it calls.
under_libc callgrind_annotate --auto=no --show-percs=no --threshold=100 --inclusive=yes \
    "$exported/hostile.callgrind" >"$scratch/printed" 2>"$scratch/errors" ||
    fail "callgrind_annotate: status $?: $(cat "$scratch/errors")"
found=$(awk '/main.c:main / { gsub(/,/, ""); print $1 }' "$scratch/printed")
same "what main has with all it calls" "$found" "$(truth inuse_space)"
