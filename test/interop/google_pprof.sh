#!/bin/sh
# SPDX-License-Identifier: MIT
#
# google-pprof, the reader of gperftools in Perl, sees our numbers, names and differences.

# shellcheck source=test/interop/profiles.sh
. "$(dirname -- "$0")/profiles.sh"

# shellcheck source=test/interop/sites.sh
. "$here/test/interop/sites.sh"

need google-pprof
reads google-pprof hprof
total 3842042 google-pprof --text --show_bytes --addresses "$program" "$profiles/sampled.hprof"

# A real program.
judge() {
    reads_program google-pprof hprof
}
for_each_program judge
