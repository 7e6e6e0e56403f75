#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures that docs/reliability.md promises, measured side by side with other allocators.

A gate has a name, a limit that counts for tally, and a function of (tools, allocator, options)
that measures it once.  Gates of memory and time run bench_gates, a program that is not linked with
tally; gates of survival run the stress tests with the other allocator preloaded in front, and give
a word instead of a number.  Of several rounds the least counts for times, the median for the rest.

Nothing here passes or fails on a figure: the column `within` says what tally's figure is worth, and
the status is 1 only when a run of tally itself went wrong.
"""
import os
import re
import statistics
import subprocess
import sys
from typing import Callable, NamedTuple, Union

import benchlib


class Gate(NamedTuple):
    name: str
    unit: str
    limit: Union[float, str, None]  # a figure, the word it must be, or None: nothing is promised
    measure: Callable
    above_glibc: bool = False  # the figure is what is added to glibc's
    best: Callable = statistics.median


class Tools:
    """The programs a gate may need."""

    def __init__(self, options):
        self.gates = benchlib.find_program(options, "bench_gates")
        self.launcher = benchlib.find_program(options, "bench_launch")
        self.tests = os.path.join(options.build, "test")


def run_gates(tools, allocator, *arguments):
    """The key=value pairs that bench_gates prints under an allocator."""
    process = benchlib.start(tools.launcher, allocator, [tools.gates, *arguments])
    return benchlib.parse_pairs(benchlib.finish(process))


def kib_per_thread(tools, allocator, options):
    threads = 10000 if options.full else 4000
    return run_gates(tools, allocator, "live", f"threads={threads}")["kib_per_thread"]


def churn_growth(at_once):
    def measure(tools, allocator, options):
        threads = 100000 if options.full else 10000
        figures = run_gates(tools, allocator, "churn", f"threads={threads}", f"at_once={at_once}")
        return figures["growth_kib"]
    return measure


def fork_time(threads, work=0):
    def measure(tools, allocator, _options):
        return run_gates(tools, allocator, "fork", f"threads={threads}", f"work={work}")["fork_us"]
    return measure


def handlers_time(threads):
    """fork() without what the kernel does; libc's own part, a few us, is in it."""
    def measure(tools, allocator, _options):
        figures = run_gates(tools, allocator, "fork", f"threads={threads}", "work=1")
        return figures["fork_us"] - figures["clone_us"]
    return measure


def first_call_in_child(tools, allocator, _options):
    return run_gates(tools, allocator, "fork", "threads=1000", "work=1")["child_us"]


def dirty_in_child(tools, allocator, _options):
    return run_gates(tools, allocator, "dirty")["dirty_kib"]


def survival(program, test):
    """A word for how a stress test ends with the allocator in front of tally."""
    def measure(tools, allocator, _options):
        environment = benchlib.clean_environment()
        environment["LD_PRELOAD"] = allocator.path
        done = subprocess.run([os.path.join(tools.tests, program), test], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=benchlib.TIMEOUT_SECONDS, check=False)
        if done.returncode == 0:
            return "ok"
        return "hangs" if "it hangs" in done.stdout else "dies"
    return measure


# Added fork latency: 50 us, and 1 us more for every 100 threads; that the kernel copies page tables
# for what threads have cached is not in it, and shown beside.  Growth over create/join: nothing
# per thread; 256 KiB for what happens once, such as the first thread that ends on another CPU.
GATES = (
    Gate("live thread with one 1,000-byte block", "KiB", 12, kib_per_thread),
    Gate("growth over create/join, one at a time", "KiB", 256, churn_growth(1)),
    Gate("growth over create/join, four at once", "KiB", 256, churn_growth(4)),
    Gate("fork added to glibc, no thread", "us", 50, fork_time(0), True, min),
    Gate("fork added to glibc, 100 threads", "us", 51, fork_time(100), True, min),
    Gate("fork added to glibc, 1,000 threads", "us", 60, fork_time(1000), True, min),
    Gate("the same, threads with full caches", "us", None, fork_time(1000, 1), True, min),
    Gate("fork less the kernel's part, 1,000 threads", "us", 60, handlers_time(1000), False, min),
    Gate("first malloc in the child, 1,000 threads", "us", 50, first_call_in_child, False, min),
    Gate("pages copied by a child of 20 calls", "KiB", 256, dirty_in_child),
    Gate("fork, getline and fflush(NULL) together", "", "ok",
         survival("stress_fork_stdio", "threads_that_fork_read_and_flush_do_not_hang")),
    Gate("300 forks beside 4 allocating threads", "", "ok",
         survival("stress_fork_storm", "children_of_fork_beside_allocating_threads_use_the_heap")),
    Gate("100 bare clones beside 4 allocating threads", "", "ok",
         survival("stress_fork_storm", "children_of_clone_beside_allocating_threads_use_the_heap")),
)


