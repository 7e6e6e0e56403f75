#!/bin/bash
# SPDX-License-Identifier: MIT
#
# `tally check`: limits that hold and limits that do not, in the four formats.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"
need python3

python3 "$here/test/lib/make_pprof.py" ci.pb <<'END' || fail "there is no profile"
types alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes
main@a.c:1;account_load@/src/account.c:140 = 2048 134217728 1024 67108864
main@a.c:1;"<b>"%&:,x@ev%il,\x0ac.c:7 = 3000000 335544320 2 128
END
python3 "$here/test/lib/make_pprof.py" main.pb <<'END' || fail "there is no profile"
types alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes
main@a.c:1;account_load@/src/account.c:140 = 1024 67108864 512 33554432
END
python3 "$here/test/lib/make_pprof.py" empty.pb <<'END' || fail "there is no profile"
types inuse_objects/count inuse_space/bytes
END
python3 "$here/test/lib/make_pprof.py" time.pb <<'END' || fail "there is no profile"
types samples/count cpu/nanoseconds
main@a.c:1 = 5 50000000
END

say Limits that hold, and limits that do not.
show tally check --max-peak=1G ci.pb
show tally check --max-peak=1M ci.pb
show tally check --max-leaks=0 ci.pb
show tally check --max-leaks=64M ci.pb
show tally check --max-leaks=65M ci.pb
show tally check --max-leaks=1025 ci.pb
show tally check --max-leaks=1026 ci.pb
show tally check --max-allocs=3002047 ci.pb
show tally check --max-allocs=3002048 ci.pb
show tally check --max-growth=5% --baseline=main.pb ci.pb
show tally check --max-growth=150% --baseline=main.pb ci.pb
show tally check --max-growth=0 --baseline=ci.pb main.pb
show tally check --max-growth=0 --baseline=empty.pb ci.pb
show tally check --max-peak=0 --max-leaks=0 empty.pb

say A moment of a recording, and a recording without an end.
for end in end lost cut; do
    python3 "$here/test/lib/make_tally.py" $end.tally $end main.pb ci.pb || fail "there is no recording"
done
show tally check --max-leaks=40M end.tally
show tally check --max-leaks=40M end.tally#1
show tally check --max-leaks=40M end.tally@1.5s
show tally check --max-leaks=40M end.tally#3
show tally check --max-growth=5% --baseline=end.tally#1 end.tally
show tally check --max-leaks=1G cut.tally
show tally check --max-leaks=1G cut.tally@end
show tally check --max-growth=500% --baseline=cut.tally end.tally
show tally check --max-leaks=1G lost.tally
show tally check --max-peak=1G lost.tally
show tally check --max-peak=1M lost.tally
show tally check --max-allocs=9999999 lost.tally
show tally check --max-growth=500% --baseline=lost.tally end.tally
show tally check --max-leaks=1G lost.tally@end
show tally report --top lost.tally
show sh -c 'tally info lost.tally | grep reaches'
show sh -c 'tally info --format=json lost.tally | grep reaches_end'
head -c -8 end.tally >damaged.tally
show tally check --max-leaks=1G damaged.tally@end

say Noise is no change: a figure is over a limit where all of its interval is.
# small NAME OBJECTS: a profile of that many objects of 4 KiB, sampled at 512 KiB.
small() {
    python3 "$here/test/lib/make_pprof.py" "$1" <<END || fail "there is no profile"
types alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes
period 524288
main@a.c:1;load@a.c:2 = $2 $(($2 * 4096)) $2 $(($2 * 4096))
END
}
small before.pb 10000
small after.pb 10200
small much.pb 40000
small few.pb 128
show tally check --max-growth=1% --baseline=before.pb after.pb
show tally check --max-growth=1% --baseline=before.pb --noise=fail after.pb
show tally check --max-growth=1% --baseline=before.pb much.pb
show tally check --max-growth=1000% --baseline=before.pb much.pb
show tally check --max-growth=1% --baseline=few.pb before.pb
show tally check --max-peak=39M before.pb
show tally check --max-peak=39M --noise=fail before.pb
show tally check --max-peak=39M much.pb
show tally check --max-peak=1G before.pb
show tally check --max-peak=100K few.pb
show tally check --max-leaks=0 few.pb
show tally check --format=json --max-peak=39M --max-allocs=5000 before.pb

say For machines.
set -- --max-peak=1G --max-leaks=0 --max-allocs=5 --max-growth=5% --baseline=main.pb
for format in text json github junit; do
    show tally check --format=$format "$@" ci.pb
done
show sh -c 'tally check --format=json --max-leaks=0 --max-allocs=1 ci.pb | python3 -m json.tool >/dev/null'
show sh -c 'tally check --format=junit --max-allocs=1 ci.pb |
    python3 -c "import sys, xml.dom.minidom as d; d.parseString(sys.stdin.buffer.read())"'

say A limit that cannot be checked is no pass.
show tally check --max-rss=1G ci.pb
show tally check --max-allocs=1 empty.pb
show tally check --max-peak=1G time.pb
show tally check --max-leaks=1 time.pb
show tally check ci.pb
show tally check --baseline=main.pb ci.pb
show tally check --max-growth=5% ci.pb
show tally check --max-growth=much --baseline=main.pb ci.pb
show tally check --max-peak=huge ci.pb
show tally check --max-allocs=1K ci.pb
show tally check --max-peak=1G nowhere.pb
show tally check --max-growth=5% --baseline=nowhere.pb ci.pb
