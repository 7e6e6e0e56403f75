#!/bin/sh
# SPDX-License-Identifier: MIT
#
# How people steer the profiler: each way to ask for a profile leaves the file that the manual
# promises, under the name that it promises, and a program that asks for none leaves none.
# test/unit/test_triggers.c has the fine points, with a clock of its own.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

program=$scratch/program
link_profiled_program "$program"

# run VARIABLE... -- ARGUMENT...: the program in an empty directory.
run() {
    rm -rf "$scratch/folder"
    mkdir "$scratch/folder"
    : >"$scratch/variables"
    while [ "$1" != -- ]; do
        printf '%s\n' "$1" >>"$scratch/variables"
        shift
    done
    shift
    (
        cd "$scratch/folder" || exit 9
        while read -r variable; do
            export "${variable?}"
        done <"$scratch/variables"
        exec "$program" "$@"
    ) >"$scratch/output" 2>"$scratch/errors" || {
        cat "$scratch/output" "$scratch/errors"
        fail "$(cat "$scratch/variables"): the program ended with status $?"
    }
}

# leaves PATTERN...: exactly these files are there, in this order, process ids left out.
leaves() {
    found=$(ls "$scratch/folder" | sed 's/\([._]\)[0-9][0-9]*\(\.[0-9]\)/\1PID\2/' | tr '\n' ' ')
    [ "$found" = "${*:+$* }" ] || fail "$(cat "$scratch/variables"): left '$found', not '$*'"
    for file in "$scratch/folder"/*; do
        [ -e "$file" ] || break
        [ "$(stat -c %a "$file")" = 600 ] || fail "$file has mode $(stat -c %a "$file")"
        [ -s "$file" ] || fail "$file is empty"
    done
}

begins() {
    for file in "$scratch/folder"/*; do
        head -n 1 "$file" | grep -q "^$1" || fail "$file begins with $(head -n 1 "$file")"
    done
}

run -- grow 10
leaves
run MALLOC_CONF=prof:true -- grow 10
leaves
run MALLOC_CONF=prof:true,prof_final:true -- grow 10
leaves jeprof.PID.0.f.heap
begins heap_v2/524288
run MALLOC_CONF=prof:true,prof_final:true,prof_prefix: -- grow 10
leaves
run MALLOC_CONF=prof:true,prof_final:true,prof_prefix:p,lg_prof_sample:0 -- grow 1
leaves p.PID.0.f.heap
begins 'heap_v2/1$'
run MALLOC_CONF=prof:true,prof_final:true,prof_format:gperftools -- grow 10
leaves jeprof.PID.0.f.hprof
begins 'heap profile: '
echo "at exit"

run MALLOC_CONF=prof:true,lg_prof_sample:0,lg_prof_interval:22 -- grow 9
leaves jeprof.PID.0.i0.heap jeprof.PID.1.i1.heap
run MALLOC_CONF=prof:true,lg_prof_sample:0,prof_free_interval:3m -- grow 4 drop
leaves jeprof.PID.0.i0.heap
run MALLOC_CONF=prof:true,lg_prof_sample:0,prof_live_threshold:5m -- grow 6 drop grow 6
leaves jeprof.PID.0.u0.heap jeprof.PID.1.u1.heap
run MALLOC_CONF=prof:true,lg_prof_sample:0,prof_live_step:4m -- grow 4 drop grow 9
leaves jeprof.PID.0.u0.heap jeprof.PID.1.u1.heap
run MALLOC_CONF=prof:true,prof_gdump:true -- grow 5
[ "$(ls "$scratch/folder" | grep -c '\.u[0-9]*\.heap$')" -ge 2 ] ||
    fail "prof_gdump left $(ls "$scratch/folder")"
echo "by volume"

run MALLOC_CONF=prof:true,prof_time_interval:1 -- grow 1 idle 2
[ "$(ls "$scratch/folder" | grep -c '\.i[0-9]*\.heap$')" -ge 2 ] ||
    fail "prof_time_interval left $(ls "$scratch/folder")"
run MALLOC_CONF=prof:true,prof_memory_share:0.00002 -- grow 20 idle 1
leaves jeprof.PID.0.u0.heap
run MALLOC_CONF=prof:true,prof_signal:10 -- grow 1 raise 10 idle 1
leaves jeprof.PID.0.m0.heap
run MALLOC_CONF=prof:true,prof_signal:10,background_thread:false -- raise 10 grow 1
leaves jeprof.PID.0.m0.heap
echo "by clock, memory and signal"

run -- ctl prof.active true grow 10 ctl prof.dump -
leaves jeprof.PID.0.m0.heap
[ ! -s "$scratch/output" ] || fail "mallctl gave $(cat "$scratch/output")"
run -- ctl prof.dump -
[ "$(cat "$scratch/output")" = 'prof.dump: 2' ] || fail "prof.dump gave $(cat "$scratch/output")"
run -- profile x.heap profile x.pb profile x.gperf profile x.heap profile /
[ "$(tr '\n' ' ' <"$scratch/output")" = '0 0 0 0 0 0 0 0 0 17 ' ] ||
    fail "tally_profile_dump gave $(cat "$scratch/output")"
[ "$(cd "$scratch/folder" && echo *)" = 'x.gperf x.heap x.pb' ] ||
    fail "tally_profile_dump left $(ls "$scratch/folder")"
echo "by a call"

run HEAPPROFILE=h -- grow 1
leaves h.0001.heap
begins 'heap profile: '
grep -q 'tally: Dumping heap profile to h.0001.heap (Exiting, [23] MB in use)' "$scratch/errors" ||
    fail "HEAPPROFILE said: $(cat "$scratch/errors")"
run HEAPPROFILE=h HEAP_PROFILE_ALLOCATION_INTERVAL=4194304 -- grow 9
leaves h.0001.heap h.0002.heap h.0003.heap
run HEAPPROFILE=h HEAPPROFILE_USE_PID=1 -- grow 1
leaves h_PID.0001.heap
run HEAPPROFILE=h PMI_RANK=4 -- grow 1
leaves h.rank-4.0001.heap
run HEAPPROFILE=h -- fork grow 1
[ "$(ls "$scratch/folder" | grep -c '^h_[0-9]*\.0001\.heap$')" -eq 1 ] ||
    fail "a forked child left $(ls "$scratch/folder")"
run -- text start h grow 1 dump why text stop grow 1 text start i
leaves h.0001.heap i.0002.heap
grep -q 'tally: Dumping heap profile to h.0001.heap (why)' "$scratch/errors" ||
    fail "HeapProfilerDump said: $(cat "$scratch/errors")"
[ "$(sed -n -e 1p -e 3p "$scratch/output")" = "$(printf '\n')" ] &&
    sed -n 2p "$scratch/output" | grep -q '^heap profile: ' ||
    fail "GetHeapProfile gave: $(cat "$scratch/output")"
echo "as gperftools does"