def combine(gate, values):
    """One value of several rounds.  Of words the worst, with how often."""
    bad = [value for value in values if isinstance(value, str) and value != "ok"]
    if bad:
        return f"{bad[0]} {len(bad)}/{len(values)}"
    if isinstance(values[0], str):
        return values[0]
    return gate.best(values)


def measure_all(options, gates, allocators):
    """value by (gate, allocator) and every single one as rows for the CSV."""
    tools = Tools(options)
    progress = benchlib.Progress(options.rounds * len(gates) * len(allocators))
    values, rows, failed = {}, [], False
    for gate in gates:
        for number in range(options.rounds):
            for allocator in allocators:
                progress.step(gate.name, allocator.name)
                try:
                    value = gate.measure(tools, allocator, options)
                except (benchlib.RunFailed, KeyError, subprocess.TimeoutExpired) as failure:
                    print(f"{gate.name}, {allocator.name}: {failure}", file=sys.stderr)
                    failed = failed or allocator.is_ours
                    value = "fails"
                values.setdefault((gate.name, allocator.name), []).append(value)
                rows.append([gate.name, gate.unit, allocator.name, number + 1, value])
    progress.end()
    by_name = {gate.name: gate for gate in gates}
    return {key: combine(by_name[key[0]], all_values) for key, all_values in values.items()}, \
        rows, failed


def figure(gate, results, name):
    """What the table shows: the value, or what it adds to glibc's."""
    value, base = results[(gate.name, name)], results.get((gate.name, "glibc"))
    if gate.above_glibc and not isinstance(value, str) and not isinstance(base, (str, type(None))):
        return value - base
    return value


def within(gate, value):
    if gate.limit is None:
        return "-"
    if isinstance(value, str) or isinstance(gate.limit, str):
        return "yes" if value == gate.limit else "NO"
    return "yes" if value <= gate.limit else "NO"


def print_results(gates, allocators, results):
    ours = [a.name for a in allocators if a.is_ours]
    header = ["gate", "unit", "limit"] + [a.name for a in allocators] + \
        [f"{name} within" for name in ours]
    rows = []
    for gate in gates:
        shown = {a.name: figure(gate, results, a.name) for a in allocators}
        limit = "-" if gate.limit is None else str(gate.limit)
        rows.append([gate.name, gate.unit, limit]
                    + [value if isinstance(value, str) else f"{value:.1f}"
                       for value in shown.values()]
                    + [within(gate, shown[name]) for name in ours])
    benchlib.print_table(header, rows)
    if any(gate.above_glibc for gate in gates):
        print("\nFigures that are added to glibc's are 0 for glibc; the CSV has the whole times.")


def main():
    parser = benchlib.arguments(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often each gate is measured")
    parser.add_argument("--full", action="store_true", help="10,000 live threads, 100,000 in turn")
    parser.add_argument("--only", metavar="WORDS", help="gates whose name matches this expression")
    parser.add_argument("--out", default=os.path.join(benchlib.BENCH, "results"), metavar="DIR")
    options = parser.parse_args()
    gates = [gate for gate in GATES if not options.only or re.search(options.only, gate.name)]
    if not gates:
        benchlib.stop(f"no gate matches '{options.only}'.")
    allocators = benchlib.find_allocators(options)
    results, rows, failed = measure_all(options, gates, allocators)
    print_results(gates, allocators, results)
    benchlib.write_csv(benchlib.dated_path(options.out, "gates"), benchlib.host_facts(allocators),
                       ["gate", "unit", "allocator", "round", "value"], rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
