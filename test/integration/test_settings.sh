#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Settings of the whole machine: strict overcommit, few mappings, and a control group with little
# memory. They reach every process there is, so this runs only where somebody has said that it may,
# by TALLY_TEST_SETTINGS=yes, as root, best in a virtual machine. Everything is put back at the end.
#
#      vm.overcommit_memory=2   the kernel refuses what it could not keep: reservations must be free
#      vm.max_map_count=1000    mappings run out early
#      memory of a group        nothing is refused, the largest process is killed: freed memory must
#                               serve the next phase, whatever its sizes

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

headroom_mib=400
group_mib=64
phase_mib=32 # of live blocks, in the group
least_percent=80
rounds=6

[ "${TALLY_TEST_SETTINGS:-}" = yes ] ||
    skip "this changes settings of the machine; TALLY_TEST_SETTINGS=yes allows it"
[ "$(id -u)" -eq 0 ] || skip "only root may change settings of the machine"
compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
need timeout
prove_preload
for program in fill mappings; do
    "$compiler" -O1 -g -fno-builtin -o "$scratch/$program" \
        "$here/test/integration/program_$program.c" -ldl || fail "program_$program.c does not compile"
done

vm=/proc/sys/vm
overcommit=$(cat $vm/overcommit_memory)
ratio=$(cat $vm/overcommit_ratio)
reserve=$(cat $vm/user_reserve_kbytes)
mappings=$(cat $vm/max_map_count)
group=
put_back() {
    echo "$overcommit" >$vm/overcommit_memory
    echo "$ratio" >$vm/overcommit_ratio
    echo "$reserve" >$vm/user_reserve_kbytes
    echo "$mappings" >$vm/max_map_count
    [ -z "$group" ] || rmdir "$group"
    rm -rf "$scratch"
}
trap put_back EXIT

# run WHAT COMMAND...: under the library; the last line is in $answer. Through a pipe, since a file
# in memory would want what the program has just used up.
run() {
    local what=$1 output
    shift
    output=$(under_libc timeout $patience env LD_PRELOAD="$library" "$@" 2>&1) ||
        fail "$what: status $?: $output"
    answer=${output##*$'\n'}
}

kilobytes_of() {
    sed -n "s/^$1: *\([0-9]*\) kB/\1/p" /proc/meminfo
}

# From a process the kernel keeps 1/32 of its addresses for others, vm.user_reserve_kbytes at most,
# by default 128 MiB. The class map's 4 GiB count there: a process with the library can commit up to
# that much less. It is set to nothing here, because the share of the heap is what is measured.
strict_overcommit() {
    local committed
    committed=$(kilobytes_of Committed_AS)
    echo $((committed + headroom_mib * 1024)) >$vm/overcommit_kbytes
    echo 0 >$vm/user_reserve_kbytes
    echo 2 >$vm/overcommit_memory || fail "vm.overcommit_memory cannot be set"
    for size in mixed 64 4096 1048576; do
        run "overcommit 2, blocks $size" "$scratch/fill" none $headroom_mib late $size $rounds
        echo "overcommit 2, blocks $size: $answer % of $headroom_mib MiB in the worst of $rounds rounds"
        [ "$answer" -ge $least_percent ] || fail "less than $least_percent %"
        [ "$answer" -le 110 ] || fail "the setting has no effect"
    done
    echo "$overcommit" >$vm/overcommit_memory
    echo "$ratio" >$vm/overcommit_ratio
    echo "$reserve" >$vm/user_reserve_kbytes
}

few_mappings() {
    echo 1000 >$vm/max_map_count || fail "vm.max_map_count cannot be set"
    for spare in 0 2 6 20; do
        run "max_map_count 1000, $spare left" "$scratch/mappings" full $spare
        echo "max_map_count 1000, $spare left: $answer of the allocations, no free"
    done
    echo "$mappings" >$vm/max_map_count
}

# Makes a group below our own, in whichever hierarchy there is; its limit file is in $limit.
make_group() {
    local own
    own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
    if [ -n "$own" ] && [ -d "/sys/fs/cgroup/memory$own" ]; then
        group=/sys/fs/cgroup/memory$own/tally-test-$$
        limit=memory.limit_in_bytes
    else
        own=$(sed -n 's/^0:://p' /proc/self/cgroup)
        group=/sys/fs/cgroup$own/tally-test-$$
        limit=memory.max
        echo +memory >"/sys/fs/cgroup$own/cgroup.subtree_control" 2>/dev/null
    fi
    mkdir "$group" 2>/dev/null || {
        group=
        return 1
    }
    [ -f "$group/$limit" ] && echo $((group_mib * 1048576)) >"$group/$limit"
}

little_memory_for_a_group() {
    if ! make_group; then
        skip "no control group with a limit of memory can be made; the rest passed"
    fi
    run "in a group" sh -c "echo \$\$ >'$group/cgroup.procs' && exec '$scratch/fill' \
        stop $phase_mib late each $((2 * rounds))"
    echo "in a group of $group_mib MiB: $((2 * rounds)) phases of $phase_mib MiB live"
    if under_tally sh -c "echo \$\$ >'$group/cgroup.procs' && exec '$scratch/fill' \
        stop $((2 * group_mib)) late each 1" >"$scratch/output" 2>&1; then
        fail "the limit of the group has no effect"
    fi
}

strict_overcommit
few_mappings
little_memory_for_a_group
