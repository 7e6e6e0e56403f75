#!/bin/bash
# SPDX-License-Identifier: MIT
#
# `tally info` on each kind of file and on files that are damaged, and `tally import`.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

# The fuzzer's corpus has one file of each kind, behind a byte that chooses the reader.
for name in proto_00 jemalloc_00 gperftools_00 gperftools_01 cpu_00 folded_00 any_00; do
    tail -c +2 "$here/test/fuzz/corpus/read/$name" >"$name" || exit 1
done
gzip -n <proto_00 >packed.pb.gz

say Each kind of file.
show tally info any_00
show tally info packed.pb.gz
show tally info jemalloc_00
show tally info gperftools_00
show tally info gperftools_01
show tally info cpu_00
show tally info folded_00
show sh -c 'tally info - <folded_00'

say As JSON.
show tally info --format=json any_00
show tally info --format=json jemalloc_00

say A moment of a run.
show sh -c 'tally info any_00#1 | head -n 1'
show tally info any_00#2
show tally info any_00@peak
show tally info any_00@never

say What is damaged, cut or no profile.
head -c 350 any_00 >cut
head -c 20 any_00 >header
head -c 150 proto_00 >short
head -c 120 packed.pb.gz >short.gz
head -c 100 cpu_00 >short.cpu
head -c 150 gperftools_00 >short.heap
head -c 150 jemalloc_00 >short.jemalloc
: >empty
printf 'hello\n' >text
for file in cut header short short.gz short.cpu short.heap short.jemalloc empty text missing .; do
    show sh -c 'tally info --format=json "$1" >/dev/null' sh $file
done

say Importing.
show tally import jemalloc_00 gperftools_00 packed.pb.gz
show sh -c 'ls *.pb.gz'
show sh -c 'tally info jemalloc_00.pb.gz | grep inuse'
show tally import jemalloc_00
show tally import --overwrite jemalloc_00
show tally import -o all.pb.gz jemalloc_00 gperftools_01
show sh -c 'tally info all.pb.gz | grep space'
show tally import --from=folded jemalloc_00 -o -
show tally import --from=jemallox jemalloc_00
show tally import -o none.pb.gz cpu_00 gperftools_00
show tally import -o none.pb.gz cpu_00 text
show test ! -e none.pb.gz
show sh -c 'tally import - <folded_00 | tally info -'
