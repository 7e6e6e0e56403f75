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
for end in end cut; do
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
head -c -8 end.tally >damaged.tally
show tally check --max-leaks=1G damaged.tally@end

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
