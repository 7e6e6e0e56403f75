#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Compares what the command prints with a file beside the test. A test is a list of command lines:
#
#     . "$(dirname -- "$0")/../../lib/golden.sh"
#     show tally --version
#     show NO_COLOR=1 tally report --top "$profiles/small.heap"
#
# Of each it prints the line, what came on standard output, what came on standard error behind "! ", and
# an exit status other than 0; at the end all of it must be the text of <test>.out. To write that file anew:
#
#     GOLDEN=rewrite BUILD=build bash test/integration/cli/args.sh
#
# Functions
#   show [NAME=VALUE ...] COMMAND ...   runs a command in an empty environment, in an empty directory
#   say TEXT ...                        a line of explanation
#   mask 'sed script'                   what to replace in all later output, such as ids and times
# Everything of under_tally.sh is there, too. Variables: work, the directory that commands run in;
# golden_cleanup, a function that the end calls in any case.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../../lib/under_tally.sh"

golden=${0%.sh}.out
work=$scratch/work
masks=$scratch/masks
golden=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)/$(basename -- "$golden")
mkdir "$work"
: >"$masks"
[ -x "$build/tally" ] || fail "$build/tally does not exist: build it, or say where it is in BUILD"
cd "$work" || exit 1
exec 3>&1 >"$scratch/got" 2>&1

mask() {
    printf '%s\n' "$1" >>"$masks"
}

say() {
    printf '# %s\n' "$*"
}

show() {
    printf '$ %s\n' "$*" | sed -f "$masks"
    status=0
    under_libc PATH="$build:$test_search_path" "$@" \
        >"$scratch/stdout" 2>"$scratch/stderr" </dev/null || status=$?
    sed -f "$masks" "$scratch/stdout"
    sed -f "$masks" -e 's/^/! /' "$scratch/stderr"
    [ $status -eq 0 ] || echo "exit status $status"
}

compare_golden() {
    status=$?
    exec >&3 2>&1
    [ -z "${golden_cleanup:-}" ] || $golden_cleanup >/dev/null 2>&1
    if [ $status -ne 0 ]; then
        cat "$scratch/got"
    elif [ "${GOLDEN:-}" = rewrite ]; then
        cp "$scratch/got" "$golden"
        echo "wrote $golden"
    elif ! diff -u "$golden" "$scratch/got"; then
        echo "FAILED: the output is not that of $golden; with GOLDEN=rewrite it is written anew"
        status=1
    fi
    rm -rf "$scratch"
    exit $status
}
trap compare_golden EXIT
