# SPDX-License-Identifier: MIT
"""raw_total.py - the total of one metric in what `pprof -raw` prints.

    raw_total.py METRIC <TEXT

Rows look like "    4   64: 1 2", below a line of the types, "alloc_objects/count alloc_space/bytes[dflt]".
"""
import re
import sys

lines = iter(sys.stdin.read().splitlines())
for line in lines:
    if line == "Samples:":
        break
names = [word.split("/")[0] for word in next(lines, "").split()]
column = names.index(sys.argv[1])
total = 0
for line in lines:
    if line == "Locations":
        break
    row = re.match(r"\s*((?:-?\d+\s*)+):(?:\s|$)", line)
    if row:
        total += int(row.group(1).split()[column])
print(total)
