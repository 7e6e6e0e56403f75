#!/bin/sh
# SPDX-License-Identifier: MIT
#
# google-pprof sees our numbers and names in what `tally export` writes of a profile.proto.

# shellcheck source=test/interop/exported.sh
. "$(dirname -- "$0")/exported.sh"

need google-pprof
for name in before after; do
    exported $name $name.hprof
done
exported hostile hostile.hprof
exported sampled sampled.hprof
exported busy busy.prof
profiles=$exported
reads google-pprof hprof

profiles=$scratch/profiles
total "$(truth inuse_space)" google-pprof --text --show_bytes --addresses "$program" \
    "$exported/hostile.hprof"
total "$(truth alloc_objects)" google-pprof --text --alloc_objects --addresses "$program" \
    "$exported/hostile.hprof"
total 23 google-pprof --text --addresses "$program" "$exported/busy.prof"

# Estimates of a sampled profile, which must not be multiplied again.
total 3842042 google-pprof --text --show_bytes --addresses "$program" "$exported/sampled.hprof"
