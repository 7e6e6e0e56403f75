#!/bin/sh
# SPDX-License-Identifier: MIT
#
# graphviz draws our call graph, whatever the names are; without graphviz the command says so.

# shellcheck source=test/interop/exported.sh
. "$(dirname -- "$0")/exported.sh"

exported hostile hostile.dot --min=0% -n 0
if [ ! -x /usr/bin/dot ] && [ ! -x /usr/local/bin/dot ] && [ ! -x /bin/dot ]; then
    tally export -o "$exported/a.pdf" "$profiles/hostile.pb.gz" >"$scratch/said" 2>&1
    same "the status without graphviz" $? 127
    grep -q '^tally: .*graphviz is not installed' "$scratch/said" || fail "$(cat "$scratch/said")"
    same "the number of its sentences" "$(wc -l <"$scratch/said")" 1
    [ ! -e "$exported/a.pdf" ] || fail "there is a file without a picture"
    skip "graphviz is not installed; that this is said was tested"
fi

need dot
under_libc dot -Tsvg "$exported/hostile.dot" >"$exported/drawn.svg" 2>"$scratch/errors" ||
    fail "dot: status $?: $(cat "$scratch/errors")"
grep -iq 'syntax\|error' "$scratch/errors" && fail "dot complains: $(cat "$scratch/errors")"
grep -qF "= $(truth inuse_space) bytes" "$exported/drawn.svg" || fail "the total is missing"
# A box each: ten hostile functions, main, its helper and three in between; and the legend.
same "the number of boxes" "$(grep -c 'class="node"' "$exported/drawn.svg")" 16
grep -q '<script' "$exported/drawn.svg" && fail "a name became a script"

for kind in svg pdf png; do
    tally export graph-$kind -o "$exported/graph.$kind" "$profiles/hostile.pb.gz" \
        >"$scratch/said" 2>&1 || fail "graph-$kind: status $?: $(cat "$scratch/said")"
done
grep -q '</svg>' "$exported/graph.svg" || fail "this is no SVG"
same "the beginning of the PDF" "$(head -c 5 "$exported/graph.pdf")" "%PDF-"
same "the beginning of the PNG" "$(head -c 4 "$exported/graph.png" | tail -c 3)" "PNG"
