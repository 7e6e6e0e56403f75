#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figures that are neither time per pair nor peak memory, side by side for several allocators.

    bench/figures.py [--part lines|memory|start|latency] [--only WORDS] [NAME=LIBRARY ...]

lines    where the blocks of threads that pass nothing to each other lie (bench_lines.c)
memory   what stays resident, at once, after idling, after a trim (bench_memory.c)
start    what a process and a fork cost (bench_start.c)
latency  how long single calls take in storms (bench_latency.c)

A row is one figure of one command.  Several rows may read the same command, which then runs once per
round.  Allocators take turns in each round.  Of times the least of the rounds counts (so of the longest
call: what happens in every round), of the rest the median.
"""
import os
import re
import statistics
import sys
from typing import NamedTuple

import benchlib


class Row(NamedTuple):
    part: str
    name: str
    unit: str
    command: str  # program without bench_, and its arguments
    key: str
    least: bool = False  # of the rounds; else the median


def line_rows():
    for threads in (1, 2, 8):
        command = f"lines threads={threads}"
        yield Row("lines", f"lines of a thread's 1,024 blocks, {threads} threads", "", command,
                  "lines")
        if threads > 1:
            yield Row("lines", f"of these shared with another, {threads} threads", "%", command,
                      "shared")


def memory_rows():
    for size in (64, 1024, 4096, 10000, 16384, 32768):
        for when, words in (("idle", "3 s later"), ("trim", "after a trim")):
            yield Row("memory", f"a tenth of {size:,} B kept, {words}", "RSS/live",
                      f"memory tenth size={size}", f"{when}_ratio")
    yield Row("memory", "300 MiB of 1,000 B after 400 of 4 KiB", "MiB", "memory migrate", "now")
    for when, words in (("now", "at once"), ("idle", "2 s later"), ("trim", "after a trim")):
        yield Row("memory", f"100 sleeping threads, {words}", "MiB",
                  "memory sleepers idle_ms=2000", when)
    for when, words in (("idle", "3 s later"), ("trim", "after a trim")):
        yield Row("memory", f"saw-tooth of 500 MiB, {words}", "MiB", "memory saw", when)
    yield Row("memory", "phase change, 2 s later", "KiB", "micro phase idle_ms=2000", "rss_kib")
    yield Row("memory", "calloc of 3 GiB after free", "ms", "memory calloc", "ms", True)
    yield Row("memory", "the same, resident", "MiB", "memory calloc", "now")
    yield Row("memory", "RLIMIT_AS of 400 MiB, round 1", "MiB", "memory limit", "first")
    yield Row("memory", "RLIMIT_AS of 400 MiB, round 6", "MiB", "memory limit", "last")
    yield Row("memory", "blocks of 2.2 MB under 3,000 MiB", "MiB",
              "memory limit mib=3000 least=2200000 most=2300000 rounds=1", "first")


def start_rows():
    yield Row("start", "/bin/true, CPU", "us", "start true", "us", True)
    yield Row("start", "/bin/true, page faults", "", "start true", "faults")
    yield Row("start", "fork and exit, page faults", "", "start fork", "faults")
    yield Row("start", "fork, 64 blocks, exit", "", "start fork", "working_faults")
    yield Row("start", "hello, resident", "KiB", "micro hello", "rss_kib")


def latency_rows(mib):
    storms = (("growth", "growth", "malloc"), ("shrink", "freed at random", "malloc free"),
              ("purge", "freed in order", "free"),
              ("purge least=32768 most=1048576", "32 KiB..1 MiB freed in order", "malloc free"),
              ("trim", "beside trims", "malloc free"),
              ("trim least=64 most=128", "beside trims of one class", "malloc free"))
    for arguments, words, calls in storms:
        for call in calls.split():
            for key, name in (("p50", "median"), ("p999", "99.9 %"), ("max", "longest")):
                yield Row("latency", f"{words}: {call}, {name}", "us",
                          f"latency {arguments} mib={mib}", f"{call}_{key}", True)


def run_command(options, launcher, allocator, command):
    program, *arguments = command.split()
    path = benchlib.find_program(options, f"bench_{program}")
    if command == "start true":  # must not be under the allocator itself: it is not what is counted
        bare = benchlib.Allocator("none", "")
        process = benchlib.start(launcher, bare, [path, *arguments, f"preload={allocator.path}"])
    else:
        process = benchlib.start(launcher, allocator, [path, *arguments])
    return benchlib.parse_pairs(benchlib.finish(process))


def measure(options, rows, allocators):
    """Every figure as {row: {allocator name: [a figure per round]}}, and the failures."""
    launcher = benchlib.find_program(options, "bench_launch")
    commands = list(dict.fromkeys(row.command for row in rows))
    progress = benchlib.Progress(options.rounds * len(commands) * len(allocators))
    values, failures = {row: {a.name: [] for a in allocators} for row in rows}, {}
    for command in commands:
        for number in range(options.rounds):
            first = number % len(allocators)
            for allocator in allocators[first:] + allocators[:first]:
                progress.step(command, f"{allocator.name}, round {number + 1}")
                try:
                    pairs = run_command(options, launcher, allocator, command)
                except benchlib.RunFailed as failure:
                    failures[command, allocator.name] = str(failure)
                    continue
                for row in rows:
                    if row.command == command and row.key in pairs:
                        values[row][allocator.name].append(pairs[row.key])
    progress.end()
    return values, failures


def shown(row, values):
    if not values:
        return "-"
    value = min(values) if row.least else statistics.median(values)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def main():
    parser = benchlib.arguments(__doc__.splitlines()[0])
    parser.add_argument("--part", default="", help="lines, memory, start or latency; default all")
    parser.add_argument("--only", default="", metavar="WORDS",
                        help="rows whose name matches this expression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=1024, help="size of the storms")
    parser.add_argument("--out", default=os.path.join(benchlib.BENCH, "results"), metavar="DIR")
    options = parser.parse_args()
    rows = [row for row in (*line_rows(), *memory_rows(), *start_rows(),
                            *latency_rows(options.mib))
            if options.part in ("", row.part) and re.search(options.only, row.name)]
    if not rows:
        benchlib.stop("No figure has such a name, or there is no such part.")
    allocators = benchlib.find_allocators(options)
    values, failures = measure(options, rows, allocators)
    names = [a.name for a in allocators]
    benchlib.print_table(["figure", "unit", *names],
                         [[row.name, row.unit] + [shown(row, values[row][n]) for n in names]
                          for row in rows])
    for (command, name), failure in failures.items():
        print(f"failed: {command} under {name}: {failure}", file=sys.stderr)
    what = "-".join(filter(None, ["figures", options.part]))
    benchlib.write_csv(benchlib.dated_path(options.out, what), benchlib.host_facts(allocators),
                       ["figure", "unit", "command", "allocator", "round", "value"],
                       [[row.name, row.unit, row.command, name, number, value]
                        for row in rows for name in names
                        for number, value in enumerate(values[row][name], 1)])
    return 1 if any(name.startswith("tally") for _, name in failures) else 0


if __name__ == "__main__":
    sys.exit(main())
