#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A program that locks its memory, as those do that must not wait for a disk, gets no more of it
# locked than it uses: mlockall(MCL_FUTURE) before the heap grows, mlockall(MCL_CURRENT) with the
# class map, which is 4 GiB of addresses without memory behind them, and both. The class map is
# locked like everything else by MCL_CURRENT, at the price of page tables that all point to the one
# page of zeros; the addresses count in VmLck, which is printed.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

most_excess_mib=64  # of memory, beyond the heap
most_tables_mib=64  # of page tables
most_locked_mib=512 # of addresses, with MCL_FUTURE

compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
need timeout
prove_preload
"$compiler" -O1 -g -fno-builtin -o "$scratch/program" \
    -I "$here/test/lib" "$here/test/integration/program_locked.c" || fail "program_locked.c does not compile"

for flags in future current both; do
    under_libc timeout $patience env LD_PRELOAD="$library" "$scratch/program" $flags \
        >"$scratch/output" 2>&1
    status=$?
    [ $status -ne 3 ] ||
        skip "memory cannot be locked without privileges (RLIMIT_MEMLOCK is $(ulimit -l))"
    [ $status -eq 0 ] || fail "$flags: status $status: $(tail -n 3 "$scratch/output")"
    read -r excess locked tables taken <"$scratch/output"
    echo "$flags: $excess MiB more than the heap, VmLck $locked MiB, page tables $tables MiB," \
        "$taken ms"
    [ "$excess" -le $most_excess_mib ] || fail "$flags: more than $most_excess_mib MiB in excess"
    [ "$tables" -le $most_tables_mib ] || fail "$flags: more than $most_tables_mib MiB of tables"
    [ $flags != future ] || [ "$locked" -le $most_locked_mib ] ||
        fail "$flags: more than $most_locked_mib MiB locked"
done
