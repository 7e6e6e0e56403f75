# SPDX-License-Identifier: MIT
#
# profiles.sh - sourced by the tests of readers: makes profiles whose numbers are known.
#
#   $profiles/before.heap .hprof .pb.gz    two stacks, two threads, at rate 1
#   $profiles/after.*                      the same with four objects of 1000 bytes more
#   $profiles/sampled.*                    two stacks at a rate of 512 KiB, addresses of no program
#   $program                               whose functions the first two are about
#
#   total EXPECTED COMMAND ...             fails unless the reader's total is this number of bytes
#   row EXPECTED NAME FILE                 ... or its row of a function: flat and cumulative

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

program=$build/test/test_dump
profiles=$scratch/profiles
[ -x "$program" ] || fail "$program does not exist: build it"
mkdir "$profiles"
under_libc PROFILES="$profiles" "$program" files_for_readers >"$scratch/log" ||
    fail "test_dump makes no files: $(cat "$scratch/log")"

# What google-pprof and jeprof print: a line with the total, then flat, %, %, cumulative, %, name.
total() {
    expected=$1
    shift
    under_libc "$@" >"$scratch/printed" 2>"$scratch/errors" ||
        fail "$*: status $?: $(cat "$scratch/errors")"
    found=$(sed -n 's/^Total[^:]*: \([0-9-]*\) .*/\1/p' "$scratch/printed")
    [ "$found" = "$expected" ] || fail "$*: the total is $found and not $expected"
}

row() {
    found=$(awk -v name="$2" '$6 == name { print $1, $4 }' "$scratch/printed")
    [ "$found" = "$1" ] || fail "$2: flat and cumulative are '$found' and not '$1'"
}

# The numbers that both Perl readers must show of a file at rate 1.  reads READER ENDING
reads() {
    file=$profiles/before.$2
    total 212000 "$1" --text --show_bytes "$program" "$file"
    row "12000 12000" reader_small
    row "200000 200000" reader_large
    row "0 212000" reader_work
    row "0 212000" files_for_readers
    total 14 "$1" --text --inuse_objects "$program" "$file"
    row "12 12" reader_small
    total 315000 "$1" --text --show_bytes --alloc_space "$program" "$file"
    row "300000 300000" reader_large
    total 18 "$1" --text --alloc_objects "$program" "$file"
    total 4000 "$1" --text --show_bytes "--base=$file" "$program" "$profiles/after.$2"
    row "4000 4000" reader_small
    row "0 4000" reader_work
    total 4 "$1" --text --alloc_objects "--base=$file" "$program" "$profiles/after.$2"
}
