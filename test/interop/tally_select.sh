#!/bin/bash
# SPDX-License-Identifier: MIT
#
# --focus, --ignore, --hide, --show, --show-from, --tag, --tagroot, --tagleaf and --no-inlines leave of a
# profile what pprof's words of the same names leave: same functions, same flat, same cum.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"
# shellcheck source=test/interop/go.sh
. "$here/test/interop/go.sh"

need_go_pprof
need python3
[ -x "$build/tally" ] || fail "$build/tally does not exist: build it"

# Stacks of one-letter functions with recursion and labels, from a fixed seed.  make_random FILE JOINTS: the
# characters that join frames, + for a call that was inlined.
make_random() {
    python3 - "$2" <<'END' | python3 "$here/test/lib/make_pprof.py" "$scratch/$1" ||
import random, sys
chance = random.Random(12)
print("types inuse_objects/count inuse_space/bytes")
for number in range(300):
    stack = "root@root.c:1"
    for _ in range(chance.randint(1, 9)):
        letter = chance.choice("pqrstuvw")
        stack += chance.choice(sys.argv[1]) + f"{letter}@{letter}{letter}.c:{chance.randint(1, 3)}"
    label = f" color={chance.choice(['red', 'green', 'blue'])}" if chance.random() < 0.8 else ""
    print(f"{stack} = 1 {chance.randint(1, 10 ** 6)}{label}")
END
        fail "there is no profile"
}
make_random inlined.pb ';;;+'
make_random plain.pb ';'
file=$scratch/inlined.pb

# same_rows 'pprof options' 'tally options'
same_rows() {
    # shellcheck disable=SC2086
    under_libc GOPATH="$scratch/go" go tool pprof -top -unit=B -nodecount=10000 -nodefraction=0 \
        -edgefraction=0 $1 "$file" >"$scratch/printed" 2>"$scratch/errors" ||
        fail "pprof $1: status $?: $(cat "$scratch/errors")"
    awk '$2 ~ /[0-9]%/ && $5 ~ /%/ { sub(/B$/, "", $1); sub(/B$/, "", $4); print $6, $1, $4 }' \
        "$scratch/printed" | sort >"$scratch/theirs"
    # shellcheck disable=SC2086
    under_libc "$build/tally" report -n 0 --unit=B $2 "$file" >"$scratch/printed" ||
        fail "tally report $2: status $?"
    # The name stands before the place, which is last.
    awk '$2 == "B" { gsub(/,/, ""); print $(NF - 1), $1, $4 }' "$scratch/printed" | sort \
        >"$scratch/ours"
    [ -s "$scratch/theirs" ] || fail "pprof $1 shows nothing"
    diff "$scratch/theirs" "$scratch/ours" || fail "pprof $1 (<) and tally report $2 (>) differ"
}

same_rows "" ""
same_rows -focus=p --focus=p
same_rows -focus='tt.c' --focus='tt.c'
same_rows -ignore='^q|vv' --ignore='^q|vv'
same_rows -hide='q|r' --hide='q|r'
same_rows -show='q|r|s' --show='q|r|s'
same_rows "-focus=p -ignore=q -hide=r" "--focus=p --ignore=q --hide=r"
same_rows "-focus=u -hide=u" "--focus=u --hide=u"
same_rows -tagfocus=color=red --tag=color=red
same_rows "-tagroot=color -tagfocus=color" "--tagroot=color --tag=color"
same_rows "-tagroot=color -tagfocus=color -focus=green" "--tagroot=color --tag=color --focus=green"
same_rows "-tagleaf=color -tagfocus=color -hide=p" "--tagleaf=color --tag=color --hide=p"
same_rows -noinlines --no-inlines
same_rows "-noinlines -hide=v -focus=w" "--no-inlines --hide=v --focus=w"

# Of a match that was inlined pprof cuts the caller in lower locations, too, which its manual does not say.
file=$scratch/plain.pb
same_rows -show_from='^s$' --show-from='^s$'
same_rows "-show=[p-t] -hide=q -show_from=^t\$" "--show=[p-t] --hide=q --show-from=^t\$"
