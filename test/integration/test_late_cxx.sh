#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A C program without the C++ runtime opens a C++ plugin when it already runs. The library's
# operator new has found no runtime at its start and must find the plugin's: to throw bad_alloc,
# and to call the new-handler. Both are compiled here, because the program must not be linked to a
# C++ runtime.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

c_compiler=${CC:-cc}
cxx_compiler=${CXX:-c++}
command -v "$c_compiler" >/dev/null || skip "there is no C compiler"
command -v "$cxx_compiler" >/dev/null || skip "there is no C++ compiler"
prove_preload

"$c_compiler" -O1 -g -o "$scratch/program" "$here/test/integration/program_late_host.c" -ldl ||
    fail "program_late_host.c does not compile"
"$cxx_compiler" -O1 -g -fno-builtin -fPIC -shared -o "$scratch/plugin.so" \
    "$here/test/integration/program_late_plugin.cc" ||
    fail "program_late_plugin.cc does not compile"

for binding in '' 1; do
    output=$(under_tally LD_BIND_NOW=$binding "$scratch/program" "$scratch/plugin.so" 2>&1) ||
        fail "LD_BIND_NOW=$binding: the program ended with status $?: $output"
    [ "$output" = "all as the standard says" ] ||
        fail "LD_BIND_NOW=$binding: the program printed: $output"
done
echo "a C++ plugin of a C program has bad_alloc and its new-handler"
