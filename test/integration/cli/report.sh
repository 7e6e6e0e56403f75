#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The views of `tally report` on profiles that a person can check: the figures of the manual's example.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"
need python3

python3 "$here/test/lib/make_pprof.py" server.pb <<'END' || fail "there is no profile"
types alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes
main@server.c:412;handle_request@server.c:301;login@auth.c:77;account_load@account.c:140 = 2048 134217728 1024 67108864 thread=io-1
main@server.c:412;handle_request@server.c:301;login@auth.c:77;account_load@account.c:141;body_new@body.c:33;malloc@malloc.c:9 = 3072 33449574 3072 33449574 thread=io-1
main@server.c:412;handle_request@server.c:301;cache_insert@cache.c:88+grow@cache.h:7 = 61440 15728640 61440 15728640 thread=io-2
main@server.c:412;handle_request@server.c:301;cache_insert@cache.c:90 = 4 3774873 4 3774873 thread=io-2
main@server.c:412;walk@walk.c:8;walk@walk.c:9;walk@walk.c:8 = 10 1000 1 100
main@server.c:412;setup@server.c:20 = 1 3879731 1 3879731
END
printf 'struct account *a;\n\tif (!a) {\n' >account.c
yes '' | head -n 136 >>account.c
printf '%s\n' '    /* line 139 */' '    a = malloc(sizeof *a + MAX_BODY);' '    a->body = body_new(a);' \
    '}' >>account.c
python3 "$here/test/lib/make_pprof.py" hostile.pb <<'END' || fail "there is no profile"
types inuse_space/bytes
ma\x1b[31min@a\x0ab.c:1;x\xe2\x80\xaey@\xff.c:2 = 64 k\x07=v\xe2\x80\x8b
END
python3 "$here/test/lib/make_pprof.py" sampled.pb <<'END' || fail "there is no profile"
types inuse_objects/count inuse_space/bytes
period 524288
main@a.c:1;small@a.c:2 = 16777216 1073741824
main@a.c:1;large@a.c:3 = 10 104857600
END
python3 "$here/test/lib/make_pprof.py" empty.pb <<'END' || fail "there is no profile"
types inuse_objects/count inuse_space/bytes
END
utf8=LC_ALL=C.UTF-8

say The table, by itself and in its variants.
show $utf8 tally report server.pb
show $utf8 tally report --text -n 2 server.pb
show $utf8 tally report --top --cum --min=50% server.pb
show $utf8 tally report --by=lines --metric=alloc_objects -n 3 server.pb
show $utf8 tally report --by=files --unit=KiB server.pb
show $utf8 tally report --no-inlines --focus=cache server.pb
show $utf8 tally report --show-internal --show='malloc|body' server.pb
show tally report -n 1 server.pb

say Several profiles are added up.
show $utf8 tally report -n 1 server.pb server.pb

say Trees.
show $utf8 tally report --tree --focus=handle_request --min=10% server.pb
show tally report --tree --tagroot=thread --min=1% server.pb
show $utf8 tally report --tree --ascii -n 2 server.pb

say Callers and callees, lines, stacks, sites.
show $utf8 tally report --peek='^(account_load|walk)$' server.pb
show $utf8 tally report --list=account_load server.pb
show $utf8 tally report --list=login server.pb
show $utf8 tally report --traces -n 2 server.pb
show $utf8 tally report --sites -n 3 server.pb

say Which stacks.
show $utf8 tally report --thread=io-2 server.pb
show $utf8 tally report --size=100K: --by=lines server.pb
show $utf8 tally report --ignore=handle --hide=main server.pb
show $utf8 tally report --show-from=login --tree server.pb
show $utf8 tally report --focus='(?i)SETUP' server.pb
show $utf8 tally report --focus=nobody server.pb

say How long blocks lived, and which code keeps free space.
python3 "$here/test/lib/make_pprof.py" lives.pb <<'END' || fail "there is no profile"
types alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes slack_space/bytes pinned_space/bytes
main@a.c:1;parse@a.c:2 = 900 90000 0 0 0 0 lifetime=1/milliseconds
main@a.c:1;parse@a.c:2 = 80 8000 0 0 0 0 lifetime=60000/milliseconds
main@a.c:1;parse@a.c:2 = 20 2000 20 2240 240 40000
main@a.c:1;serve@a.c:7 = 50 5000 0 0 0 0 lifetime=3000/milliseconds
main@a.c:1;serve@a.c:7 = 100 10000 100 11200 1200 500
END
show $utf8 tally report --sites lives.pb
show $utf8 tally report --metric=alloc_space lives.pb
show $utf8 tally report --metric=alloc_space --lifetime=:10ms lives.pb
show $utf8 tally report --metric=alloc_space --lifetime=1s: lives.pb
show $utf8 tally report --metric=slack_space lives.pb
show tally report --lifetime=10ms lives.pb

say Estimates say how far off they may be.
show $utf8 tally report sampled.pb
show $utf8 tally report --metric=inuse_objects sampled.pb

say A moment behind the end is the end, and that is said.
python3 "$here/test/lib/make_tally.py" run.tally end sampled.pb server.pb || fail "there is no recording"
show $utf8 tally report -n 1 --at=99s run.tally
show $utf8 tally report -n 1 run.tally@1s

say The whole name of a function means that function, a part of names every one that has it.
python3 "$here/test/lib/make_pprof.py" names.pb <<'END' || fail "there is no profile"
types inuse_objects/count inuse_space/bytes
_start@s.c:1;__libc_start_main_impl@libc.c:9;main@a.c:1;ns::remain(int)@a.c:7 = 1 4096
END
show $utf8 tally report --list=main names.pb
show $utf8 tally report --list='mai' names.pb
show $utf8 tally report --peek=ns::remain names.pb

say A frame without a name is a place in its module.
cat >anonymous.heap <<'END'
heap profile:      1:     4096 [     1:     4096] @ heap_v2/1
     1:     4096 [     1:     4096] @ 0x00401136

MAPPED_LIBRARIES:
00401000-00402000 r-xp 00001000 00:00 0 /nowhere/server
END
show $utf8 tally report anonymous.heap
show $utf8 tally report --by=addresses anonymous.heap

say Colours are for whoever asks.
show sh -c 'tally report --color=always -n 1 server.pb | head -n 1 | cat -v'
show sh -c 'tally report -n 1 server.pb | head -n 1 | cat -v'
show sh -c 'tally check --color=always --max-peak=1 --max-allocs=999999999 server.pb | cat -v'
show sh -c 'tally info --color=always server.pb | head -n 1 | cat -v'

say Names cannot steer the terminal.
show $utf8 tally report hostile.pb
show $utf8 tally report --traces hostile.pb

say Nothing was recorded.
show $utf8 tally report empty.pb
show $utf8 tally report --tree empty.pb

say A file instead of the screen, once.
show $utf8 tally report -n 1 -o out.txt server.pb
show cat out.txt
show $utf8 tally report -n 1 -o out.txt server.pb

say What cannot be done.
show tally report --metric=peak_space server.pb
show tally report --focus='(' server.pb
show tally report --list='[' server.pb
show tally report --top --tree server.pb
show tally report nowhere.pb
show tally report
