#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Little memory: a program starts in 16 MiB of addresses, and at least 80 % of a limit of 400 MiB
# can be used as heap, again and again, whether the limit was there before the program or came when
# the heap was already in use. RLIMIT_AS counts addresses, RLIMIT_DATA what may be written.
#
# The ladder that finds the smallest limit goes in steps of 1 MiB; the figure is printed and not
# judged. `make stress` fills six times with every size.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

small_mib=16
limit_mib=400
least_percent=80

compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
need prlimit
need timeout
prove_preload

# starts_in MEGABYTES: cat runs under the limit and has the library. The loader leaves out what it
# cannot map, so the output is the memory map itself.
starts_in() {
    under_libc prlimit --as=$(($1 * 1048576)) env LD_PRELOAD="$library" cat /proc/self/maps \
        >"$scratch/maps" 2>"$scratch/errors" &&
        [ ! -s "$scratch/errors" ] && grep -q "$library" "$scratch/maps"
}

starts_in $small_mib ||
    fail "cat does not run with RLIMIT_AS of $small_mib MiB: $(head -n 2 "$scratch/errors")"
smallest=$small_mib
while [ $smallest -gt 1 ] && starts_in $((smallest - 1)); do
    smallest=$((smallest - 1))
done
echo "cat runs with RLIMIT_AS of $smallest MiB, and of $small_mib"

"$compiler" -O1 -g -fno-builtin -o "$scratch/fill" "$here/test/integration/program_fill.c" ||
    fail "program_fill.c does not compile"

# fills KIND WHEN SIZE ROUNDS
fills() {
    under_libc timeout $patience env LD_PRELOAD="$library" \
        "$scratch/fill" "$1" $limit_mib "$2" "$3" "$4" >"$scratch/output" 2>&1 ||
        fail "RLIMIT_$1 set $2, blocks $3: status $?: $(tail -n 3 "$scratch/output")"
    share=$(tail -n 1 "$scratch/output")
    [ "$share" -ge $least_percent ] ||
        fail "RLIMIT_$1 set $2, blocks $3: $share % of $limit_mib MiB: $(cat "$scratch/output")"
    echo "RLIMIT_$1 set $2, blocks $3: $share % of $limit_mib MiB in the worst of $4 rounds"
}

rounds=2
[ -z "${STRESS:-}" ] || rounds=6
for size in mixed 64 4096 1048576; do
    fills as early $size $rounds
    fills as late $size $rounds
    fills data late $size $rounds
done
