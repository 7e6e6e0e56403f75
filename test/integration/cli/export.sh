#!/bin/bash
# SPDX-License-Identifier: MIT
#
# `tally export`: formats by name and by the ending of -o, what is selected, what is refused.  What other
# people's programs make of the files is tested in test/interop.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"
# What the symboliser says of a file that is not there is its own matter.
mask '/^tally: .*nonexistent\/demo/d'

cat >small.folded <<'END'
main;serve;login 4096
main;serve;<b>&"x" 64
main;=idle, really 40
END
cat >small.heap <<'END'
heap profile:      3:     4160 [     5:     5184] @ heapprofile
     1:     4096 [     1:     4096] @ 0x00401136 0x0040118c 0x004011b5
     2:       64 [     4:     1088] @ 0x00401140 0x004011b5

MAPPED_LIBRARIES:
00400000-00402000 r-xp 00000000 08:01 131 /nonexistent/demo
END

say Formats by name.
for format in folded speedscope dot callgrind csv json; do
    show tally export $format small.folded
done
for format in gperftools jemalloc folded; do
    show tally export $format small.heap
done

say Formats by the ending of the file, which is for its owner only and never replaced unasked.
show tally export -o small.csv small.folded
show tally export -o small.csv small.folded
show tally export --overwrite -o small.csv small.folded
show sh -c 'stat -c "%a %n" small.csv; tail -n 1 small.csv'
show sh -c 'tally export -o small.pb.gz small.heap && tally export gperftools small.pb.gz | head -n 2'
show sh -c 'tally export svg small.folded | grep -c "class=\"f\""'
show sh -c 'tally export pprof small.heap | tally export folded -'

say Several profiles are added up, and selected.
show tally export folded small.folded small.folded
show tally export folded --focus=login small.folded
show tally export folded --metric=alloc_objects small.heap
show tally export dot --min=50% small.folded

say Names that nobody reads.
show tally export csv --anonymize small.folded

say What is refused, in one sentence.
show tally export
show tally export nonsense small.folded
show tally export small.folded
show tally export folded
show tally export -o small.xyz small.folded
show tally export gperftools small.folded
show tally export gperftools-cpu small.heap
show tally export folded missing.heap
show tally export folded --metric=cpu small.heap
show tally export folded -o missing/folder/x small.heap
