#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A run in one file: however the program ends, the file holds whole frames, and who forks or becomes
# another program writes into no file but its own.  The reader is read_frames.py, which knows the
# format from its description alone.  test/unit/test_recorder.c has the clock.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

compiler=${CC:-cc}
program=$scratch/program
command -v "$compiler" >/dev/null || skip "there is no C compiler"
need python3
[ -f "$library" ] || fail "$library does not exist: build it, or say where it is in BUILD"
"$compiler" -O1 -g -fno-omit-frame-pointer -fno-builtin -pthread -o "$program" \
    "$here/test/integration/program_recorded.c" -L"$build" -ltally -Wl,-rpath,"$build" ||
    fail "program_recorded.c does not link"
# A python that is a wrapper script would be slow.
python=$(python3 -c 'import sys; print(sys.executable)')

# run KEYS WHAT...: in an empty directory; the status is in $status.
run() {
    rm -rf "$scratch/folder"
    mkdir "$scratch/folder"
    keys=$1
    shift
    status=0
    (
        cd "$scratch/folder" || exit 9
        TALLY_CONF=run_file:a.tally,lg_prof_sample:0,$keys exec "$program" "$@"
    ) >"$scratch/output" 2>"$scratch/errors" || status=$?
} 2>/dev/null # the shell's own remarks about signals

silent() {
    [ ! -s "$scratch/errors" ] || fail "$1: the program said $(head -n 1 "$scratch/errors")"
}

# leaves NAME...: exactly these files are there, process ids left out.
leaves() {
    found=$(ls "$scratch/folder" | sed 's/^a\.[0-9][0-9][0-9]*\./a.PID./' | sort | tr '\n' ' ')
    [ "$found" = "${*:+$* }" ] || fail "left '$found', not '$*'"
}

# frames FILE: what is in it, in $scratch/frames.
frames() {
    "$python" "$here/test/integration/read_frames.py" "$scratch/folder/$1" >"$scratch/frames" ||
        fail "$1: $(cat "$scratch/frames")"
}

# prefixes FILE: every beginning of it gives the frames that end in it.
prefixes() {
    "$python" "$here/test/integration/read_frames.py" --prefixes "$scratch/folder/$1" \
        >"$scratch/prefixes" || fail "$1: $(cat "$scratch/prefixes")"
}

has() {
    grep -q "$1" "$scratch/frames" || fail "no '$1' in: $(cat "$scratch/frames")"
}
lacks() {
    ! grep -q "$1" "$scratch/frames" || fail "there is a '$1' in: $(cat "$scratch/frames")"
}

# totals FILE: the sums of the last snapshot as shell variables.
totals() {
    "$python" "$here/test/integration/read_frames.py" --totals "$scratch/folder/$1" \
        >"$scratch/totals" || fail "$1: $(cat "$scratch/totals")"
    # shellcheck source=/dev/null
    . "$scratch/totals"
}

# snapshots FILE: how many there are.
snapshots() {
    frames "$1"
    grep -c '^SNAP' "$scratch/frames"
}

# A clean end: the name without .part, a last snapshot that is exact where everything is recorded.
run prof_active:true exit
[ "$status" = 0 ] || fail "exit: status $status"
silent exit
leaves a.tally
frames a.tally
prefixes a.tally
has '^HEAD 0.000 program=.*/program pid=[0-9]* host=.* rate=1 version=.* argument=exit'
has '^SNAP'
has '^STAT'
has '^BYE .*dropped=0'
has '^whole'
[ "$(stat -c %a "$scratch/folder/a.tally")" = 600 ] || fail "the file is not private"
totals a.tally
[ "$alloc_objects" -ge 101000 ] && [ "$alloc_objects" -lt 101200 ] ||
    fail "$alloc_objects objects were allocated"
[ "$inuse_objects" -ge 1000 ] && [ "$inuse_objects" -lt 1200 ] || fail "$inuse_objects objects live"
[ "$peak_space" -ge "$inuse_space" ] || fail "peak $peak_space below the end $inuse_space"
[ "$peak_objects" -ge 1001 ] || fail "$peak_objects objects at the peak"
# Frees come at once, but a moment when others run may come between.
[ "$temp_objects" -gt 90000 ] && [ "$temp_objects" -lt 100200 ] || fail "$temp_objects temporary objects"
# Some of 1,024 bytes may have been rounded, and libc's own.
[ "$slack_space" -lt "$inuse_space" ] || fail "slack of $slack_space"

# Triggers put a snapshot and a note into the file, instead of files of their own.
run prof_live_threshold:500k exit
silent prof_live_threshold
leaves a.tally
frames a.tally
has '^NOTE .*0 MB currently in use'
[ "$(grep -c '^SNAP' "$scratch/frames")" -ge 2 ] || fail "a trigger made no snapshot"
run run_rss:1k exit
frames a.tally
has '^NOTE .*run_rss'

# Ends that nobody tells us of: what was written until then.
run prof_active:true _exit
[ "$status" = 3 ] || fail "_exit: status $status"
leaves a.tally.part
frames a.tally.part
prefixes a.tally.part
has '^SNAP'
lacks '^BYE'
run prof_active:true abort
[ "$status" = 134 ] || fail "abort: status $status"
leaves a.tally.part
frames a.tally.part
has '^SNAP'

