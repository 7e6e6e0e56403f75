#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Configuration from the environment: what is not understood is one line on standard error, never
# more, and the program runs as if it had not been written. test_conf_secure.sh has what a set-uid
# program does.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

prove_preload

# says EXPECTED NAME=VALUE...: the program's standard error is exactly this text, its work is
# unharmed.
says() {
    expected=$1
    shift
    printf 'b\na\n' | under_tally "$@" sort >"$scratch/output" 2>"$scratch/errors" ||
        fail "$*: sort ended with status $?: $(head -n 3 "$scratch/errors")"
    [ "$(tr '\n' ' ' <"$scratch/output")" = 'a b ' ] ||
        fail "$*: sort printed: $(cat "$scratch/output")"
    if [ "$(cat "$scratch/errors")" != "$expected" ]; then
        echo "expected: $expected"
        echo "said:     $(head -n 5 "$scratch/errors")"
        fail "$*: not what standard error should have"
    fi
}

says ''
says '' TALLY_CONF=
says '' MALLOC_CONF= TALLY_CONF=,
says '' TALLY_CONF=narenas:2
says '' MALLOC_CONF=narenas:2 TALLY_CONF=narenas:1,
says "tally: unknown option 'no_such_key:17' in TALLY_CONF is ignored" TALLY_CONF=no_such_key:17
says "tally: unknown option 'no_such_key:17' in MALLOC_CONF is ignored" MALLOC_CONF=no_such_key:17
says "tally: unknown option 'no_such_key' in TALLY_CONF is ignored" TALLY_CONF=no_such_key
says "tally: unknown option 'no_such_key:1' in TALLY_CONF is ignored" \
    TALLY_CONF=narenas:2,no_such_key:1,narenas:1
says "tally: unknown option ':5' in TALLY_CONF is ignored" TALLY_CONF=:5
says "tally: unknown option 'a:1' in TALLY_CONF is ignored
tally: unknown option 'b:2' in TALLY_CONF is ignored" TALLY_CONF=a:1,b:2
says "tally: unknown option 'a:1' in MALLOC_CONF is ignored
tally: unknown option 'b:2' in TALLY_CONF is ignored" MALLOC_CONF=a:1 TALLY_CONF=b:2
says "tally: invalid value 'many' for option 'narenas' in TALLY_CONF is ignored" \
    TALLY_CONF=narenas:many
says "tally: invalid value '-1' for option 'narenas' in TALLY_CONF is ignored" TALLY_CONF=narenas:-1
says "tally: invalid value '99999999999999999999' for option 'narenas' in TALLY_CONF is ignored" \
    TALLY_CONF=narenas:99999999999999999999
says "tally: invalid value '' for option 'narenas' in TALLY_CONF is ignored" TALLY_CONF=narenas:
says "tally: invalid value '' for option 'narenas' in TALLY_CONF is ignored" TALLY_CONF=narenas
says "tally: unknown option '?[31m?:1' in TALLY_CONF is ignored" \
    TALLY_CONF="$(printf '\033[31m\001'):1"
says "tally: unknown option ' narenas:1' in TALLY_CONF is ignored; did you mean 'narenas'?" 'TALLY_CONF= narenas:1'
says "tally: unknown option 'a:1' in MALLOC_CONF is ignored
tally: unknown option 'b:2' in JE_MALLOC_CONF is ignored" MALLOC_CONF=a:1 JE_MALLOC_CONF=b:2
says '' MALLOC_CONF=hpa:true,prof_prefix:x,percpu_arena:percpu,metadata_thp:auto,lg_tcache_max:12
says "tally: option 'lg_chunk:22' in MALLOC_CONF has no effect" MALLOC_CONF=lg_chunk:22
says '' MIMALLOC_PURGE_DELAY=10 MIMALLOC_SHOW_ERRORS=1 TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=1000000
says "tally: variable MIMALLOC_USE_NUMA_NODES=2 has no effect" MIMALLOC_USE_NUMA_NODES=2
echo "warnings are exact"

