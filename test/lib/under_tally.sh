#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs a program under the library and proves that it did. Two ways to use it:
#
#     BUILD=build test/lib/under_tally.sh sqlite3 :memory: 'select 1'      as a command
#     . test/lib/under_tally.sh                                            as functions
#
# The library is preloaded by `env` in front of the program alone, never exported: a shell or a
# `diff` that ran under it too could have its own crash scored as the program's. The environment
# starts empty, so that no MALLOC_CONF, TALLY_CONF, GLIBC_TUNABLES or MALLOC_* of the caller
# reaches the program; what a test wants is passed as NAME=VALUE words in front of the command.
#
# The loader skips a preload that it cannot map, says so on a line nobody reads, and the program
# runs on libc. Therefore a probe started the same way looks into its own memory map before
# anything else, and a program that can be held open is looked at itself: `mapped_in PID`.
#
# Functions
#   under_tally [NAME=VALUE ...] COMMAND ...   the command under the library
#   under_libc  [NAME=VALUE ...] COMMAND ...   the same environment without the library
#   start_under_tally, start_under_libc        in the background; the process id is in $started
#   run_held INPUT OUTPUT COMMAND ...          under the library, seen with it, then fed the input
#   prove_preload                              ends the test unless the probe sees the library
#   mapped_in PID                              true when the process has mapped the library
#   wait_until_mapped PID                      ends the test unless the process maps the library
#   quiet FILE                                 ends the test if the library wrote into the file
#   same_output WHAT FILE FILE                 ends the test unless the two files are equal
#   until_so COMMAND ...                       waits until it succeeds; ends the test if it never does
#   need PROGRAM                               ends the test as skipped unless it is installed
#   skip SENTENCE, fail SENTENCE               end the test with 77, with 1
# Variables
#   library      the absolute path of libtally.so, from BUILD (default: build/ beside test/)
#   scratch      an empty directory of this test, removed at exit
#   patience     after so many seconds something hangs; never how fast it is, since a machine may be busy
#   held_check   a function that run_held calls with the process id before it opens the gate

set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
while [ "$here" != / ] && [ ! -f "$here/test/lib/under_tally.sh" ]; do
    here=$(dirname -- "$here")
done
build=${BUILD:-$here/build}
build=$(CDPATH='' cd -- "$build" 2>/dev/null && pwd -P) || build=${BUILD:-$here/build}
library=$build/libtally.so
scratch=$(mktemp -d "${TMPDIR:-/tmp}/tally-test.XXXXXX") || exit 1
test_search_path=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
patience=600
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

skip() {
    echo "skipped: $*"
    exit 77
}

fail() {
    echo "FAILED: $*"
    exit 1
}

under_libc() {
    env -i PATH="$test_search_path" HOME="$scratch" TMPDIR="$scratch" LC_ALL=C "$@"
}

under_tally() {
    under_libc LD_PRELOAD="$library" "$@"
}

prove_preload() {
    [ -f "$library" ] || fail "$library does not exist: build it, or say where it is in BUILD"
    under_tally grep -q "$library" /proc/self/maps ||
        fail "a probe started under $library does not have it in its memory map"
}

mapped_in() {
    grep -q "$library" "/proc/$1/maps" 2>/dev/null
}

# The process id is the program's own, because the subshell becomes it. Standard input is passed
# on explicitly: a shell gives background commands an empty one.
start_under_libc() {
    {
        (exec env -i PATH="$test_search_path" HOME="$scratch" TMPDIR="$scratch" LC_ALL=C \
            "$@" <&8 8<&- 9>&-) &
    } 8<&0
    started=$!
}

start_under_tally() {
    start_under_libc LD_PRELOAD="$library" "$@"
}

until_so() {
    tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt $((patience * 20)) ] || fail "it does not come to: $*"
        sleep 0.05
    done
}

# Between fork and the end of the loader's work the map is not complete yet, so this looks again.
mapped_or_gone() {
    mapped_in "$1" || ! kill -0 "$1" 2>/dev/null
}

wait_until_mapped() {
    until_so mapped_or_gone "$1"
    mapped_in "$1" || fail "process $1 ended before it was seen to have the library"
}

# The program waits for its input behind a gate, which opens when the program was seen with the
# library.
run_held() {
    held_input=$1
    held_output=$2
    shift 2
    rm -f "$scratch/gate"
    mkfifo "$scratch/gate"
    exec 9<>"$scratch/gate"
    start_under_tally "$@" <"$scratch/gate" >"$held_output" 2>"$held_output.errors"
    wait_until_mapped "$started"
    [ -z "${held_check:-}" ] || $held_check "$started"
    cat "$held_input" >&9
    exec 9>&-
    wait "$started" || fail "$1 ended with status $?: $(head -n 3 "$held_output.errors")"
    quiet "$held_output.errors"
}

quiet() {
    if grep '^tally:' "$1"; then
        fail "the library had something to say"
    fi
}

# link_profiled_program FILE: test/integration/program_profiled.c, linked to the library.
link_profiled_program() {
    command -v "${CC:-cc}" >/dev/null || skip "there is no C compiler"
    [ -f "$library" ] || fail "$library does not exist: build it, or say where it is in BUILD"
    "${CC:-cc}" -O1 -g -fno-omit-frame-pointer -fno-builtin -I"$here/include" \
        -I"$here/include/compat" -o "$1" "$here/test/integration/program_profiled.c" -L"$build" \
        -ltally -Wl,-rpath,"$build" || fail "program_profiled.c does not link"
}

need() {
    PATH=$test_search_path command -v "$1" >/dev/null 2>&1 || skip "$1 is not installed"
}

same_output() {
    if ! diff "$2" "$3" >"$scratch/difference"; then
        head -n 20 "$scratch/difference"
        fail "$1: the output under the library differs from the output under libc"
    fi
}

if [ "${0##*/}" = under_tally.sh ]; then
    [ $# -gt 0 ] || fail "usage: under_tally.sh [NAME=VALUE ...] COMMAND ..."
    prove_preload
    under_tally "$@"
fi
