#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A program opens the library when it already runs, allocates from it beside libc's heap, and
# closes it. The program is compiled here, because it must not be linked to the library. Python's
# ctypes, the way most people would try this, follows where there is one.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
[ -f "$library" ] || fail "$library does not exist: build it, or say where it is in BUILD"

"$compiler" -O1 -g -fno-builtin -pthread -o "$scratch/program" \
    "$here/test/integration/program_dlopen.c" -ldl ||
    fail "program_dlopen.c does not compile"
output=$(under_libc "$scratch/program" "$library") ||
    fail "the program ended with status $?: $output"
[ "$output" = opened ] || fail "the program printed: $output"

# Lazy and immediate binding resolve the library's own references at different times.
output=$(under_libc LD_BIND_NOW=1 "$scratch/program" "$library") ||
    fail "with LD_BIND_NOW=1: status $?: $output"

if [ -x /usr/bin/python3 ]; then
    under_libc /usr/bin/python3 - "$library" <<'PYTHON' || fail "opening it by ctypes"
import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
library.malloc_usable_size.restype = ctypes.c_size_t
library.malloc_usable_size.argtypes = [ctypes.c_void_p]
blocks = [library.malloc(size) for size in range(1, 3000)]
for size, block in enumerate(blocks, 1):
    assert library.malloc_usable_size(block) >= size
    ctypes.memset(block, 1, size)
for block in blocks:
    library.free(block)
PYTHON
fi
echo "the library was opened and closed in a running program"