# confirm_conf in whichever source: all of them are listed.
printf 'b\na\n' | under_tally MALLOC_CONF=narenas:2 TALLY_CONF=confirm_conf:true sort \
    >"$scratch/output" 2>"$scratch/errors" || fail "confirm_conf: status $?"
for line in 'tally: malloc_conf #4 (value of the environment variable MALLOC_CONF): "narenas:2"' \
    'tally: -- Set conf value: narenas:2' 'tally: -- Set conf value: confirm_conf:true'; do
    grep -qxF "$line" "$scratch/errors" || fail "confirm_conf: '$line' is missing"
done
echo "confirm_conf lists what is set"

under_tally MALLOC_CONF=abort_conf:true,a:1 TALLY_CONF=b:2 true 2>"$scratch/errors"
[ $? -eq 134 ] || fail "abort_conf: status is not that of SIGABRT"
[ "$(grep '^tally:' "$scratch/errors")" = "tally: unknown option 'a:1' in MALLOC_CONF is ignored
tally: unknown option 'b:2' in TALLY_CONF is ignored
tally: abort_conf:true, and the configuration has mistakes (see above)" ] ||
    fail "abort_conf: $(cat "$scratch/errors")"
under_tally MALLOC_CONF=abort_conf:true,redzone:true,experimental_some:1 true 2>"$scratch/errors" ||
    fail "abort_conf: ended for keys that are tolerated: $(cat "$scratch/errors")"
echo "abort_conf ends the program after all mistakes"

# The program's own variables and the string of the build. program_conf.c says how it is used.
compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
"$compiler" -O1 -fno-builtin -pthread -o "$scratch/linked" \
    "$here/test/integration/program_conf.c" "$library" -Wl,-rpath,"$build" ||
    fail "program_conf.c does not link with libtally.so"
"$compiler" -O1 -fno-builtin -pthread -static -o "$scratch/static" \
    "$here/test/integration/program_conf.c" "$build/libtally.a" ||
    fail "program_conf.c does not link with libtally.a"
"$compiler" -O1 -fno-builtin -pthread -DUSES_HEADERS -DTALLY_OVERRIDE=0 \
    -DTALLY_MALLOC_CONF='"zero:tru,zero:true"' -I"$here/src" -o "$scratch/built" "$here/test/integration/program_conf.c" \
    "$here"/src/opt/opt.c "$here"/src/opt/opt_sources.c "$here"/src/opt/opt_gperftools.c \
    "$here"/src/opt/opt_heapcheck.c "$here"/src/base/os_linux.c "$here"/src/base/os_confined.c \
    "$here"/src/base/os_shared.c "$here"/src/base/log.c "$here"/src/base/fmt.c \
    "$here"/src/base/nearest.c || fail "program_conf.c does not compile"
warning="tally: invalid value 'program' for option 'zero' in malloc_conf is ignored
tally: invalid value 'variable' for option 'zero' in TALLY_CONF is ignored
tally: invalid value 'harder' for option 'zero' in malloc_conf_2_conf_harder is ignored"
for program in linked static; do
    said=$(under_libc TALLY_CONF=zero:variable "$scratch/$program" 2>&1) ||
        fail "$program: status $?: $said"
    [ "$said" = "$warning" ] || fail "$program said: $said"
done
said=$(under_libc "$scratch/built" 2>&1) || fail "built: status $?: $said"
[ "$said" = "tally: invalid value 'tru' for option 'zero' in the build is ignored" ] ||
    fail "built said: $said"
echo "the program's variables and the build string are read"

# A long text: the sentence stays whole, only the quoted part is cut.
long=$(head -c 100000 /dev/zero | tr '\0' 'x')
printf 'b\na\n' | under_tally TALLY_CONF="$long:1" sort >"$scratch/output" 2>"$scratch/errors" ||
    fail "a long key: status $?"
[ "$(wc -l <"$scratch/errors")" -eq 1 ] || fail "a long key: $(wc -l <"$scratch/errors") lines"
grep -qE "^tally: unknown option 'x{20,}:1' in TALLY_CONF is ignored$" "$scratch/errors" ||
    fail "a long key: $(head -c 300 "$scratch/errors")"
echo "a long key is cut"
