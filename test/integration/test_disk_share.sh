#!/bin/sh
# SPDX-License-Identifier: MIT
#
# S-25: a tenth of the disk stays free.  A small file system is filled so that less would: neither the file
# of a run nor a profile is written, one sentence says why, and nothing is left behind.  With room they are.
# Where the disk fills up while a run is recorded, the file ends at its last whole frame.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
need python3
need unshare

# Itself again, where mounts are its own.
if [ -z "${SMALL:-}" ]; then
    mkdir "$scratch/small"
    for flags in -m -rm; do
        if unshare $flags mount -t tmpfs -o size=1m none "$scratch/small" 2>/dev/null; then
            SMALL=$scratch/small unshare $flags sh "$0"
            exit
        fi
    done
    skip "a file system cannot be mounted here, not in a namespace of users either"
fi

prove_preload
small=$SMALL
mount -t tmpfs -o size=1m none "$small" || fail "no small file system"
"$compiler" -O1 -g -fno-builtin -pthread -o "$scratch/program" \
    "$here/test/integration/program_recorded.c" -L"$build" -ltally -Wl,-rpath,"$build" ||
    fail "program_recorded.c does not link"

# fill KIB: leaves the rest of 1 MiB.
fill() {
    rm -f "$small/filler"
    head -c "$(($1 * 1024))" /dev/zero >"$small/filler"
}

# said SENTENCE: once, and nothing else.
said() {
    grep -q "$1" "$scratch/errors" && [ "$(wc -l <"$scratch/errors")" = 1 ] ||
        fail "said '$(cat "$scratch/errors")', not '$1'"
}

run() {
    (cd "$small" && under_libc TALLY_CONF="$1" "$scratch/program" exit) 2>"$scratch/errors" ||
        fail "the program ended with $?"
}
record=run_file:a.tally,lg_prof_sample:0
dump=prof:true,lg_prof_sample:0,prof_final:true,prof_prefix:p

fill 940
run $record
said 'not recorded any further: cannot write .*a.tally.*: a tenth of the disk is to stay free (63)'
run $dump
said 'cannot write the heap profile p.*: a tenth of the disk is to stay free (63)'
[ "$(ls "$small")" = filler ] || fail "left behind: $(ls "$small")"
echo "nothing is written where less than a tenth is free"

fill 500
run $record
run $dump
[ ! -s "$scratch/errors" ] || fail "said $(cat "$scratch/errors")"
[ -s "$small/a.tally" ] && [ -s "$small"/p.*.heap ] || fail "not written: $(ls "$small")"
echo "with room they are"

rm -f "$small"/*.*
(
    cd "$small" && exec env TALLY_CONF=$record,run_every_ms:10 "$scratch/program" complaint
) 2>"$scratch/errors" >"$scratch/output" &
program=$!
until_so test -s "$small/a.tally.part"
fill 940
wait $program
said 'not recorded any further: cannot write .*: a tenth of the disk is to stay free (63)'
python3 "$here/test/integration/read_frames.py" "$small/a.tally.part" >"$scratch/frames" ||
    fail "the file is not whole: $(cat "$scratch/frames")"
[ "$(df -k "$small" | awk 'END { print ($4 > 40) }')" = 1 ] || fail "less is free than before"
echo "a run that is recorded ends at its last whole frame"
