#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Where a profile cannot be written, one line says why, the program goes on as if nothing had been asked for,
# and nothing is left behind.  And what prof_leak and prof_leak_error make of the end of a program.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

program=$scratch/program
link_profiled_program "$program"
folder=$scratch/folder
mkdir "$folder"

# run STATUS LIMIT VARIABLE ARGUMENT...: with files of at most LIMIT blocks ("unlimited": of any size), in the
# folder, which is empty before.
run() {
    expected=$1
    limit=$2
    variable=$3
    shift 3
    case="$variable, files of $limit blocks"
    rm -rf "${folder:?}"/*
    (
        cd "$folder" || exit 9
        export "${variable?}"
        ulimit -f "$limit"
        "$program" "$@" </dev/null 2>&1
        echo "status $?"
    ) | cat >"$scratch/said" # through a pipe, which the limit does not concern
    status=$(sed -n 's/^status //p' "$scratch/said")
    sed -i '/^status /d' "$scratch/said"
    [ "$status" = "$expected" ] || fail "$case: status $status: $(cat "$scratch/said")"
}

# says LINE...: exactly these lines, numbers of processes left out.
says() {
    printf '%s\n' "$@" | sed '/^$/d' >"$scratch/expected"
    sed 's/\.[0-9][0-9]*\(\.[0-9]\)/.PID\1/' "$scratch/said" >"$scratch/found"
    diff "$scratch/expected" "$scratch/found" >"$scratch/difference" ||
        fail "$case: it says otherwise: $(cat "$scratch/difference")"
}

leaves_nothing() {
    [ -z "$(ls -A "$folder")" ] || fail "$case: it left $(ls -A "$folder")"
}

all=prof:true,lg_prof_sample:0
too_large="the file would be larger than allowed (27)"

run 0 0 MALLOC_CONF=$all,prof_final:true grow 1
says "tally: cannot write the heap profile jeprof.PID.0.f.heap: $too_large"
leaves_nothing
run 0 0 MALLOC_CONF=$all,prof_final:true,prof_format:proto grow 1
says "tally: cannot write the heap profile jeprof.PID.0.f.pb.gz: $too_large"
leaves_nothing
run 0 0 MALLOC_CONF=$all,lg_prof_interval:22 grow 8
says "tally: cannot write the heap profile jeprof.PID.0.i0.heap: $too_large" \
    "tally: cannot write the heap profile jeprof.PID.1.i1.heap: $too_large"
leaves_nothing
run 0 0 MALLOC_CONF=$all,prof_signal:10,background_thread:false raise 10 grow 1
says "tally: cannot write the heap profile that was asked for: $too_large"
leaves_nothing
run 0 0 MALLOC_CONF=$all,prof_log:true grow 1 drop
says "tally: cannot write the log of allocations: $too_large"
leaves_nothing
run 0 0 HEAPPROFILE=h grow 1
says "tally: cannot write the heap profile h.0001.heap: $too_large"
leaves_nothing
run 0 0 A=b profile x.heap profile x.pb.gz
says "0 27" "0 27"
leaves_nothing
run 0 0 A=b ctl prof.active true grow 1 ctl prof.dump -
says "prof.dump: 14"
leaves_nothing
echo "no room"

run 0 unlimited MALLOC_CONF=$all,prof_final:true,prof_prefix:nowhere/x grow 1
says "tally: cannot write the heap profile nowhere/x.PID.0.f.heap: there is no such directory (2)"
leaves_nothing
run 0 unlimited HEAPPROFILE=nowhere/h grow 1
says "tally: cannot write the heap profile nowhere/h.0001.heap: there is no such directory (2)"
leaves_nothing
run 0 unlimited MALLOC_CONF=$all,prof_log:true,prof_prefix:nowhere/x grow 1 drop
says "tally: cannot write the log of allocations: there is no such directory (2)"
run 0 unlimited MALLOC_CONF=$all,prof_final:true,prof_prefix:/dev/null/x grow 1
says "tally: cannot write the heap profile /dev/null/x.PID.0.f.heap: there is no such directory (20)"
# Nobody, not even root, makes files here.
run 0 unlimited MALLOC_CONF=$all,prof_final:true,prof_prefix:/sys/kernel/x grow 1
grep -qE '^tally: cannot write the heap profile /sys/kernel/x\..*: (permission denied|the file system is read-only) \(' \
    "$scratch/said" || fail "$case: $(cat "$scratch/said")"
[ "$(wc -l <"$scratch/said")" = 1 ] || fail "$case: $(cat "$scratch/said")"
echo "no place"

# Without standard descriptors: the profile is none of them.
rm -rf "${folder:?}"/*
(cd "$folder" && MALLOC_CONF=$all,prof_final:true exec "$program" grow 1 <&- >&- 2>&-) ||
    fail "without descriptors: status $?"
head -n 1 "$folder"/jeprof.*.0.f.heap | grep -q '^heap_v2/1$' || fail "without descriptors: $(ls "$folder")"
grep -q '^MAPPED_LIBRARIES:' "$folder"/jeprof.*.0.f.heap || fail "without descriptors: not complete"
(cd "$folder" && MALLOC_CONF=$all,prof_final:true,prof_prefix:nowhere/x exec "$program" grow 1 \
    <&- >&- 2>&-) || fail "without descriptors and folder: status $?"
# The line finds no room either.
(cd "$folder" && MALLOC_CONF=$all,prof_final:true,prof_prefix:nowhere/x exec "$program" grow 1 \
    2>/dev/full) || fail "with a full standard error: status $?"
echo "no descriptors"

summary="tally: Leak approximation summary: ~2097152 bytes, ~1025 objects, >= 2 contexts"
detail="tally: Run jeprof on dump output for leak detail"
run 0 unlimited MALLOC_CONF=$all,prof_final:true,prof_leak:true grow 1
says "$summary" "$detail"
run 1 unlimited MALLOC_CONF=$all,prof_final:true,prof_leak:true,prof_leak_error:true grow 1
says "$summary" "$detail" "tally: Exiting with error code because memory leaks were detected"
run 0 unlimited MALLOC_CONF=$all,prof_final:true,prof_leak:true,prof_leak_error:true,prof_prefix: grow 1
says ""
run 0 unlimited MALLOC_CONF=$all,prof_leak:true,prof_leak_error:true grow 1
says "tally: option 'prof_leak_error' needs 'prof_final'"
# Nothing is sampled, so nothing leaks.
run 0 unlimited MALLOC_CONF=prof:true,lg_prof_sample:60,prof_final:true,prof_leak:true,prof_leak_error:true \
    grow 1
says ""
echo "leaks"
