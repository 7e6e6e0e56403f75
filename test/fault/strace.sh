#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The kernel refuses system calls of a program that runs on the shipped library, one after the
# other: strace makes the n-th call fail, or all from the n-th on, and the program must come to its
# end with all its memory as it was. fault_workloads.c does the same at the seam of the library, in
# more depth; here nothing is replaced and nothing is compiled in.
#
# A short slice tries few n of each call; with STRESS=1 every n is tried until one is not reached.
# Calls that the loader makes before main are left alone: the first marks where to begin.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need strace
compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
prove_preload
"$compiler" -O1 -g -fno-builtin -pthread -o "$scratch/program" \
    "$here/test/fault/program_refused.c" || fail "program_refused.c does not compile"

# Under a sandbox that forbids tracing there is nothing to see.
strace -o "$scratch/log" true 2>/dev/null || skip "strace may not trace here"

# traced STRACE_OPTION...: the program under the library; what strace saw is in $scratch/log.
traced() {
    timeout "$patience" env -i PATH="$test_search_path" strace -f -o "$scratch/log" \
        -E LD_PRELOAD="$library" -E TALLY_CONF=dirty_decay_ms:0 "$@" "$scratch/program" \
        >"$scratch/output" 2>"$scratch/errors"
}

# count_calls CALL: how often the first thread makes the call before its work, and during it.
count_calls() {
    traced -e "trace=$1,getpriority" || fail "the program does not run under strace"
    awk -v call="$1(" '
        NR == 1 { first = $1 }
        $1 != first { next }
        index($0, "getpriority(") { marks++ }
        index($0, call) { if (marks == 0) before++; else if (marks == 1) during++ }
        END { print before + 0, during + 0 }' "$scratch/log"
}

tried=0
met=0

# refuse CALL ERROR WHEN: one run; fails the test unless the program ends well.
refuse() {
    traced -e "trace=$1,getpriority" -e "inject=$1:error=$2:when=$3"
    status=$?
    tried=$((tried + 1))
    if [ $status -ne 0 ] || ! grep -q '^whole' "$scratch/output"; then
        cat "$scratch/output" "$scratch/errors"
        tail -n 5 "$scratch/log"
        fail "$1 refused with $2, when=$3: status $status"
    fi
    quiet "$scratch/errors"
    if grep -q INJECTED "$scratch/log"; then
        met=$((met + 1))
    fi
}

# refuse_in_turn CALL ERROR
refuse_in_turn() {
    counts=$(count_calls "$1") || exit 1
    before=${counts% *}
    during=${counts#* }
    n=1
    while [ "$n" -le "$during" ]; do
        refuse "$1" "$2" "$((before + n))"
        refuse "$1" "$2" "$((before + n))+"
        if [ -n "${STRESS:-}" ]; then
            n=$((n + 1))
        else
            n=$((n * 6))
        fi
    done
    echo "$1: $before calls before main, $during during the work"
}

refuse_in_turn mmap ENOMEM
refuse_in_turn munmap ENOMEM
refuse_in_turn mprotect ENOMEM
refuse_in_turn madvise EINVAL
refuse_in_turn mremap ENOMEM
# A wait that is cut short is an ordinary thing. All of them, in all threads: were only some
# refused, a wake would be lost, and the kernel loses none.
refuse futex EINTR 1+

[ "$met" -gt 0 ] || fail "no call was refused in $tried runs"
echo "$tried runs, $met of them with a call refused"
