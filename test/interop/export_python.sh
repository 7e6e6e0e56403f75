#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Parsers that are not ours read JSON, CSV, SVG and speedscope's format and find our totals; and what
# is read back by the command itself is the same again.

# shellcheck source=test/interop/exported.sh
. "$(dirname -- "$0")/exported.sh"

need python3
for ending in json speedscope.json csv svg folded; do
    exported hostile hostile.$ending
done
python3 "$here/test/interop/check_exports.py" "$exported" "$profiles/hostile.truth" ||
    fail "check_exports.py: see above"

# Round trips: formats that the command reads, through each of them and back to a proto.
for ending in pb.gz heap hprof folded; do
    exported hostile again.$ending
    tally export json -o "$exported/again.$ending.json" "$exported/again.$ending" \
        >"$scratch/said" 2>&1 || fail "$ending is not read back: $(cat "$scratch/said")"
    found=$(python3 -c '
import json, sys
file = json.load(open(sys.argv[1]))
print(next(t["total"] for t in file["types"] if t["name"] == file["default_type"]))
' "$exported/again.$ending.json")
    same "the total of $ending, read back" "$found" "$(truth inuse_space)"
done

# Nothing is replaced unless somebody says so, and a bad word is a usage error.
tally export json -o "$exported/hostile.json" "$profiles/hostile.pb.gz" >"$scratch/said" 2>&1 &&
    fail "a file was replaced"
tally export json --overwrite -o "$exported/hostile.json" "$profiles/hostile.pb.gz" \
    >"$scratch/said" 2>&1 || fail "--overwrite: $(cat "$scratch/said")"
tally export nonsense "$profiles/hostile.pb.gz" >"$scratch/said" 2>&1
same "the status of an unknown format" $? 2
echo "no profile" >"$scratch/text"
tally export json "$scratch/text" >"$scratch/printed" 2>"$scratch/said"
same "the status of a file that is no profile" $? 4
same "the sentences about it" "$(wc -l <"$scratch/said")" 1
tally export gperftools-cpu "$profiles/hostile.pb.gz" >"$scratch/printed" 2>"$scratch/said"
same "the status of a heap profile as CPU profile" $? 4
