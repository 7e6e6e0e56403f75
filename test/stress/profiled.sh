#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The storms of signals, of forks, and of dlopen, throw and fork together, while every allocation is recorded
# with its stack and profiles are written all the time.
#
# The storms are programs of their own, which watch themselves for hangs; here they only run with other
# options.  That the profiler was on is seen from its files, which are complete.  stress_profile.c has profiles
# that children write.  STRESS=1 takes the storms' whole length.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

# storm INTERVAL OPTIONS PROGRAM [TEST ...]: a profile each 2^INTERVAL bytes.
storm() {
    interval=$1
    options=$2
    shift 2
    [ -x "$build/test/$1" ] || fail "$build/test/$1 does not exist: build it"
    profiles=$scratch/$1
    mkdir "$profiles"
    program=$1
    shift
    under_libc ${STRESS:+STRESS="$STRESS"} ${SEED:+SEED="$SEED"} \
        TALLY_CONF="$options,prof:true,lg_prof_sample:0,lg_prof_interval:$interval,prof_prefix:$profiles/p" \
        "$build/test/$program" "$@" || fail "$program: status $?"
    count=0
    for file in "$profiles"/*; do
        case $file in
        *.heap) ;;
        *) fail "$program left $file" ;;
        esac
        [ "$(head -n 1 "$file")" = heap_v2/1 ] || fail "$file begins with $(head -n 1 "$file")"
        grep -q "^@ 0x" "$file" || fail "$file has no stacks"
        grep -q "^MAPPED_LIBRARIES:" "$file" || fail "$file is not complete"
        count=$((count + 1))
    done
    echo "    $count profiles"
    rm -rf "$profiles"
}

storm 27 all_slow:true stress_signals
storm 29 retain:true stress_fork_storm children_of_fork_beside_allocating_threads_use_the_heap
storm 22 retain:true test_replay_storm
