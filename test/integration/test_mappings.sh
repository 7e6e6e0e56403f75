#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Mappings are few: a heap of 64 GiB, touched sparsely, is made of 1,000 at most, where the kernel
# allows 65,530. And where a program has used them all up, allocations may be refused, but contents
# stay, every free succeeds, the heap is whole, and when there are mappings again it serves again.
#
# Blocks of 64 KiB in 64 GiB touch 4 GiB of memory: `make stress` does that, otherwise 4 GiB of heap
# have to do.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

most_mappings=1000

compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
need timeout
prove_preload
"$compiler" -O1 -g -fno-builtin -o "$scratch/program" \
    -I "$here/test/lib" "$here/test/integration/program_mappings.c" -ldl || fail "program_mappings.c does not compile"

# run ARGUMENTS...: under the library; the last line is in $answer.
run() {
    under_libc timeout $patience env LD_PRELOAD="$library" "$scratch/program" "$@" \
        >"$scratch/output" 2>&1 || fail "$*: status $?: $(tail -n 3 "$scratch/output")"
    answer=$(tail -n 1 "$scratch/output")
}

# sparse GIGABYTES KILOBYTES
sparse() {
    run sparse "$1" "$2"
    read -r mappings resident tables <<LINE
$answer
LINE
    echo "$1 GiB in blocks of $2 KiB: $mappings mappings, $resident MiB, page tables $tables MiB"
    [ "$mappings" -le $most_mappings ] || fail "more than $most_mappings mappings"
}

for spare in 0 1 2 3 4 6 10 20 100; do
    run full $spare
    echo "with $spare mappings left: $answer of the allocations, no free"
done

case $(cat /proc/sys/vm/overcommit_memory) in
2) skip "64 GiB cannot be allocated where vm.overcommit_memory is 2" ;;
esac
sparse 64 1024
if [ -n "${STRESS:-}" ]; then
    sparse 64 64
else
    sparse 4 64
fi
