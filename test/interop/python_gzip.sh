#!/bin/sh
# SPDX-License-Identifier: MIT
#
# profile.proto is a gzip file for zlib, and has the fields that the format demands.

# shellcheck source=test/interop/profiles.sh
. "$(dirname -- "$0")/profiles.sh"

need python3

# judge FILE EXPECTED: the sums of the four values.
judge() {
    python3 -B "$here/test/interop/read_proto.py" "$profiles/$1" >"$scratch/sums" 2>&1 ||
        fail "$1: $(cat "$scratch/sums")"
    [ "$(cat "$scratch/sums")" = "$2" ] || fail "$1: $(cat "$scratch/sums") and not $2"
}

judge before.pb.gz "18 315000 14 212000"
judge after.pb.gz "22 319000 18 216000"
judge sampled.pb.gz "3094 4891642 2069 3842042"
