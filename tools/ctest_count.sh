#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ctest_count.sh - run ctest with the given arguments, then print what was skipped and why, and the
# count alone on the last line.
#
# All this comes from ctest's own JUnit file and not from its text, in which the output of a failing
# test may say anything.  The exit status is ctest's.
junit=$(mktemp)
trap 'rm -f "$junit"' EXIT
ctest --no-tests=error --test-output-size-passed 1000000 --output-junit "$junit" "$@"
status=$?
python3 - "$junit" <<'EOF'
import re
import sys
import xml.etree.ElementTree as tree
try:
    suite = tree.parse(sys.argv[1]).getroot()
except tree.ParseError:
    sys.exit("ctest wrote no results")
count = {"run": 0, "fail": 0, "notrun": 0}
for case in suite.iter("testcase"):
    name, status = case.get("name"), case.get("status")
    skipped = case.find("skipped")
    # A program that is missing did not run either, but it is no skip.
    if status == "notrun" and skipped is not None and "SKIP" not in skipped.get("message", ""):
        status = "fail"
    count[status if status in count else "fail"] += 1
    output = case.findtext("system-out") or ""
    # A case of a program says why, and then its name; a script says why and ends.
    cases = re.findall(r"^ *skipped: (.*)\nskip (\w+)$", output, re.M)
    for reason, one in cases:
        print(f"skipped {name} {one}: {reason}")
    if status == "notrun" and not cases:
        reasons = re.findall(r"^skipped: (.*)$", output, re.M)
        print(f"skipped {name}: {'; '.join(reasons) or 'without a word'}")
print(f"{count['run']} passed, {count['fail']} failed, {count['notrun']} skipped")
EOF
exit $status
