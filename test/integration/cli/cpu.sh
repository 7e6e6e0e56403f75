#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A recorded run that has the processor's time beside memory: what commands show of it, and at which moment.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"
need python3

make_pprof() {
    python3 "$here/test/lib/make_pprof.py" "$1" || fail "there is no profile"
}
make_pprof heap1.pb <<'END'
types alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes peak_objects/count peak_space/bytes
main@server.c:412;load@load.c:7 = 10 1048576 10 1048576 10 1048576 thread=server
END
make_pprof heap2.pb <<'END'
types alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes peak_objects/count peak_space/bytes
main@server.c:412;load@load.c:7 = 20 2097152 10 1048576 20 2097152 thread=server
work@work.c:3;load@load.c:7 = 60 6291456 10 3145728 60 6291456 thread=worker
idle@work.c:30;load@load.c:7 = 1 4096 0 0 1 4096 thread=logger
END
make_pprof cpu1.pb <<'END'
types samples/count cpu/nanoseconds
period 10000000 cpu/nanoseconds
work@work.c:3;crunch@work.c:9 = 10 100000000 thread=worker thread_id=12
END
make_pprof cpu2.pb <<'END'
types samples/count cpu/nanoseconds
period 10000000 cpu/nanoseconds
work@work.c:3;crunch@work.c:9 = 70 700000000 thread=worker thread_id=12
work@work.c:3;crunch@work.c:10 = 20 200000000 thread=worker thread_id=13
main@server.c:412;load@load.c:7;malloc@malloc.c:1 = 10 100000000 thread=server thread_id=11
END
python3 "$here/test/lib/make_tally.py" run.tally end cpu:cpu1.pb heap1.pb cpu:cpu2.pb heap2.pb ||
    fail "there is no recording"
python3 "$here/test/lib/make_tally.py" memory.tally end heap1.pb || fail "there is no recording"
mask 's/[0-9-]* [0-9:]* UTC/DATE/'
mask "s|'[^']*/libtally.so.0'|'LIBRARY'|; s|run_file:[^,]*/true|run_file:FOLDER/true|"
utf8=LC_ALL=C.UTF-8

say The metric chooses: memory unless it is cpu or samples.
show $utf8 tally report run.tally
show $utf8 tally report --metric=cpu run.tally
show $utf8 tally report --metric=samples --by=lines run.tally
show $utf8 tally report --tree --metric=cpu run.tally
show $utf8 tally export folded --metric=cpu run.tally

say Moments: a time, the number of a snapshot, what came between two.
show $utf8 tally report --metric=cpu run.tally@1.5s
show $utf8 tally report --metric=cpu 'run.tally#1'
show $utf8 tally report --metric=cpu --from=1s run.tally
show $utf8 tally diff --metric=cpu 'run.tally#1' 'run.tally#2'

say By threads: time and memory side by side, or one of them.
show $utf8 tally report --threads run.tally
show $utf8 tally report --threads -n 1 run.tally@1s
show $utf8 tally report --threads --metric=cpu run.tally
show $utf8 tally report --threads memory.tally
show $utf8 tally report --threads cpu2.pb
show $utf8 tally report --threads --thread='^w' run.tally
show $utf8 tally report --threads run.tally@peak
show $utf8 tally report --tree --tagroot=thread --metric=cpu run.tally

say What the file holds.
show $utf8 tally info run.tally

say What cannot be.
show tally report --metric=cpu memory.tally
show tally report --metric=cpu run.tally@peak
show tally diff --threads run.tally run.tally
show tally report --threads --tree run.tally
show tally run --cpu=0 true
show tally run --cpu=5000 true
show tally run --cpu=fast true
show tally run --cpu --preload-only true
