#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Random graphs of blocks, of which the program knows what is lost: sums are those of the program to the block, at any
# rate of sampling; places add up to the sums, and the one that holds most comes first.  With every allocation
# recorded each place has lost what it has lost.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../../lib/under_tally.sh"

need python3
"${CC:-cc}" -g -O1 -fno-omit-frame-pointer -fno-builtin -o "$scratch/graph" "$here/test/integration/program_graph.c" ||
    fail "program_graph.c does not compile"
prove_preload

python3 - "$build/tally" "$scratch" <<'END' || fail "what is lost is not what was found"
import os, re, subprocess, sys
tally, scratch = sys.argv[1:3]
env = {"PATH": os.environ["PATH"], "HOME": scratch, "LC_ALL": "C"}
faults = 0

def run(*words):
    return subprocess.run([tally, *words], env=env, cwd=scratch, text=True, capture_output=True).stdout

def check(what, got, wanted):
    global faults
    if got != wanted:
        print(f"{what}: {got} instead of {wanted}")
        faults += 1

def number(text):
    return int(text.replace(",", ""))

UNITS = {"B": 1, "KiB": 1024, "MiB": 1 << 20}
def size(text):
    amount, unit = text.split()
    return float(amount) * UNITS[unit]

# The sums of all stacks, in bytes.
def total(metric):
    return sum(int(line.rsplit(" ", 1)[1]) for line in run("export", "folded", "-m", metric, "g.tally").splitlines())

PLACE = re.compile(r"  (?:about )?([\d.]+ \w+)(?: and ([\d.]+ \w+) below,)? in ([\d,]+) blocks?: (\S+)")

def examine(seed, rate):
    for path in "g.tally", "truth":
        if os.path.exists(f"{scratch}/{path}"):
            os.remove(f"{scratch}/{path}")
    run("run", "--report=none", "--leaks", f"--rate={rate}", "-o", "g.tally", "./graph", str(seed), "truth")
    truth = [line.split() for line in open(f"{scratch}/truth")]
    counts = {words[0]: (int(words[1]), int(words[2])) for words in truth if len(words) == 3}
    lines = run("leak-check", "-n", "0", "g.tally").splitlines()
    found = {line.split()[0]: number(re.search(r"in ([\d,]+) block", line)[1]) for line in lines
             if line.startswith(("DEFINITE", "INDIRECT"))}
    what = f"seed {seed}, rate {rate}"
    check(f"{what}: definite", found.get("DEFINITE"), counts["definite"][0])
    check(f"{what}: indirect", found.get("INDIRECT"), counts["indirect"][0])
    places = [match.groups() for match in map(PLACE.match, lines) if match]
    check(f"{what}: blocks of all places", sum(number(place[2]) for place in places),
          counts["definite"][0] + counts["indirect"][0])
    held = [size(place[0]) + size(place[1] or "0 B") for place in places]
    check(f"{what}: order", all(a >= b - 2048 for a, b in zip(held, held[1:])), True)  # of rounded numbers
    objects = total("leak_objects"), total("leak_below_objects")
    check(f"{what}: stacks", objects, (counts["definite"][0] + counts["indirect"][0], counts["indirect"][0]))
    if rate == "exact":
        check(f"{what}: bytes", (total("leak_space"), total("leak_below_space")),
              (counts["definite"][1] + counts["indirect"][1], counts["indirect"][1]))
        direct = {place[3]: size(place[0]) for place in places}
        for _, site, _, lost in (words for words in truth if len(words) == 4):
            near = abs(direct.get(f"take_{site}", 0) - int(lost)) <= 1024
            check(f"{what}: {direct} beside {lost} of site {site}", near, True)

for seed in range(1, 5):
    for rate in "exact", "4K", "64K":
        examine(seed, rate)
sys.exit(faults > 0)
END
