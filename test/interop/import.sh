#!/bin/sh
# SPDX-License-Identifier: MIT
#
# import.sh - `tally info` and `tally import` see in files of jemalloc, gperftools and this library the totals
# that jeprof, google-pprof and pprof see, to the unit.
#
# Each part needs a writer and a reader; one without them is left out and named, and the test counts as
# skipped only when nothing was compared.

# shellcheck source=test/interop/profiles.sh
. "$(dirname -- "$0")/profiles.sh"
# shellcheck source=test/interop/go.sh
. "$here/test/interop/go.sh"

tally=$build/tally
[ -x "$tally" ] || skip "the command was not built"
need python3
perl=$(command -v perl) || skip "there is no perl"
has_pprof=no
if has_go_pprof; then
    has_pprof=yes
else
    echo "not compared: there is no pprof of go"
fi
compared=0

# The work that is profiled: strings of all sizes, half of which stay.
work='my @a; for my $r (1..6) { push @a, "x" x ($_ % 5000) for 1..20000; @a = @a[0..9999]; }'

# library NAME: its path, or nothing.
library() {
    for place in /usr/lib/*/"$1" /usr/lib/"$1" /usr/lib64/"$1"; do
        if [ -e "$place" ]; then
            echo "$place"
            return
        fi
    done
}

# ours METRIC FILE: the total that tally has.
ours() {
    under_libc "$tally" info --format=json "$2" >"$scratch/info" 2>"$scratch/errors" ||
        fail "tally info $2: status $?: $(cat "$scratch/errors")"
    python3 -c '
import json, sys
for metric in json.load(open(sys.argv[1]))["profile"]["metrics"]:
    if metric["name"] == sys.argv[2]:
        print(metric["total"])' "$scratch/info" "$1"
}

# same_as READER FILE METRIC ...: tally has the reader's totals.
same_as() {
    reader=$1
    file=$2
    shift 2
    command -v "$reader" >/dev/null || {
        echo "not compared: there is no $reader"
        return
    }
    for metric in "$@"; do
        expected=$(ours "$metric" "$file")
        [ -n "$expected" ] || fail "$file: tally has no $metric"
        [ "$expected" -gt 0 ] || fail "$file: $metric is $expected, which proves nothing"
        if [ "$metric" = samples ]; then
            total "$expected" "$reader" --text --addresses "$perl" "$file"
        else
            total "$expected" "$reader" --text --show_bytes --addresses "--$metric" "$perl" "$file"
        fi
        compared=$((compared + 1))
    done
}

# imported FILE METRIC ...: profile.proto made of the file has the same totals, and pprof sees them.
imported() {
    file=$1
    shift
    under_libc "$tally" import -o "$scratch/imported.pb.gz" --overwrite "$file" 2>"$scratch/errors" ||
        fail "tally import $file: status $?: $(cat "$scratch/errors")"
    rm -f "$scratch/raw"
    if [ $has_pprof = yes ]; then
        under_libc GOPATH="$scratch/go" go tool pprof -raw -symbolize=none \
            "$scratch/imported.pb.gz" >"$scratch/raw" 2>"$scratch/errors" ||
            fail "$file: pprof does not read what became of it: $(cat "$scratch/errors")"
    fi
    for metric in "$@"; do
        expected=$(ours "$metric" "$file")
        found=$(ours "$metric" "$scratch/imported.pb.gz")
        [ "$found" = "$expected" ] || fail "$file: $metric is $expected, imported $found"
        compared=$((compared + 1))
        if [ -e "$scratch/raw" ]; then
            found=$(python3 "$here/test/interop/raw_total.py" "$metric" <"$scratch/raw")
            [ "$found" = "$expected" ] || fail "$file: $metric is $expected, pprof has $found"
            compared=$((compared + 1))
        fi
    done
}

heap="inuse_space inuse_objects alloc_space alloc_objects"

# Files of this library, sampled and not.
# shellcheck disable=SC2086
same_as jeprof "$profiles/before.heap" $heap
# shellcheck disable=SC2086
same_as google-pprof "$profiles/before.hprof" $heap
same_as jeprof "$profiles/after.hprof" inuse_space
# shellcheck disable=SC2086
imported "$profiles/before.pb.gz" $heap
same_as jeprof "$profiles/sampled.heap" inuse_space inuse_objects

# The same of a real program, with every allocation.
prove_preload
under_tally MALLOC_CONF="prof:true,lg_prof_sample:0,prof_final:true,prof_accum:true,prof_prefix:$scratch/own" \
    "$perl" -e 'my @a = map { $_ x 3 } 1..3000;' >"$scratch/out" 2>&1 ||
    fail "perl under tally: $(cat "$scratch/out")"
for file in "$scratch"/own.*.heap; do
    # shellcheck disable=SC2086
    same_as jeprof "$file" $heap
done

# Files of jemalloc.
jemalloc=$(library libjemalloc.so.2)
if [ -n "$jemalloc" ]; then
    under_libc LD_PRELOAD="$jemalloc" MALLOC_CONF="prof:true,lg_prof_sample:14,prof_final:true,prof_accum:true,prof_prefix:$scratch/je" \
        "$perl" -e "$work" >"$scratch/out" 2>&1 || fail "perl under jemalloc: $(cat "$scratch/out")"
    for file in "$scratch"/je.*.heap; do
        if [ -e "$file" ]; then
            # shellcheck disable=SC2086
            same_as jeprof "$file" $heap
            # shellcheck disable=SC2086
            imported "$file" $heap
        else
            echo "not compared: this jemalloc has no profiler"
        fi
    done
else
    echo "not compared: there is no libjemalloc.so.2"
fi

# Files of gperftools: heap and CPU.
tcmalloc=$(library libtcmalloc.so.4)
if [ -n "$tcmalloc" ]; then
    under_libc LD_PRELOAD="$tcmalloc" HEAPPROFILE="$scratch/tc" HEAP_PROFILE_ALLOCATION_INTERVAL=100000000 \
        "$perl" -e "$work" >"$scratch/out" 2>&1 || fail "perl under tcmalloc: $(cat "$scratch/out")"
    file=$scratch/tc.0001.heap
    [ -e "$file" ] || fail "tcmalloc wrote no profile: $(cat "$scratch/out")"
    # shellcheck disable=SC2086
    same_as google-pprof "$file" $heap
    # shellcheck disable=SC2086
    imported "$file" $heap
else
    echo "not compared: there is no libtcmalloc.so.4"
fi
profiler=$(library libprofiler.so.0)
if [ -n "$profiler" ]; then
    under_libc LD_PRELOAD="$profiler" CPUPROFILE="$scratch/cpu.prof" CPUPROFILE_FREQUENCY=1000 \
        "$perl" -e "$work" >"$scratch/out" 2>&1 || fail "perl under profiler: $(cat "$scratch/out")"
    same_as google-pprof "$scratch/cpu.prof" samples
    imported "$scratch/cpu.prof" samples cpu
else
    echo "not compared: there is no libprofiler.so.0"
fi

[ $compared -gt 0 ] || skip "there is neither a writer nor a reader"
echo "$compared totals are equal"
