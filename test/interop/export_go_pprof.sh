#!/bin/sh
# SPDX-License-Identifier: MIT
#
# pprof, in Go, sees our numbers, names and labels in what `tally export` writes of a profile.proto.

# shellcheck source=test/interop/exported.sh
. "$(dirname -- "$0")/exported.sh"
# shellcheck source=test/interop/go.sh
. "$here/test/interop/go.sh"

need_go_pprof

# go_total NUMBER [UNIT]
go_total() {
    grep -qE "% of $1${2:-B} total|^Showing nodes accounting for $1${2:-B}, 100%" \
        "$scratch/printed" || fail "the total is not $1: $(cat "$scratch/printed")"
}

all="-top -nodefraction=0 -edgefraction=0 -nodecount=1000"

# Types and names of a profile of a real program, in both formats that pprof reads.
for ending in pb.gz hprof; do
    for name in before after; do
        exported $name $name.$ending
    done
    file=$exported/before.$ending
    # shellcheck disable=SC2086
    pprof $all "$program" "$file"
    shows "Type: inuse_space"
    go_total 212000
    grep -qE '^ *200000B .* reader_large$' "$scratch/printed" || fail "$(cat "$scratch/printed")"
    # shellcheck disable=SC2086
    pprof $all -sample_index=alloc_objects "$program" "$file"
    go_total 18
    # shellcheck disable=SC2086
    pprof $all "-base=$file" "$program" "$exported/after.$ending"
    go_total 4000
done

# All metrics of hostile functions, and labels.
exported hostile hostile.pb.gz
file=$exported/hostile.pb.gz
for type in inuse_space inuse_objects alloc_space alloc_objects; do
    # shellcheck disable=SC2086
    pprof $all -symbolize=none -sample_index=$type "$file"
    go_total "$(truth $type)"
done
shows "plain_function"
# shellcheck disable=SC2086
pprof $all -symbolize=none -tagfocus=thread=main "$file"
shows "Showing nodes accounting for 1000B, "
pprof -raw -symbolize=none "$file"
shows "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]"
same "how many functions are called main" "$(grep -c ' main main.c:' "$scratch/printed")" 1

# Without names.
exported hostile hidden.pb.gz --anonymize
# shellcheck disable=SC2086
pprof $all -symbolize=none "$exported/hidden.pb.gz"
go_total "$(truth inuse_space)"
if grep -qE 'plain_function|main|script' "$scratch/printed"; then
    fail "an anonymous profile has names: $(cat "$scratch/printed")"
fi

# Estimates of a sampled profile, which must not be multiplied again.
for ending in pb.gz hprof; do
    exported sampled sampled.$ending
    # shellcheck disable=SC2086
    pprof $all -symbolize=none "$exported/sampled.$ending"
    go_total 3842042
done

# CPU profiles.
exported busy busy.prof
exported busy busy.pb.gz
for file in "$exported/busy.prof" "$exported/busy.pb.gz"; do
    # shellcheck disable=SC2086
    pprof $all -symbolize=none -sample_index=samples "$file"
    go_total 23
    # shellcheck disable=SC2086
    pprof $all -symbolize=none -unit=ms -sample_index=cpu "$file"
    go_total 230 ms
done
