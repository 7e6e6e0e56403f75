#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What a terminal changes: long reports go through a pager, and there are colours unless somebody objects.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

need python3
for i in 1 2 3 4 5 6; do
    echo "main;work;site$i ${i}00"
done >stacks.folded
cp "$here/test/integration/cli/on_terminal.py" .
mask 's/python3 on_terminal.py [0-9]*/TERMINAL/'
mask 's/^sh: .*not found/sh: not found/'
pager="TALLY_PAGER=sed s/^/paged:/"

say "The report has ten lines, the screen five and later fifty."
show "$pager" python3 on_terminal.py 5 tally report stacks.folded
show "PAGER=sed s/^/other:/" python3 on_terminal.py 5 tally report -n 4 stacks.folded
show "$pager" python3 on_terminal.py 50 tally report -n 1 stacks.folded
show "$pager" python3 on_terminal.py 5 tally --no-pager report -n 5 stacks.folded
show "$pager" tally report -n 1 stacks.folded
say A pager that there is not.
show TALLY_PAGER=/no/such/pager python3 on_terminal.py 3 tally report -n 1 stacks.folded
say Colours.
show sh -c "python3 on_terminal.py 50 tally doctor | grep memfd"
show NO_COLOR=1 sh -c "python3 on_terminal.py 50 tally doctor | grep memfd"
show NO_COLOR= sh -c "python3 on_terminal.py 50 tally --color=never doctor | grep memfd"
show TERM=dumb sh -c "python3 on_terminal.py 50 tally doctor | grep memfd"
show sh -c "NO_COLOR=1 tally doctor --color=always | grep memfd | cat -v"
