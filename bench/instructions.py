#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Instructions per malloc+free pair, by allocator, counted by valgrind's cachegrind.

Counts are exact and repeatable, so this is the figure to compare on a noisy machine.  Of a pattern
four runs are counted: with the calls and without them (calls=0), each with few and with many
repeats.  The difference of many and few removes start-up and the first touch of memory; what the
calls add to that difference, divided by the additional pairs, is the figure:

    ((many - few) with calls  -  (many - few) without calls) / additional pairs

cachegrind, unlike memcheck, does not replace malloc; the library comes by LD_PRELOAD as usual.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

import benchlib

# name, program and its arguments, what is repeated, few and many repeats, pairs in one repeat
PATTERNS = (
    ("pair 64 B", "micro pair size=64", "repeat", 10_000, 110_000, 1),
    ("burst 1000 LIFO 64 B", "micro burst n=1000 order=lifo", "repeat", 20, 120, 1_000),
    ("burst 1000 random 64 B", "micro burst n=1000 order=random", "repeat", 20, 120, 1_000),
    ("burst 100000 random 64 B", "micro burst n=100000 order=random", "repeat", 2, 6, 100_000),
    ("churn 1000 live 8..1000 B", "micro churn live=1000", "repeat", 2, 6, 50_000),
    ("churn 200000 live 8..1000 B", "micro churn live=200000 steps=500000", "repeat", 1, 3,
     500_000),
    # The same never comes again, as it does in churn, and sizes span more classes.
    ("mixed 1000 live 8 B..16 KiB", "threads replace slots=1000 most=16384 law=inverse", "rounds",
     2, 6, 100_000),
    ("mixed 200000 live 8 B..4 KiB", "threads replace slots=200000 most=4096 law=inverse "
     "steps=500000", "rounds", 1, 3, 500_000),
    ("replace 5000 live 8..1000 B", "threads replace", "rounds", 2, 6, 100_000),
    ("replace 5000 live, sized delete", "threads replace free=sized", "rounds", 2, 6, 100_000),
    ("1500 B, sized delete", "threads blocks least=1500 most=1500 free=sized", "rounds", 2, 12,
     10_001),
    ("64 KiB pair", "threads blocks least=65536 most=65536", "rounds", 2, 12, 10_001),
    ("16000 B, burst of 8", "threads blocks least=16000 most=16000 n=8", "rounds", 2, 12, 17_784),
)


def count(program, allocator, arguments):
    """Instructions of one whole run of a program."""
    environment = benchlib.clean_environment(allocator)
    environment["LD_PRELOAD"] = allocator.path
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no",
               "--cachegrind-out-file=/dev/null", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"I +refs: +([0-9,]+)", done.stderr)
    if done.returncode != 0 or not found:
        own = [line for line in done.stderr.splitlines() if line and not line.startswith("==")]
        reason = (own or [f"status {done.returncode}"])[-1]
        raise benchlib.RunFailed(f"{allocator.name}, {' '.join(arguments)}: {reason}")
    return int(found.group(1).replace(",", ""))


def additional(programs, allocator, pattern, calls):
    """What the run with many repeats executes more than the one with few."""
    _, command, key, few, many, _ = pattern
    program, *arguments = command.split()
    few_count, many_count = (count(programs[program], allocator,
                                   [*arguments, f"calls={calls}", "rounds=1", f"{key}={repeat}"])
                             for repeat in (few, many))
    return many_count - few_count


def measure(options, programs, allocators):
    """Instructions per pair as {pattern name: {allocator name: figure or None}}, and failures."""
    figures, failures = {}, []
    patterns = [p for p in PATTERNS if options.only in p[0]]
    progress = benchlib.Progress(len(patterns) * len(allocators))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        pending = []
        for pattern in patterns:
            # Without calls no allocator is involved, so one run serves all of them.
            harness = pool.submit(additional, programs, allocators[0], pattern, 0)
            for allocator in allocators:
                run = pool.submit(additional, programs, allocator, pattern, 1)
                pending.append((pattern, allocator, harness, run))
        for pattern, allocator, harness, run in pending:
            progress.step(pattern[0], allocator.name)
            name, _, _, few, many, pairs = pattern
            try:
                figure = (run.result() - harness.result()) / ((many - few) * pairs)
            except benchlib.RunFailed as failure:
                figure = None
                failures.append(str(failure))
            figures.setdefault(name, {})[allocator.name] = figure
    progress.end()
    return figures, failures


def main():
    parser = benchlib.arguments(__doc__.splitlines()[0])
    parser.add_argument("--csv", metavar="FILE", help="write the table there as well")
    parser.add_argument("--only", default="", metavar="TEXT", help="patterns containing this")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1),
                        help="runs at the same time; counts do not depend on it")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        benchlib.stop("valgrind is not installed, and nothing else here counts instructions.")
    allocators = benchlib.find_allocators(options)
    programs = {name: benchlib.find_program(options, f"bench_{name}")
                for name in ("micro", "threads")}
    figures, failures = measure(options, programs, allocators)
    names = [a.name for a in allocators]
    print("Instructions per malloc+free pair, without the harness and without start-up.\n")
    benchlib.print_table(["pattern", *names], [
        [pattern] + ["fail" if row[n] is None else f"{row[n]:.1f}" for n in names]
        for pattern, row in figures.items()])
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    if options.csv:
        benchlib.write_csv(options.csv, benchlib.host_facts(allocators), ["pattern", *names], [
            [pattern] + ["" if row[n] is None else f"{row[n]:.2f}" for n in names]
            for pattern, row in figures.items()])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
