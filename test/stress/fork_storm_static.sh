#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The fork storm in a statically linked program. libc's fork is another piece of code there, the
# handlers are in other places, and no loader has run before us. The source is that of the test for
# the shared library, stress_fork_storm.c.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

compiler=${CC:-cc}
archive=$build/libtally.a
command -v "$compiler" >/dev/null || skip "there is no C compiler"
[ -f "$archive" ] || fail "$archive does not exist: build it, or say where it is in BUILD"
echo 'int main(void) { return 0; }' >"$scratch/empty.c"
"$compiler" -static -o "$scratch/empty" "$scratch/empty.c" 2>/dev/null ||
    skip "there is no static libc"

"$compiler" -std=gnu11 -O1 -g -fno-builtin -pthread -static -DLINKED_STATICALLY \
    -I"$here/include" -I"$here/test/lib" -o "$scratch/storm" \
    "$here/test/stress/stress_fork_storm.c" "$here/test/lib/test.c" "$archive" ||
    fail "it does not link"
if nm "$scratch/storm" | grep -wE '_int_malloc|ptmalloc_init'; then
    fail "libc's malloc was linked too"
fi
under_libc ${STRESS:+STRESS="$STRESS"} ${SEED:+SEED="$SEED"} "$scratch/storm"
