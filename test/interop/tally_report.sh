#!/bin/sh
# SPDX-License-Identifier: MIT
#
# `tally report` and `tally diff` show of the files of jemalloc, gperftools and pprof what jeprof shows of
# them, and both what the program counted itself: totals, functions, lines, sources and differences.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

# shellcheck source=test/interop/sites.sh
. "$here/test/interop/sites.sh"

need jeprof
[ -x "$build/tally" ] || fail "$build/tally does not exist: build it"

# Prints into $scratch/printed, numbers without commas.
shows() {
    under_libc "$build/tally" "$@" >"$scratch/raw" 2>"$scratch/errors" ||
        fail "$variant: tally $*: status $?: $(cat "$scratch/errors")"
    sed 's/\([0-9]\),\([0-9]\)/\1\2/g; s/\([0-9]\),\([0-9]\)/\1\2/g; s/^ *+//' "$scratch/raw" \
        >"$scratch/printed"
}

total_is() {
    found=$(awk 'NR == 1 { print $2 }' "$scratch/printed")
    [ "$found" = "$1" ] || fail "$variant: the total is '$found' and not '$1': $(cat "$scratch/raw")"
}

# Name, flat and cum of the program's own functions; both tables have the numbers in the same places.
own_rows() {
    awk 'match($0, / (site_[a-z]*|work_in_thread|work|main)($|[<( ])/) && $3 ~ /%/ {
        name = substr($0, RSTART + 1)
        sub(/[<( ].*/, "", name)
        print name, $1, $4 }' | sort
}

# same_as_jeprof FILE
same_as_jeprof() {
    under_libc jeprof --text --show_bytes "$program" "$1" 2>"$scratch/errors" | own_rows \
        >"$scratch/theirs"
    shows report -n 0 --unit=B "$1"
    own_rows <"$scratch/printed" >"$scratch/ours"
    [ -s "$scratch/theirs" ] || fail "$variant: jeprof shows nothing: $(cat "$scratch/errors")"
    diff "$scratch/theirs" "$scratch/ours" || fail "$variant: jeprof shows other numbers of $1"
}

judge() {
    for ending in heap hprof pb.gz; do
        before=$profile-before.$ending
        after=$profile-after.$ending
        shows report -n 0 --unit=B "$before"
        total_is "$(header_total "$profile-before.heap" bytes)"
        for name in $(site_names); do
            site_row "$(truth before "$name" bytes)" "$name"
        done
        shows report -n 0 --by=lines --metric=inuse_objects "$before"
        total_is "$(header_total "$profile-before.heap" objects)"
        for name in $(site_names); do
            site_row "$(truth before "$name" objects)" "$name" ":$(line_of "$name")\$"
        done
        shows report -n 0 --metric=alloc_objects "$after"
        for name in $(site_names); do
            site_row "$(truth ever "$name" objects)" "$name"
        done
        shows diff -n 0 --unit=B "$before" "$after"
        for name in $(site_names); do
            site_row "$(grown "$name" bytes | sed 's/^0$//')" "$name"
        done
        shows report --unit=B --list='site_small' "$after"
        grep -q "^ *$(truth after site_small bytes) B .* $(line_of site_small)  .*/\* site: small \*/" \
            "$scratch/printed" || fail "$variant: --list shows $(cat "$scratch/raw")"
        shows report --peek='^site_small' "$after"
        grep -A1 'called by' "$scratch/printed" | grep -q '100.0%  work[ (]' ||
            fail "$variant: --peek shows $(cat "$scratch/raw")"
    done
    same_as_jeprof "$profile-after.heap"
    same_as_jeprof "$profile-after.hprof"
}
for_each_program judge
