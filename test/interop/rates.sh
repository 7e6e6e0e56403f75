#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Profiles at rates of 1, 64 KiB and 512 KiB agree with what a program has allocated, as the readers show it.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need python3
compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
prove_preload
"$compiler" -O2 -g -fno-builtin -o "$scratch/program" "$here/test/interop/program_rates.c" ||
    fail "program_rates.c does not compile"
python3 -B "$here/test/interop/rates.py" "$scratch/program" "$library" "$scratch"
