#!/bin/sh
# SPDX-License-Identifier: MIT
#
# flamegraph.pl sees our total in folded stacks.  FLAMEGRAPH says where it is; else it is looked for along
# the PATH and where Debian's ruby-stackprof has it.

# shellcheck source=test/interop/exported.sh
. "$(dirname -- "$0")/exported.sh"

need perl
script=${FLAMEGRAPH:-$(PATH=$test_search_path command -v flamegraph.pl)}
for one in /usr/lib/*/rubygems-integration/*/gems/stackprof-*/vendor/FlameGraph/flamegraph.pl; do
    [ -n "$script" ] || [ ! -f "$one" ] || script=$one
done
[ -n "$script" ] || skip "flamegraph.pl is not installed"

exported hostile hostile.folded
under_libc perl "$script" "$exported/hostile.folded" >"$exported/flames.svg" \
    2>"$scratch/errors" || fail "flamegraph.pl: status $?: $(cat "$scratch/errors")"
[ ! -s "$scratch/errors" ] || fail "flamegraph.pl complains: $(cat "$scratch/errors")"
found=$(sed -n 's/.*<title>all (\([0-9,]*\) samples, 100%).*/\1/p' "$exported/flames.svg")
same "the total" "$(echo "$found" | tr -d ,)" "$(truth inuse_space)"
grep -q '<title>plain_function (' "$exported/flames.svg" || fail "plain_function is missing"
