#!/bin/sh
# SPDX-License-Identifier: MIT
#
# pprof, in Go, sees our numbers, names, labels and differences in profile.proto and in gperftools'
# format.

# shellcheck source=test/interop/profiles.sh
. "$(dirname -- "$0")/profiles.sh"

# shellcheck source=test/interop/sites.sh
. "$here/test/interop/sites.sh"
# shellcheck source=test/interop/go.sh
. "$here/test/interop/go.sh"

need_go_pprof

# go_row "FLAT CUMULATIVE" NAME: fails unless these are the numbers of a function.
go_row() {
    found=$(awk -v name="$2" '$6 == name { sub(/B$/, "", $1); sub(/B$/, "", $4); print $1, $4 }' \
        "$scratch/printed")
    [ "$found" = "$1" ] || fail "$2: '$found' and not '$1': $(cat "$scratch/printed")"
}

for ending in pb.gz hprof; do
    file=$profiles/before.$ending
    pprof -top "$program" "$file"
    shows "Type: inuse_space"
    shows "of 212000B total"
    go_row "12000 12000" reader_small
    go_row "200000 200000" reader_large
    go_row "0 212000" reader_work
    go_row "0 212000" files_for_readers
    pprof -top -sample_index=inuse_objects "$program" "$file"
    shows "of 14B total"
    pprof -top -sample_index=alloc_space "$program" "$file"
    shows "of 315000B total"
    go_row "300000 300000" reader_large
    pprof -top -sample_index=alloc_objects "$program" "$file"
    shows "of 18B total"
    pprof -top "-base=$file" "$program" "$profiles/after.$ending"
    shows "of 4000B total"
    go_row "4000 4000" reader_small
done

# What only profile.proto has: threads, build ids, and it needs no name of the program.
pprof -top "$profiles/before.pb.gz"
go_row "200000 200000" reader_large
pprof -top -tagfocus=thread=worker "$profiles/before.pb.gz"
go_row "5000 5000" reader_small
pprof -tags "$profiles/before.pb.gz"
shows "worker"
pprof -raw "$profiles/before.pb.gz"
shows "PeriodType: space bytes"
shows "Period: 1"
shows "inuse_space/bytes[dflt]"
shows "bytes:[1000 bytes] request:[999 bytes]"
build_id=$(readelf -n "$program" | sed -n 's/.*Build ID: //p')
[ -z "$build_id" ] || shows "$program $build_id"

# The line of each call is the one where the functions are called.
pprof -list='^reader_work$' "$profiles/before.pb.gz"
grep -qE '200000B +[0-9]+: .*reader_large\(' "$scratch/printed" || fail "$(cat "$scratch/printed")"

pprof -top -symbolize=none "$profiles/sampled.pb.gz"
shows "of 3842042B total"
pprof -raw -symbolize=none "$profiles/sampled.pb.gz"
shows "Period: 524288"
pprof -top -symbolize=none "$profiles/sampled.hprof"
shows "of 3842042B total"

# A real program.  The go of 1.19 finds no name for main, which lies before the other functions.
go_total() {
    grep -qE "% of $1B total|^Showing nodes accounting for $1B, 100%" "$scratch/printed" ||
        fail "$variant: the total is not $1: $(cat "$scratch/printed")"
}

judge() {
    before=$profile-before.pb.gz
    all="-top -nodefraction=0 -edgefraction=0 -nodecount=1000"
    bytes=$(header_total "$profile-before.heap" bytes)
    for file in "$before" "$profile-before.hprof"; do
        # shellcheck disable=SC2086
        pprof $all "$program" "$file"
        go_total "$bytes"
        for name in $(site_names); do
            site_row "$(truth before "$name" bytes)B" "$name"
        done
        # shellcheck disable=SC2086
        pprof $all -sample_index=alloc_space "$program" "${file%before*}after${file#*before}"
        for name in $(site_names); do
            site_row "$(truth ever "$name" bytes)B" "$name"
        done
    done
    # shellcheck disable=SC2086
    pprof $all -sample_index=inuse_objects -lines "$before"
    go_total "$(header_total "$profile-before.heap" objects)"
    for name in $(site_names); do
        site_row "$(truth before "$name" objects)B" "$name" ":$(line_of "$name")$"
    done
    # shellcheck disable=SC2086
    pprof $all "-base=$before" "$profile-after.pb.gz"
    go_total "$(grown total bytes)"
    for name in $(site_names); do
        site_row "$(grown "$name" bytes)B" "$name"
    done
}
for_each_program judge
