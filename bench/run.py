#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`make bench`: micro patterns and real programs over several allocators, in one table.

The runs of all allocators take turns within each round, so that a machine that becomes slower for
a minute becomes slower for all of them.  Of the times the minimum counts, of the peak resident
sizes the median.  Every run proves that the library is loaded: bench_micro looks into its own
memory map, and before each run of a real program a probe is started in the same way.

Nothing here passes or fails on a figure; the status is 1 only when a run crashed or hung.
"""
import os
import re
import statistics
import sys
import tempfile
from pathlib import Path

import benchlib
import programs

# name in the table, program and its arguments, further arguments with --quick
SMALL_2 = "least=4 most=32768 law=square slots=1024"  # as in glibc's own test of threads
ALLOC_TEST = "toggle=1 most=8192 law=inverse"
MICRO = (
    ("hello", "micro hello", ""),
    ("pair", "micro pair", "rounds=5"),
    ("burst-lifo-1k", "micro burst order=lifo", "rounds=5"),
    ("burst-fifo-1k", "micro burst order=fifo", "rounds=5"),
    ("burst-random-1k", "micro burst order=random", "rounds=5"),
    ("burst-random-100k", "micro burst order=random n=100000", "rounds=5"),
    ("churn-1k", "micro churn live=1000", "rounds=3"),
    ("churn-200k", "micro churn live=200000 steps=500000 repeat=1", "rounds=3"),
    ("mixed-1k", "threads replace slots=1000 most=16384 law=inverse", "rounds=10"),
    ("mixed-200k", "threads replace slots=200000 most=4096 law=inverse steps=400000 rounds=8",
     "rounds=2"),
    ("replace-1", "threads replace", "rounds=10"),
    ("replace-2", "threads replace threads=2", "rounds=10"),
    ("replace-sized-1", "threads replace free=sized", "rounds=10"),
    ("replace-sized-2", "threads replace threads=2 free=sized", "rounds=10"),
    ("glibc-thread-1", f"threads replace {SMALL_2}", "rounds=10"),
    ("glibc-thread-2", f"threads replace threads=2 {SMALL_2}", "rounds=10"),
    ("alloc-test-1k", f"threads replace slots=1024 {ALLOC_TEST}", "rounds=10"),
    ("alloc-test-200k", f"threads replace slots=200000 {ALLOC_TEST} steps=400000 rounds=8",
     "rounds=2"),
    ("sized-1500", "threads blocks least=1500 most=1500 free=sized", "rounds=10"),
    ("burst-8x16000-1", "threads blocks least=16000 most=16000 n=8", "rounds=10"),
    ("burst-8x16000-2", "threads blocks least=16000 most=16000 n=8 threads=2", "rounds=10"),
    ("pair-64k-1", "threads blocks least=65536 most=65536", "rounds=10"),
    ("pair-64k-2", "threads blocks least=65536 most=65536 threads=2", "rounds=10"),
    ("medium-pair-1", "threads blocks", "rounds=10"),
    ("medium-pair-2", "threads blocks threads=2", "rounds=10"),
    ("medium-burst-1", "threads blocks n=8", "rounds=10"),
    ("medium-burst-2", "threads blocks n=8 threads=2", "rounds=10"),
    ("cross-1", "threads cross pairs=1", "rounds=10"),
    ("cross-2", "threads cross pairs=2", "rounds=10"),
    ("cross-4", "threads cross pairs=4", "rounds=10"),
    ("xmalloc-1", "threads queue pairs=1", "rounds=10"),
    ("xmalloc-2", "threads queue pairs=2 least=8 most=2048 law=inverse", "rounds=10"),
    ("heirs", "threads heirs", "rounds=4"),
    ("usable", "micro usable", "rounds=5"),
    ("inplace", "micro inplace", "rounds=5"),
    ("realloc", "micro realloc", "rounds=3"),
    ("large", "micro large", ""),
    ("idle", "micro idle", ""),
    ("phase", "micro phase", ""),
)
SCALING = ("replace-2", "replace-sized-2", "glibc-thread-2", "burst-8x16000-2", "pair-64k-2",
           "medium-pair-2", "medium-burst-2")
PARALLEL = ("threads=2", "cross", "queue", "heirs", "idle")  # not pinned
FIELDS = ("ns", "cpu_ns", "cpu_ms", "wall_ms", "peak_kib", "rss_kib", "anon_kib", "after_rss_kib")


class Tools:
    """The programs every run needs, and the CPU for pinned ones."""

    def __init__(self, options):
        self.micro = benchlib.find_program(options, "bench_micro")
        self.threads = benchlib.find_program(options, "bench_threads")
        self.launcher = benchlib.find_program(options, "bench_launch")
        self.cpu = benchlib.bench_cpu()


def micro_runner(tools, arguments):
    """A function of an allocator and a round that runs the pattern once and returns its figures.

    Each round has a random sequence of its own, the same for all allocators: how well a heap packs
    large blocks is a matter of luck, and one sequence says little."""
    cpu = None if set(arguments) & set(PARALLEL) else tools.cpu
    program = {"micro": tools.micro, "threads": tools.threads}[arguments[0]]

    def run(allocator, number):
        command = [program, *arguments[1:], f"seed={number}"]
        process = benchlib.start(tools.launcher, allocator, command, cpu)
        figures = benchlib.parse_pairs(benchlib.finish(process))
        figures["cpu_ms"] = round(figures["user_ms"] + figures["sys_ms"], 1)
        figures["time"] = figures.get("ns")
        return figures

    return run


def program_runner(tools, job):
    """The same for a real program; its time is CPU time, or wall time if it is parallel."""
    cpu = None if job.parallel else tools.cpu

    def run(allocator, _number):
        benchlib.finish(benchlib.start(tools.launcher, allocator, [tools.micro, "hello"], cpu,
                                       job.launch_options))
        options = [*job.launch_options, "--stdout", os.devnull]
        process = benchlib.start(tools.launcher, allocator, job.argv, cpu, options)
        if job.client:
            try:
                job.client(lambda: process.poll() is None)
            except RuntimeError as error:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
                    raise benchlib.RunFailed(str(error)) from None
        figures = benchlib.parse_pairs(benchlib.finish(process))
        figures["cpu_ms"] = round(figures["user_ms"] + figures["sys_ms"], 1)
        figures["peak_kib"] = figures["maxrss_kib"]
        figures["time"] = 1e6 * figures["wall_ms" if job.parallel else "cpu_ms"]
        return figures

    return run


def collect_patterns(options, tools, directory):
    """(name, runner) of everything that shall run and can; the others are named with a reason."""
    chosen = []
    for name, command, quick in MICRO:
        if re.search(options.only, name):
            # Of an argument that is given twice the last counts.
            arguments = f"{command} {quick if options.quick else ''}".split()
            chosen.append((name, micro_runner(tools, arguments)))
    for name, prepare in programs.PROGRAMS.items():
        if not re.search(options.only, name):
            continue
        try:
            job = prepare(directory, 0.2 if options.quick else 1)
            chosen.append((name, program_runner(tools, job)))
        except programs.Absent as reason:
            print(f"{name} is skipped: {reason}.", file=sys.stderr)
    if not chosen:
        benchlib.stop(f"No pattern's name matches '{options.only}'.")
    return chosen


def measure(options, allocators, patterns):
    """All figures as {pattern: {allocator name: [figures of a round, ...]}}, and the failures."""
    results, failures = {}, {}
    progress = benchlib.Progress(options.rounds * len(patterns) * len(allocators))
    for pattern, run in patterns:
        results[pattern] = {allocator.name: [] for allocator in allocators}
        for number in range(options.rounds):
            first = number % len(allocators)  # Who comes first changes from round to round.
            for allocator in allocators[first:] + allocators[:first]:
                progress.step(pattern, f"{allocator.name}, round {number + 1}")
                try:
                    results[pattern][allocator.name].append(run(allocator, number))
                except benchlib.RunFailed as failure:
                    failures[(pattern, allocator.name)] = str(failure)
    progress.end()
    return results, failures


def summarize(results, failures):
    """(time, peak) by (pattern, allocator name); None where there is none or a round failed."""
    summary = {}
    for pattern, by_allocator in results.items():
        for name, rounds in by_allocator.items():
            time = peak = None
            if rounds and (pattern, name) not in failures:
                times = [figures["time"] for figures in rounds if figures["time"] is not None]
                time = min(times) if times else None
                peak = statistics.median(figures["peak_kib"] for figures in rounds)
            summary[pattern, name] = (time, peak)
    return summary


def best_of(summary, pattern, names, which):
    return min((summary[pattern, n][which] for n in names if summary[pattern, n][which]),
               default=None)


def format_time(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns:.1f} ns"


def mean_ratios(allocators, patterns, summary, timed_peers, lean_peers):
    """The geometric mean of each column, over the patterns in which nobody failed."""
    cells = []
    for allocator in allocators:
        means = []
        for which, peers in ((0, timed_peers), (1, lean_peers)):
            ratios = []
            for pattern, _ in patterns:
                values = [summary[pattern, a.name][which] for a in allocators]
                if all(values):
                    best = best_of(summary, pattern, peers, which)
                    ratios.append(summary[pattern, allocator.name][which] / best)
            means.append(f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-")
        cells.append("/".join(means))
    return cells


def print_ratios(allocators, patterns, summary, failures):
    """The table.  A cell is time/peak relative to the best peer; glibc's peak sets no standard,
    since an allocator without thread caches worth the name is always the leanest."""
    timed_peers = [a.name for a in allocators if not a.is_ours]
    lean_peers = [name for name in timed_peers if name != "glibc"] or timed_peers
    rows = []
    for pattern, _ in patterns:
        base = (best_of(summary, pattern, timed_peers, 0), best_of(summary, pattern, lean_peers, 1))
        row = [pattern,
               format_time(base[0]) if base[0] else "-",
               f"{base[1] / 1024:.1f} MiB" if base[1] else "-"]
        for allocator in allocators:
            ratios = [f"{value / best:.2f}" if value and best else "-"
                      for value, best in zip(summary[pattern, allocator.name], base)]
            failed = (pattern, allocator.name) in failures
            row.append("fail" if failed else "/".join(ratios))
        rows.append(row)
    rows.append(["geometric mean", "", ""] + mean_ratios(allocators, patterns, summary,
                                                         timed_peers, lean_peers))
    print("Each cell is time/peak RSS, relative to the best peer in time (minimum of the rounds)"
          "\nand to the leanest peer except glibc in memory (median).  Below 1 is better.  The means"
          "\nare of what every allocator could do.\n")
    benchlib.print_table(["pattern", "best time", "leanest"] + [a.name for a in allocators], rows)


def print_figures(allocators, results, summary):
    """What ratios do not show: the base size, the price of an idle thread, the throughput."""
    print()
    for allocator in allocators:
        name, parts = allocator.name, []
        if summary.get(("hello", name), (None, None))[1]:
            rss = statistics.median(f["rss_kib"] for f in results["hello"][name])
            parts.append(f"hello world {rss / 1024:.2f} MiB RSS")
        idle = results.get("idle", {})
        if idle.get(name) and idle.get("glibc"):
            anon, base = (statistics.median(f["anon_kib"] for f in idle[n])
                          for n in (name, "glibc"))
            parts.append(f"idle thread {(anon - base) / idle[name][0]['threads']:+.1f} KiB "
                         "against glibc's")
        if summary.get(("cross-1", name), (None, None))[0]:
            parts.append(f"producer/consumer {1e3 / summary['cross-1', name][0]:.1f} M blocks/s")
        if parts:
            print(f"{name}: {', '.join(parts)}")


def print_second_thread(allocators, patterns, summary):
    """How much faster two threads are that have nothing to do with each other; 2 is all there is."""
    rows = []
    for pattern, _ in patterns:
        alone = f"{pattern[:-2]}-1"
        if pattern in SCALING and alone in (name for name, _ in patterns):
            times = [(summary[alone, a.name][0], summary[pattern, a.name][0]) for a in allocators]
            rows.append([pattern[:-2]] + [f"{2 * one / two:.2f}" if one and two else "-"
                                          for one, two in times])
    if rows:
        print("\nTwo threads, as a multiple of one:\n")
        benchlib.print_table(["pattern"] + [a.name for a in allocators], rows)


def csv_rows(results):
    for pattern, by_allocator in results.items():
        for name, rounds in by_allocator.items():
            for number, figures in enumerate(rounds, 1):
                yield [pattern, name, number] + [figures.get(field, "") for field in FIELDS]


def main():
    parser = benchlib.arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="PATTERN",
                        help="patterns whose name matches this expression")
    parser.add_argument("--rounds", type=int, default=None, help="default 5, with --quick 2")
    parser.add_argument("--quick", action="store_true", help="less work, rougher figures")
    parser.add_argument("--out", default=os.path.join(benchlib.BENCH, "results"), metavar="DIR",
                        help="where the CSV goes (default: bench/results)")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    allocators = benchlib.find_allocators(options)
    tools = Tools(options)
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        patterns = collect_patterns(options, tools, Path(directory))
        results, failures = measure(options, allocators, patterns)
    summary = summarize(results, failures)
    print_ratios(allocators, patterns, summary, failures)
    print_second_thread(allocators, patterns, summary)
    print_figures(allocators, results, summary)
    for (pattern, name), failure in failures.items():
        print(f"failed: {pattern} under {name}: {failure}", file=sys.stderr)
    only = re.sub(r"[^A-Za-z0-9]+", "-", options.only).strip("-")
    what = "-".join(filter(None, ["bench", only, "quick" if options.quick else ""]))
    benchlib.write_csv(benchlib.dated_path(options.out, what), benchlib.host_facts(allocators),
                       ["pattern", "allocator", "round", *FIELDS], csv_rows(results))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
