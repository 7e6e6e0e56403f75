#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The CPU profile of a program whose functions use 70, 20 and 10 % of its time is right within 3 points in `tally
# report`, in pprof, in Go, and in google-pprof: as `tally run --cpu` records it and exports it, and as the
# library writes it for `tally start --cpu` in a process that runs.  So it is by threads.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"
# shellcheck source=test/interop/go.sh
. "$here/test/interop/go.sh"

compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
[ -x "$build/tally" ] || fail "$build/tally does not exist: build it"
name=shares_$$ # The same test may run elsewhere.
program=$scratch/$name
"$compiler" -O1 -g -fno-omit-frame-pointer -fno-builtin -pthread -o "$program" \
    "$here/test/interop/program_shares.c" || fail "program_shares.c does not compile"
cd "$scratch" || exit 1

# as_tally WORD...: prints into $scratch/printed, without the margins behind figures, which are columns of their own.
as_tally() {
    under_libc "$build/tally" "$@" >"$scratch/whole" 2>"$scratch/errors" ||
        fail "tally $*: status $?: $(cat "$scratch/errors")"
    sed 's/ +-[0-9.]*%//g' "$scratch/whole" >"$scratch/printed"
}

# near SHARE FOUND: fails unless the found percentage, with or without %, is within 3 points.
near() {
    [ -n "$2" ] || fail "$reader: no row of $1 in: $(cat "$scratch/printed")"
    awk -v a="$1" -v b="${2%\%}" 'BEGIN { exit !(a - b <= 3 && b - a <= 3) }' ||
        fail "$reader: $2 and not $1 %: $(cat "$scratch/printed")"
}

# shares_are COLUMN NAME-COLUMN: the three percentages in what was printed.
shares_are() {
    for row in 70:seventy 20:twenty 10:ten; do
        near "${row%:*}" "$(awk -v name="${row#*:}" -v at="$1" -v where="$2" \
            '$where == name { print $at; exit }' "$scratch/printed")"
    done
}

# samples_between LEAST MOST: of what `tally report` printed last with --metric=samples.  None counts twice.
samples_between() {
    found=$(awk 'NR == 1 { gsub(/,/, "", $2); print $2 }' "$scratch/printed")
    [ "$found" -ge "$1" ] && [ "$found" -le "$2" ] ||
        fail "$reader: $found samples, not $1 to $2: $(cat "$scratch/printed")"
}

read_everywhere() { # PB PROF
    reader="tally report $1"
    as_tally report -n 0 --metric=samples --unit=B "$1"
    shares_are 4 5
    reader="tally report $2"
    as_tally report -n 0 --metric=samples "$2"
    shares_are 4 5
    if has_go_pprof; then
        reader="go tool pprof $1"
        under_libc GOPATH="$scratch/go" go tool pprof -top -nodefraction=0 "$program" "$1" \
            >"$scratch/printed" 2>"$scratch/errors" || fail "$reader: $(cat "$scratch/errors")"
        shares_are 5 6
        reader="go tool pprof $2"
        under_libc GOPATH="$scratch/go" go tool pprof -top -nodefraction=0 "$program" "$2" \
            >"$scratch/printed" 2>"$scratch/errors" || fail "$reader: $(cat "$scratch/errors")"
        shares_are 5 6
    else
        echo "not compared with pprof: this machine has no go with it"
    fi
    if command -v google-pprof >/dev/null; then
        reader="google-pprof $2"
        under_libc google-pprof --text "$program" "$2" >"$scratch/printed" 2>"$scratch/errors" ||
            fail "$reader: $(cat "$scratch/errors")"
        shares_are 5 6
    else
        echo "not compared with google-pprof: there is none"
    fi
}

# Where the kernel's clock stands still for a while, as on a machine that shares its processors, time goes by
# that no signal told of.  The profile says that samples were lost, and one that does is made once more.
# whole COMMAND...: the command makes a profile and says whether it is whole.
whole() {
    rounds=0
    until "$@"; do
        rounds=$((rounds + 1))
        [ $rounds -lt 30 ] || fail "samples are lost again and again: $*"
    done
}

# record FILE WORD...: a recording.
record() {
    rm -f "$1"
    as_tally run --cpu=200 --report=none -o "$@"
    ! under_libc "$build/tally" info "$1" | grep -q '^  time .* [1-9][0-9,]* lost'
}

# A recorded run.
whole record run.tally "$program" alone 4
reader="tally report run.tally"
as_tally report -n 0 --metric=samples run.tally
samples_between 700 900
shares_are 4 5
as_tally export pprof --metric=cpu -o run.pb.gz run.tally
as_tally export gperftools-cpu --metric=cpu -o run.prof run.tally
read_everywhere run.pb.gz run.prof
as_tally export folded --metric=cpu run.tally
grep -q 'main;seventy;compute [0-9]*$' "$scratch/printed" || fail "folded: $(cat "$scratch/printed")"

# By threads, with memory beside it.
whole record threads.tally --rate=exact "$program" threads 4
reader="tally report --threads"
as_tally report --threads threads.tally
for row in 70:seventy 20:twenty 10:ten; do
    near "${row%:*}" "$(awk -v name="${row#*:}" '$NF == name { print $3 }' "$scratch/printed")"
    awk -v name="${row#*:}" '$NF == name && $4 > 0 { found = 1 } END { exit !found }' \
        "$scratch/printed" || fail "nothing was allocated by ${row#*:}: $(cat "$scratch/printed")"
done

# A process that runs, which the library writes files of.
mkfifo ask
exec 5<>ask
record_live() {
    rm -f answers live.pb.gz live.prof other.tally
    "$build/tally" -qq run --report=none --rate=prod -o other.tally "$program" asked 4 \
        <ask >answers &
    runner=$!
    trap 'kill $runner 2>/dev/null; rm -rf "$scratch"' EXIT
    until_so sh -c "'$build/tally' ps --format=names | grep -qx $name"
    as_tally start --cpu=200 "$name"
    printf x >&5
    until_so grep -q "^done" answers
    as_tally stop --kind=cpu "$name"
    as_tally dump --kind=cpu --no-names -o live.pb.gz "$name"
    as_tally dump --kind=cpu -o live.prof "$name"
    printf x >&5
    wait $runner || fail "the program ended with status $?"
    trap 'rm -rf "$scratch"' EXIT
    ! gzip -dc live.pb.gz | grep -aq 'samples were lost'
}
whole record_live
read_everywhere live.pb.gz live.prof
