#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A core file is smaller than twice the memory of the program that left it: reserved addresses are
# not in it. Its length counts, holes included, since that is what people copy.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

heap_mib=50
compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
case $(cat /proc/sys/kernel/core_pattern) in
'|'* | */* | '') skip "core files do not go into the working directory (kernel.core_pattern)" ;;
esac
(ulimit -c unlimited) 2>/dev/null || skip "core files are not allowed here (ulimit -c)"
prove_preload
"$compiler" -O1 -g -fno-builtin -o "$scratch/program" \
    -I "$here/test/lib" "$here/test/integration/program_locked.c" || fail "program_locked.c does not compile"

mkdir "$scratch/cores"
(
    ulimit -c unlimited
    cd "$scratch/cores" && under_tally "$scratch/program" core $heap_mib >"$scratch/output"
) 2>/dev/null
status=$?
[ $status -eq 134 ] || fail "status $status, not by SIGABRT: $(cat "$scratch/output")"
resident=$(tail -n 1 "$scratch/output")
[ "$resident" -ge $heap_mib ] || fail "only $resident MiB were resident"
set -- "$scratch"/cores/*
[ -f "$1" ] || fail "there is no core file"
bytes=$(stat -c %s "$1")
echo "$resident MiB resident, core file $((bytes / 1048576)) MiB"
[ "$bytes" -lt $((2 * resident * 1048576)) ] || fail "the core file is too large"
[ "$bytes" -ge $((heap_mib * 1048576)) ] || fail "the heap is not in the core file"
