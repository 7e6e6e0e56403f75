#!/bin/bash
# SPDX-License-Identifier: MIT
#
# `tally diff`: what is new, what is gone, what grew, in every view, and its exit status.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"
need python3

python3 "$here/test/lib/make_pprof.py" base.pb <<'END' || fail "there is no profile"
types inuse_objects/count inuse_space/bytes
main@a.c:1;cache_insert@cache.c:88 = 100 10240000
main@a.c:1;old_index@index.c:12 = 5 1363149
main@a.c:1;same@a.c:9 = 1 4096
END
python3 "$here/test/lib/make_pprof.py" new.pb <<'END' || fail "there is no profile"
types inuse_objects/count inuse_space/bytes
main@a.c:2;account_load@account.c:140 = 1024 67108864
main@a.c:1;cache_insert@cache.c:88 = 150 15564800
main@a.c:1;same@a.c:9 = 1 4096
END
python3 "$here/test/lib/make_pprof.py" other.pb <<'END' || fail "there is no profile"
types alloc_objects/count alloc_space/bytes
main@a.c:1 = 1 4096
END
python3 "$here/test/lib/make_pprof.py" sampled.pb <<'END' || fail "there is no profile"
types inuse_objects/count inuse_space/bytes
period 524288
main@a.c:1;cache_insert@cache.c:88 = 200000 12800000
END
utf8=LC_ALL=C.UTF-8

show $utf8 tally diff base.pb new.pb
show tally diff --cum base.pb new.pb
show $utf8 tally diff --metric=inuse_objects base.pb new.pb
show $utf8 tally diff --tree base.pb new.pb
show $utf8 tally diff --sites new.pb base.pb
show $utf8 tally diff --peek=main base.pb new.pb
show $utf8 tally diff --traces base.pb new.pb
show $utf8 tally diff base.pb sampled.pb

say The exit status tells only when asked, and --min says what counts.
show $utf8 tally diff --exit-code --focus=same base.pb new.pb
show $utf8 tally diff --exit-code --focus=old_index base.pb new.pb
show $utf8 tally diff --exit-code --min=20% --focus=old_index base.pb new.pb
show $utf8 tally diff --exit-code base.pb base.pb

say Noise is no difference, unless that is asked for.
# small NAME OBJECTS: a profile of that many objects of 4 KiB, sampled at 512 KiB, and of a function that stays.
small() {
    python3 "$here/test/lib/make_pprof.py" "$1" <<END || fail "there is no profile"
types inuse_objects/count inuse_space/bytes
period 524288
main@a.c:1;load@a.c:2 = $2 $(($2 * 4096))
main@a.c:1;stay@a.c:3 = 1000 4096000
END
}
small before.pb 10000
small after.pb 10200
small much.pb 40000
small few.pb 128
python3 "$here/test/lib/make_pprof.py" none.pb <<'END' || fail "there is no profile"
types inuse_objects/count inuse_space/bytes
period 524288
END
show $utf8 tally diff --exit-code before.pb after.pb
show $utf8 tally diff --exit-code --noise=fail before.pb after.pb
show $utf8 tally diff --exit-code before.pb much.pb
show $utf8 tally diff --exit-code --focus=load none.pb few.pb
show $utf8 tally diff --exit-code before.pb before.pb

say What cannot be compared.
show tally diff base.pb other.pb
show tally diff base.pb
show tally diff base.pb nowhere.pb
