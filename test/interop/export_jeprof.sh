#!/bin/sh
# SPDX-License-Identifier: MIT
#
# jeprof sees our numbers and names in what `tally export` writes of a profile.proto.

# shellcheck source=test/interop/exported.sh
. "$(dirname -- "$0")/exported.sh"

need jeprof
for ending in heap hprof; do
    for name in before after; do
        exported $name $name.$ending
    done
    exported hostile hostile.$ending
    exported sampled sampled.$ending
done
profiles=$exported
reads jeprof heap
reads jeprof hprof

# Threads have numbers in the order of the file: what each of them has is the whole together.
first=$(jeprof --text --show_bytes --thread=0 "$program" "$exported/before.heap" 2>/dev/null |
    sed -n 's/^Total[^:]*: \([0-9]*\) .*/\1/p')
second=$(jeprof --text --show_bytes --thread=1 "$program" "$exported/before.heap" 2>/dev/null |
    sed -n 's/^Total[^:]*: \([0-9]*\) .*/\1/p')
same "what both threads have" "$((first + second))" 212000

profiles=$scratch/profiles
for ending in heap hprof; do
    total "$(truth inuse_space)" jeprof --text --show_bytes --addresses "$program" \
        "$exported/hostile.$ending"
    total "$(truth inuse_objects)" jeprof --text --inuse_objects --addresses "$program" \
        "$exported/hostile.$ending"
    total "$(truth alloc_space)" jeprof --text --show_bytes --alloc_space --addresses "$program" \
        "$exported/hostile.$ending"
done

# Estimates of a sampled profile, which must not be multiplied again.
for ending in heap hprof; do
    total 3842042 jeprof --text --show_bytes --addresses "$program" "$exported/sampled.$ending"
done
