#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The tables of docs/manual/options.md are those of src/opt/options.def. With --update they are
# written anew:
#
#     BUILD=build test/integration/test_manual_options.sh --update

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

page=$here/docs/manual/options.md
begin='<!-- From src/opt/options.def, by test/integration/test_manual_options.sh --update. -->'
end='<!-- End of the tables. -->'

[ -x "$build/print_options" ] || fail "$build/print_options does not exist: build it first"
"$build/print_options" >"$scratch/tables" || fail "print_options ended with status $?"
[ "$(wc -l <"$scratch/tables")" -gt 100 ] || fail "print_options prints too little"
grep -qxF "$begin" "$page" || fail "$page lacks the line: $begin"
grep -qxF "$end" "$page" || fail "$page lacks the line: $end"

awk -v begin="$begin" -v end="$end" -v tables="$scratch/tables" '
    $0 == end { skip = 0 }
    !skip { print }
    $0 == begin {
        skip = 1
        print ""
        while ((getline line < tables) > 0) { print line }
    }' "$page" >"$scratch/page"

if [ "${1:-}" = --update ]; then
    cp "$scratch/page" "$page"
    exit 0
fi
diff "$page" "$scratch/page" >"$scratch/difference" && {
    echo "the tables are fresh"
    exit 0
}
head -n 20 "$scratch/difference"
fail "docs/manual/options.md is stale: run test/integration/test_manual_options.sh --update"
