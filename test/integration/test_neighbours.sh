#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Another preloaded library replaces functions of libc and allocates inside them, as those do that
# fake the time or watch files and mappings. What the allocator asks libc for in the midst of its
# work, or of its start, would come back to it, to a held lock or a half-done change. Slabs and large
# blocks are given back, because that is when the allocator looks at the clock. The order of
# preloading decides whose constructors run first, so both orders are tried.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"


compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
need timeout
prove_preload

"$compiler" -O1 -g -fno-builtin -fPIC -shared -o "$scratch/neighbour.so" \
    "$here/test/integration/program_neighbour.c" -ldl || fail "program_neighbour.c does not compile"
"$compiler" -O1 -g -fno-builtin -pthread -o "$scratch/program" \
    "$here/test/integration/program_give_back.c" -ldl ||
    fail "program_give_back.c does not compile"

# lives_beside PRELOAD [NAME=VALUE ...]
lives_beside() {
    preload=$1
    shift
    output=$(under_libc "$@" timeout "$patience" env LD_PRELOAD="$preload" "$scratch/program" 2>&1)
    status=$?
    [ $status -ne 124 ] || fail "LD_PRELOAD=$preload $*: still running after $patience seconds"
    [ $status -eq 0 ] || fail "LD_PRELOAD=$preload $*: status $status: $output"
    [ "$output" = "gave all back" ] || fail "LD_PRELOAD=$preload $*: it printed: $output"
}

lives_beside "$scratch/neighbour.so:$library"
lives_beside "$library:$scratch/neighbour.so"
lives_beside "$scratch/neighbour.so:$library" TALLY_CONF=dirty_decay_ms:0
lives_beside "$scratch/neighbour.so:$library" TALLY_CONF=narenas:4
echo "a library that allocates in what it replaces of libc is no trouble"
