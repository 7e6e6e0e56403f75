#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The library as an archive: one forgotten symbol would make the linker pull in libc's malloc
# beside ours, and the program would have two heaps without a word. The link is tried in every
# form that people use; then libc's malloc must not be in the program, the program must work, and
# a double free must be reported by us.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

compiler=${CC:-cc}
archive=$build/libtally.a
source=$here/test/integration/program_static.c
exports=$here/test/golden/exports.txt
command -v "$compiler" >/dev/null || skip "there is no C compiler"
[ -f "$archive" ] || fail "$archive does not exist: build it, or say where it is in BUILD"
echo 'int main(void) { return 0; }' >"$scratch/empty.c"
"$compiler" -static -o "$scratch/empty" "$scratch/empty.c" 2>/dev/null ||
    skip "there is no static libc"

# try NAME LINK-WORDS...: links, looks inside, runs.
try() {
    name=$1
    shift
    program=$scratch/program
    "$compiler" -O1 -g -fno-builtin -pthread "$@" -o "$program" 2>"$scratch/link" || {
        cat "$scratch/link"
        fail "$name: it does not link"
    }
    if nm "$program" | grep -wE '_int_malloc|ptmalloc_init|malloc_consolidate'; then
        fail "$name: libc's malloc was linked too"
    fi
    under_libc "$program" >"$scratch/output" 2>&1 ||
        fail "$name: status $?: $(cat "$scratch/output")"
    grep -q '^works' "$scratch/output" || fail "$name: it printed: $(cat "$scratch/output")"
    { under_libc "$program" twice >"$scratch/output" 2>&1; } 2>/dev/null
    status=$?
    [ $status -eq 134 ] || fail "$name: a double free ends with status $status, not by SIGABRT"
    grep -qE "^tally: free\\(0x[0-9a-f]+\\): the [0-9]+-byte object is already free$" \
        "$scratch/output" ||
        fail "$name: a double free says: $(cat "$scratch/output")"
    echo "$name: works"
}

try "-static" -static "$source" "$archive"
try "-static-pie" -static-pie -fPIE "$source" "$archive"
try "-static, whole archive" -static "$source" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive
try "-static, archive first" -static -Wl,-u,malloc "$archive" "$source"

# Every exported function as the first call of a static process. Symbols are looked up in a table
# made from the list of exports, because there is no loader to ask. dlopen is not in the archive.
grep -v '^dlopen$' "$exports" >"$scratch/exports"
exports=$scratch/exports
{
    sed 's/.*/extern char symbol_&[] __asm__("&");/' "$exports"
    echo '#include <string.h>'
    echo 'void *look_up_static(const char *name) {'
    sed 's/.*/    if (strcmp(name, "&") == 0) return symbol_&;/' "$exports"
    echo '    return NULL;'
    echo '}'
} >"$scratch/table.c"
for form in -static -static-pie; do
    "$compiler" $form -fPIE -O1 -g -fno-builtin -pthread -I"$here/include" -I"$here/test/lib" \
        -o "$scratch/program" "$here/test/integration/test_first_call.c" "$here/test/lib/test.c" \
        "$scratch/table.c" "$archive" 2>"$scratch/link" || {
        cat "$scratch/link"
        fail "$form: test_first_call.c does not link"
    }
    while read -r name; do
        under_libc "$scratch/program" --first "$name" >"$scratch/output" 2>&1 ||
            fail "$form: $name as the first call: status $?: $(head -n 3 "$scratch/output")"
    done <"$exports"
    echo "$form: each of $(wc -l <"$exports") functions may be the first call"
done

# The archive in a program that is otherwise dynamic.
"$compiler" -O1 -g -fno-builtin -pthread -o "$scratch/program" "$source" "$archive" ||
    fail "dynamic program: it does not link"
under_libc "$scratch/program" | grep -q '^works' || fail "dynamic program: it does not work"
{ under_libc "$scratch/program" twice 2>&1; } 2>/dev/null | grep -q '^tally: free(' ||
    fail "dynamic program: not our free"
echo "dynamic program with the archive: works"