# A process that becomes another program: each has its file.
run prof_active:true exec
silent exec
leaves a.2.tally a.tally.part
frames a.tally.part
lacks '^BYE'
frames a.2.tally
has '^BYE'

# Forked children write nothing, or a file of their own; the parent's is as if they were not.
run prof_active:true fork
silent fork
leaves a.tally
frames a.tally
has '^whole'
run 'run_children:*' fork
silent fork
leaves a.PID.tally a.tally
frames a.tally
lacks "pid=$(tail -n 1 "$scratch/output") "
frames "a.$(tail -n 1 "$scratch/output").tally"
has "pid=$(tail -n 1 "$scratch/output") "
has '^BYE'
run 'run_children:*' fork_exec # TALLY_ROOT does not say who was meant: each program is
silent fork_exec
leaves a.2.tally a.tally
run 'run_children:prog*' fork_wait
silent fork_wait
leaves a.PID.tally.part a.tally
run run_children:other fork_quiet
leaves a.tally
run prof_active:true vfork
silent vfork
leaves a.tally
frames a.tally
has '^whole'

# The processor's time is beside memory, and each process has its own.
time_of() {
    "$python" "$here/test/integration/read_frames.py" --time "$scratch/folder/$1" \
        >"$scratch/totals" || fail "$1: $(cat "$scratch/totals")"
    # shellcheck source=/dev/null
    . "$scratch/totals"
    [ "$cpu" = $((samples * 5000000)) ] || fail "$1: $samples samples are $cpu ns"
}
run run_cpu_hz:200 compute
silent compute
leaves a.tally
frames a.tally
prefixes a.tally
[ "$(grep -A 1 '^CPU' "$scratch/frames" | grep -c '^SNAP')" = "$(grep -c '^CPU' "$scratch/frames")" ] ||
    fail "time is not in front of snapshots: $(cat "$scratch/frames")"
time_of a.tally
[ "$samples" -ge 80 ] && [ "$samples" -le 150 ] ||
    fail "half a second of processor time is $samples samples"
has "^BYE .*cpu_samples=$samples cpu_lost=0 cpu_left_out=0"
totals a.tally
[ "$alloc_objects" -ge 101000 ] || fail "beside time, $alloc_objects objects were allocated"
run run_cpu_hz:200 _exit
frames a.tally.part
has '^CPU'
run 'run_children:*,run_cpu_hz:200' fork_compute
silent fork_compute
time_of "a.$(tail -n 1 "$scratch/output").tally"
[ "$samples" -ge 80 ] || fail "of a child's half a second there are $samples samples"
of_child=$samples
time_of a.tally
[ "$samples" -lt "$of_child" ] || fail "a parent that waits has $samples samples"

# Killed at random moments, while two threads allocate.
rounds=${STRESS:+100}
round=0
while [ "$round" -lt "${rounds:-12}" ]; do
    rm -rf "$scratch/folder"
    mkdir "$scratch/folder"
    (
        cd "$scratch/folder" || exit 9
        TALLY_CONF=run_file:a.tally,lg_prof_sample:8,run_every_ms:1,run_cpu_hz:1000 exec "$program" churn
    ) &
    victim=$!
    until_so test -e "$scratch/folder/a.tally.part"
    sleep "0.$(((round * 7919 + $$) % 50 + 10))"
    kill -KILL "$victim" || fail "the program ended before it was killed"
    wait "$victim" 2>/dev/null
    leaves a.tally.part
    frames a.tally.part
    has '^HEAD'
    lacks '^BYE'
    round=$((round + 1))
done

# A program that sits idle, with one thread: what it did before is in the file all the same.
rm -rf "$scratch/folder"
mkdir "$scratch/folder"
(
    cd "$scratch/folder" || exit 9
    TALLY_CONF=run_file:a.tally,lg_prof_sample:0 exec "$program" idle
) >"$scratch/output" &
victim=$!
until_so grep -q idle "$scratch/output"
until_so test -e "$scratch/folder/a.tally.part"
before=$(snapshots a.tally.part)
more_snapshots() { [ "$(snapshots a.tally.part)" -gt "$before" ]; }
until_so more_snapshots
kill -KILL "$victim"
wait "$victim" 2>/dev/null
frames a.tally.part
has '^SNAP'
totals a.tally.part
[ "$inuse_objects" -ge 1000 ] || fail "of an idle program $inuse_objects objects are known to live"

# No room: a limit on the size of files stands for a full disk.  Said once, whole frames are left.
rm -rf "$scratch/folder"
mkdir "$scratch/folder"
status=0
(
    cd "$scratch/folder" || exit 9
    ulimit -f 8
    TALLY_CONF=run_file:a.tally,lg_prof_sample:0,run_every_ms:10 exec "$program" complaint
) 2>"$scratch/errors" || status=$?
[ "$status" = 3 ] || fail "no room: status $status"
[ "$(grep -c 'the run is not recorded any further' "$scratch/errors")" = 1 ] ||
    fail "no room: said $(cat "$scratch/errors")"
leaves a.tally.part
frames a.tally.part
has '^whole'
