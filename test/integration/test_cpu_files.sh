#!/bin/sh
# SPDX-License-Identifier: MIT
#
# CPUPROFILE and its kin, and ProfilerStart and its kin: which files are there when the program has ended, in
# whatever way, and that each is complete.  The reader is read_cpu.py, which knows the format from its
# description alone.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

compiler=${CC:-cc}
program=$scratch/program
folder=$scratch/folder
command -v "$compiler" >/dev/null || skip "there is no C compiler"
need python3
[ -f "$library" ] || fail "$library does not exist: build it, or say where it is in BUILD"
"$compiler" -O1 -g -fno-builtin -I"$here/include/compat" -o "$program" \
    "$here/test/integration/program_cpu.c" -L"$build" -ltally -Wl,-rpath,"$build" ||
    fail "program_cpu.c does not link"
python=$(python3 -c 'import sys; print(sys.executable)')

# run [NAME=VALUE ...] -- WHAT...: in the folder; the status is in $status.
run() {
    variables=''
    while [ "$1" != -- ]; do
        variables="$variables $1"
        shift
    done
    shift
    status=0
    # shellcheck disable=SC2086
    (cd "$folder" && exec env -i CPUPROFILE_FREQUENCY=1000 $variables "$program" "$@") \
        >"$scratch/output" 2>"$scratch/errors" || status=$?
} 2>/dev/null

begin() {
    rm -rf "$folder"
    mkdir "$folder"
}

ended() {
    [ "$status" = "$1" ] ||
        fail "$2: status $status, not $1: $(cat "$scratch/output" "$scratch/errors")"
}

silent() {
    [ ! -s "$scratch/errors" ] || fail "$1: the program said $(head -n 1 "$scratch/errors")"
}

# leaves NAME...: exactly these files are there, process ids left out.
leaves() {
    found=$(ls -A "$folder" | sed 's/_[0-9][0-9]*$/_PID/' | sort | tr '\n' ' ')
    [ "$found" = "${*:+$* }" ] || fail "left '$found', not '$*'"
}

# holds FILE LEAST PERIOD: complete, with at least so many samples.
holds() {
    line=$("$python" "$here/test/integration/read_cpu.py" "$folder/$1" 2>&1) || fail "$1: $line"
    # shellcheck disable=SC2086
    set -- "$1" "$2" "$3" $line
    [ "$5" = "$3" ] || fail "$1: period $5, not $3"
    [ "$7" -ge "$2" ] || fail "$1: $7 samples, not $2"
}

begin
run CPUPROFILE=a -- spin
ended 0 spin
silent spin
leaves a
holds a 50 1000
[ "$(stat -c %a "$folder/a")" = 600 ] || fail "others can read the profile"

# A profile of an earlier run is replaced, and the frequency is as asked for.
run CPUPROFILE=a CPUPROFILE_FREQUENCY=500 -- spin
ended 0 'a second run'
leaves a
holds a 50 2000

# What a link leads to is left alone, and so is a file that has another name.
echo precious >"$folder/b"
ln "$folder/b" "$folder/d"
run CPUPROFILE=b -- plain
ended 0 'a file with two names'
grep -q '^tally: no CPU profile: b: there is a file of this name$' "$scratch/errors" ||
    fail "a file with two names: $(cat "$scratch/errors")"
[ "$(cat "$folder/b")" = precious ] || fail "a file with two names was overwritten"
ln -s a "$folder/c"
run CPUPROFILE=c -- plain
ended 0 'a link'
[ -L "$folder/c" ] || fail "a link was replaced"
holds a 50 2000

begin
run CPUPROFILE=a -- killed
ended 137 killed
leaves a
holds a 20 1000

begin
run CPUPROFILE=a -- forks
ended 0 forks
leaves a a_PID
holds a 40 1000
holds "$(basename "$folder"/a_*)" 40 1000

begin
run CPUPROFILE=a -- execs
ended 0 execs
leaves a a_PID
holds "$(basename "$folder"/a_*)" 50 1000

begin
run CPUPROFILE=a CPUPROFILE_USE_PID=1 PMIX_RANK=7 -- spin
ended 0 'use pid'
leaves a.rank-7_PID

begin
run TALLY_CONF=cpu_file:x_%p -- execs
ended 0 'the option'
leaves x_PID
holds "$(basename "$folder"/x_*)" 50 1000

begin
run CPUPROFILE=a CPUPROFILESIGNAL=12 -- toggle 12
ended 0 toggle
leaves a.0 a.1
holds a.0 20 1000
holds a.1 20 1000

# A worker that is forked before the signal comes has a file of its own.
begin
run CPUPROFILE=a CPUPROFILESIGNAL=12 -- worker 12
ended 0 worker
leaves a.0_PID
holds "$(basename "$folder"/a.0_*)" 20 1000

begin
run CPUPROFILE=a -- chdir
ended 0 chdir
silent chdir
leaves a
holds a 20 1000

begin
run CPUPROFILE=a -- default
ended 0 default
grep -q '^tally: the program has taken signal 64: the CPU profile ends here$' "$scratch/errors" ||
    fail "default: $(cat "$scratch/errors")"
holds a 20 1000

begin
run CPUPROFILE=a -- confined
case $status in
77) echo "without filters of system calls: skipped" ;;
*) ended 0 confined ;;
esac
holds a 20 1000

begin
run -- api "$folder/a"
ended 0 api
leaves a
holds a 20 1000

# Time on the wall, one timer for the process, a signal of choice, a wrong frequency.
for setting in CPUPROFILE_REALTIME= TALLY_CONF=cpu_timer:process CPUPROFILE_TIMER_SIGNAL=0x28 \
    CPUPROFILE_PER_THREAD_TIMERS=; do
    begin
    run CPUPROFILE=a "$setting" -- spin
    ended 0 "$setting"
    silent "$setting"
    leaves a
    holds a 50 1000
done
begin
run CPUPROFILE=a CPUPROFILE_FREQUENCY=12x -- spin
ended 0 'a wrong frequency'
holds a 50 10000
run CPUPROFILE=b CPUPROFILE_FREQUENCY=1000000 -- spin
holds b 50 250

begin
run CPUPROFILE=a.pb.gz -- spin
ended 0 proto
leaves a.pb.gz
"$python" -c 'import gzip, sys; sys.exit(b"nanoseconds" not in gzip.open(sys.argv[1]).read())' \
    "$folder/a.pb.gz" || fail "a.pb.gz is no profile"

begin
run CPUPROFILE=/nonexistent/a -- plain
ended 0 'no folder'
grep -q '^tally: no CPU profile: /nonexistent/a: there is no such directory$' "$scratch/errors" ||
    fail "no folder: $(cat "$scratch/errors")"
run CPUPROFILE=a CPUPROFILE_TIMER_SIGNAL=9 -- plain
grep -q '^tally: no CPU profile: a: signal 9 is taken or cannot be caught$' "$scratch/errors" ||
    fail "a wrong signal: $(cat "$scratch/errors")"
leaves

echo "every profile is where it should be, and whole"
