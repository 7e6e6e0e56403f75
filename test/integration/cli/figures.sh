#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The figures of recorded runs hold: a peak is not below what was live, leaks not above it, estimates respect what
# was counted, every number is exact, has its margin or is unknown, and what is not recorded is said. The programs
# are small and differ in threads, sizes, lifetimes, rates and ends.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"
need python3

${CC:-cc} -g -O1 -fno-builtin -fno-omit-frame-pointer -pthread -I"$here/test/lib"  \
    -o figures "$here/test/integration/program_figures.c" || fail "cannot compile"
python=$(python3 -c 'import sys; print(sys.executable)')
"$python" "$here/test/integration/cli/check_figures.py" "$build/tally" "$work/figures" "$work" || fail "a figure does not hold"
