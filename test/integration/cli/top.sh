#!/bin/bash
# SPDX-License-Identifier: MIT
#
# `tally top` gives the terminal back on every way out.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

need python3
${CC:-cc} "-I$here/src" -o "$scratch/fake" "$here/test/integration/cli/program_fake_target.c" \
    "$here/src/contract/wire.c" || fail "cannot compile the fake target"
mkdir -m 700 "$scratch/run"
python3 "$here/test/integration/cli/drive_top.py" "$build/tally" "$scratch/fake" "$scratch/run" ||
    fail "top was left badly"
