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
says "tally: unknown option 'no_such_key' in TALLY_CONF is ignored" TALLY_CONF=no_such_key:17
says "tally: unknown option 'no_such_key' in MALLOC_CONF is ignored" MALLOC_CONF=no_such_key:17
says "tally: unknown option 'no_such_key' in TALLY_CONF is ignored" TALLY_CONF=no_such_key
says "tally: unknown option 'no_such_key' in TALLY_CONF is ignored" \
    TALLY_CONF=narenas:2,no_such_key:1,narenas:1
says "tally: unknown option '' in TALLY_CONF is ignored" TALLY_CONF=:5
says "tally: unknown option 'a' in TALLY_CONF is ignored
tally: unknown option 'b' in TALLY_CONF is ignored" TALLY_CONF=a:1,b:2
says "tally: unknown option 'a' in MALLOC_CONF is ignored
tally: unknown option 'b' in TALLY_CONF is ignored" MALLOC_CONF=a:1 TALLY_CONF=b:2
says "tally: invalid value 'many' for option 'narenas' in TALLY_CONF is ignored" \
    TALLY_CONF=narenas:many
says "tally: invalid value '-1' for option 'narenas' in TALLY_CONF is ignored" TALLY_CONF=narenas:-1
says "tally: invalid value '99999999999999999999' for option 'narenas' in TALLY_CONF is ignored" \
    TALLY_CONF=narenas:99999999999999999999
says "tally: invalid value '' for option 'narenas' in TALLY_CONF is ignored" TALLY_CONF=narenas:
says "tally: invalid value '' for option 'narenas' in TALLY_CONF is ignored" TALLY_CONF=narenas
says "tally: unknown option '?[31m?' in TALLY_CONF is ignored" \
    TALLY_CONF="$(printf '\033[31m\001'):1"
says "tally: unknown option ' narenas' in TALLY_CONF is ignored" 'TALLY_CONF= narenas:1'
echo "warnings are exact"

# A long text: the sentence stays whole, only the quoted part is cut.
long=$(head -c 100000 /dev/zero | tr '\0' 'x')
printf 'b\na\n' | under_tally TALLY_CONF="$long:1" sort >"$scratch/output" 2>"$scratch/errors" ||
    fail "a long key: status $?"
[ "$(wc -l <"$scratch/errors")" -eq 1 ] || fail "a long key: $(wc -l <"$scratch/errors") lines"
grep -qE "^tally: unknown option 'x{20,}' in TALLY_CONF is ignored$" "$scratch/errors" ||
    fail "a long key: $(head -c 300 "$scratch/errors")"
echo "a long key is cut"
