#!/bin/sh
# SPDX-License-Identifier: MIT
#
# docs/manual/ctl.md is what the library's tables say. With --update it is written anew:
#
#     BUILD=build test/integration/test_manual_ctl.sh --update

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

page=$here/docs/manual/ctl.md

[ -x "$build/print_ctl" ] || fail "$build/print_ctl does not exist: build it first"
"$build/print_ctl" >"$scratch/page" || fail "print_ctl ended with status $?"
[ "$(wc -l <"$scratch/page")" -gt 300 ] || fail "print_ctl prints too little"

if [ "${1:-}" = --update ]; then
    cp "$scratch/page" "$page"
    exit 0
fi
diff "$page" "$scratch/page" >"$scratch/difference" && {
    grep 'Names in' "$page"
    exit 0
}
head -n 20 "$scratch/difference"
fail "docs/manual/ctl.md is stale: run test/integration/test_manual_ctl.sh --update"
