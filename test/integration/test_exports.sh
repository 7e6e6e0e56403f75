#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What the shared library shows to the loader: symbols, thread-local storage, dependencies, flags.
#
# The exported symbols are compared with test/golden/exports.txt, so that a helper function that
# leaks out, or an allocation function that is forgotten and would mix two heaps, changes a
# committed file. The other gates: thread-local storage fits into what a dlopened library may
# count on, and is reached without __tls_get_addr, which allocates; libc is the only dependency;
# dlclose never unmaps code that threads still need; the malloc family has no symbol version,
# because the loader looks it up with libc's.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

golden=$here/test/golden/exports.txt
table=$here/test/integration/test_first_call.c
header=$here/include/tally/tally.h
bad=0

complain() {
    echo "FAILED: $*"
    bad=1
}

for tool in readelf nm; do
    command -v $tool >/dev/null || skip "$tool is not installed"
done
[ -f "$library" ] || fail "$library does not exist: build it, or say where it is in BUILD"

# Names with versions, as name, name@VERSION or name@@VERSION; the version nodes themselves are
# absolute.
nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $3 }' |
    LC_ALL=C sort >"$scratch/versioned"
sed 's/@.*//' "$scratch/versioned" | LC_ALL=C sort -u >"$scratch/exports"
if ! diff "$golden" "$scratch/exports" >"$scratch/difference"; then
    sed -n -e 's/^</missing:   /p' -e 's/^>/unexpected:/p' "$scratch/difference"
    complain "the exported symbols are not those of test/golden/exports.txt"
fi

grep -v '^tally_' "$scratch/versioned" | grep '@' >"$scratch/with_version" &&
    complain "these must not have a version: $(tr '\n' ' ' <"$scratch/with_version")"

tls=$(readelf -lW "$library" | awk '$1 == "TLS" { print $6 }')
[ "$((${tls:-0}))" -le 128 ] || complain "thread-local storage is $((tls)) bytes, more than 128"

readelf -rW "$library" | grep -E 'DTPMOD|DTPOFF|DTPREL|TLSDESC' &&
    complain "there are relocations of the general-dynamic TLS model"
nm -D --undefined-only "$library" | grep -w __tls_get_addr && complain "__tls_get_addr is called"

readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$scratch/needed"
grep -vE '^(libc\.so\.6|ld-linux.*)$' "$scratch/needed" &&
    complain "a library besides libc is needed"
grep -q '^libc\.so\.6$' "$scratch/needed" || complain "libc.so.6 is not needed"

readelf -dW "$library" | grep 'FLAGS_1' | grep -q NODELETE ||
    complain "it is not linked with -z nodelete"
readelf -dW "$library" | grep 'SONAME' | grep -qF '[libtally.so.0]' ||
    complain "its soname is not libtally.so.0"
readelf -dW "$library" | grep TEXTREL && complain "it has text relocations"
readelf -lW "$library" | grep GNU_STACK | grep -q 'RWE' &&
    complain "it asks for an executable stack"
readelf -lW "$library" | grep -E 'LOAD .* RWE ' && complain "a segment is writable and executable"

# A call of the library that goes through the loader could end in another allocator, or in itself.
# Variables that the program may define or copy must be reached that way.
nm -D --defined-only "$library" | awk '$2 ~ /[TtWi]/ { print $3 }' | sed 's/@.*//' |
    LC_ALL=C sort -u >"$scratch/functions"
readelf -rW "$library" | awk 'NF >= 5 { print $5 }' | sed 's/@.*//' | LC_ALL=C sort -u |
    LC_ALL=C comm -12 - "$scratch/functions" >"$scratch/own_calls"
[ -s "$scratch/own_calls" ] &&
    complain "it calls itself through the loader: $(tr '\n' ' ' <"$scratch/own_calls")"

# Agents find the probes in notes.
readelf -n "$library" | awk '$1 == "Provider:" { provider = $2 } $1 == "Name:" { name = $2 }
    $1 == "Arguments:" { print provider ":" name, NF - 1 }' | LC_ALL=C sort | tr '\n' ',' |
    grep -qx 'otel_memory:alloc 3,otel_memory:free 1,' ||
    complain "the notes of the probes are not otel_memory:alloc and otel_memory:free"

while read -r name; do
    grep -qF "{\"$name\"," "$table" || complain "$name has no row in test_first_call.c"
    case $name in
        tally_*) grep -qw "$name" "$header" || complain "$name is not declared in tally.h" ;;
    esac
done <"$golden"

[ $bad -eq 0 ] || exit 1
echo "$(wc -l <"$golden") exported symbols, $((${tls:-0})) bytes of TLS, all gates hold"
