#!/bin/sh
# SPDX-License-Identifier: MIT
#
# jeprof sees our numbers, names and differences in jemalloc's format and in gperftools'.

# shellcheck source=test/interop/profiles.sh
. "$(dirname -- "$0")/profiles.sh"

# shellcheck source=test/interop/sites.sh
. "$here/test/interop/sites.sh"

need jeprof
reads jeprof heap
reads jeprof hprof

# By thread, which only jemalloc's format knows.
total 7000 jeprof --text --show_bytes --thread=0 "$program" "$profiles/before.heap"
row "7000 7000" reader_small
total 205000 jeprof --text --show_bytes --thread=1 "$program" "$profiles/before.heap"

# It multiplies what was sampled.  Rounded counts make it 3827637 bytes of the 3842042 that the other
# formats tell.
total 3827637 jeprof --text --show_bytes --addresses "$program" "$profiles/sampled.heap"
total 2067 jeprof --text --inuse_objects --addresses "$program" "$profiles/sampled.heap"
total 3842042 jeprof --text --show_bytes --addresses "$program" "$profiles/sampled.hprof"

# A real program.
judge() {
    reads_program jeprof heap
    reads_program jeprof hprof
}
for_each_program judge
