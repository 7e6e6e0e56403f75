#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How far the heap's locks let cores add up: measured visits and hold times, and a model.

    bench/scale.py [--cores 16,64,192] [--transfer NS] [--rebuild]

The library is built a second time, in build-visits, so that it counts its locks (lock_visits.h).  Each
pattern of bench_threads runs with few threads and with eight.  For every kind of lock (its rank in
base/lock.h) that gives

    visits   per 1,000 calls of malloc or free
    hold     mean ns from acquire to release
    sharers  threads that visit the same lock: n equal visitors count n, a rare one hardly
    share    of the visits that the busiest lock gets

If the sharers stay as few when threads are added, each thread has locks of its own, or shares one with
those it passes objects to: they are private.  If they grow with the threads, all meet at the same locks.
Between the two, they are taken to grow with the same power of the number of threads; more arenas than
CPUs are asked for, as a larger machine would have them.

The model is a closed queueing network, solved exactly by mean value analysis: n threads compute for
as long as a call takes outside of locks, then visit the locks that are not private, each served by one
at a time for the hold time and one transfer of its cache line from another core.  It knows neither
caches nor memory bandwidth nor what is shared without a lock: it is an upper bound.  A lock is full
when demand, visits x (hold + transfer), reaches the time that one of n threads needs for a call.
"""
import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

import benchlib

PRIVATE = 0.25  # the power of the number of threads below which the sharers do not grow
MANY = 8
ROUNDS = 60
SMALL = "least=4 most=32768 law=square slots=1024"
# name, arguments of bench_threads, what multiplies the threads, few and many of it, threads in one of it,
# calls in an operation
PATTERNS = (
    ("replace", "replace", "threads", 1, MANY, 1, 2),
    ("replace, sized", "replace free=sized", "threads", 1, MANY, 1, 2),
    ("glibc-thread", f"replace {SMALL}", "threads", 1, MANY, 1, 2),
    ("mixed to 16 KiB", "replace slots=1000 most=16384 law=inverse", "threads", 1, MANY, 1, 2),
    ("mixed, 50,000 live", "replace slots=50000 most=4096 law=inverse", "threads", 1, MANY, 1, 2),
    ("8 x 16,000 B", "blocks least=16000 most=16000 n=8", "threads", 1, MANY, 1, 2),
    ("1,000 x 64 B", "blocks least=64 most=64 n=1000 repeat=100", "threads", 1, MANY, 1, 2),
    ("64 KiB pairs", "blocks least=65536 most=65536", "threads", 1, MANY, 1, 2),
    ("32 KiB..1 MiB pairs", "blocks", "threads", 1, MANY, 1, 2),
    ("32 KiB..1 MiB bursts", "blocks n=8", "threads", 1, MANY, 1, 2),
    ("producer/consumer", "cross", "pairs", 1, MANY // 2, 2, 1),
    ("xmalloc-test", "queue", "pairs", 1, MANY // 2, 2, 1),
)


class Kind(NamedTuple):
    """What was measured of one kind of lock in one pattern."""
    name: str
    visits: float  # per call
    hold: float
    share: float  # of the busiest lock, with many threads
    power: float  # with which the sharers grow: 0 each thread has its own, 1 all threads meet

    @property
    def private(self):
        return self.power < PRIVATE

    def share_at(self, cores):
        return min(1.0, self.share * (MANY / cores) ** (1 - self.power))


def build_counting(options):
    """The library with lock_visits.h in every file; its path."""
    folder = os.path.join(benchlib.ROOT, "build-visits")
    library = os.path.join(folder, "libtally.so")
    if os.path.isfile(library) and not options.rebuild:
        print(f"{os.path.relpath(library)} is used as it is; --rebuild makes it anew.",
              file=sys.stderr)
        return library
    header = os.path.join(benchlib.BENCH, "lock_visits.h")
    table = os.path.join(folder, "lock_visits.o")
    os.makedirs(folder, exist_ok=True)
    source = os.path.join(benchlib.ROOT, "src")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    steps = (
        ["cc", "-x", "c", "-c", "-fPIC", "-O2", "-D_GNU_SOURCE", "-DDEBUG_BUILD=0",
         "-DLOCK_VISITS_TABLE", f"-I{source}", "-include", header, os.devnull, "-o", table],
        # First without the flags: CMake's own trials of the compiler know no header of ours.
        ["cmake", "--preset", "release", "-B", folder, *generator],
        ["cmake", "-B", folder, f"-DCMAKE_C_FLAGS=-D_GNU_SOURCE= -include {header}",
         f"-DCMAKE_SHARED_LINKER_FLAGS={table}"],
        # A file's name for Ninja, a target's for make: "tally" would be the command for the former.
        ["cmake", "--build", folder, "--parallel", "2", "--target",
         "libtally.so" if shutil.which("ninja") else "tally"],
    )
    for step in steps:
        done = subprocess.run(step, cwd=benchlib.ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            benchlib.stop(f"{' '.join(step[:4])} failed:\n{done.stdout}{done.stderr}")
    return library


def rank_names():
    """The kinds of locks, in the order of base/lock.h."""
    path = os.path.join(benchlib.ROOT, "src", "base", "lock.h")
    with open(path, encoding="utf-8") as file:
        body = re.search(r"enum lock_rank \{(.*?)\};", file.read(), re.S).group(1)
    return [name.lower() for name in re.findall(r"^\s*RANK_(\w+)", body, re.M)]


def run(program, library, arguments, visits_path=None):
    environment = benchlib.clean_environment()
    environment.update(LD_PRELOAD=library, TALLY_CONF="narenas:32")
    if visits_path:
        environment["LOCK_VISITS"] = visits_path
    done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True,
                          timeout=benchlib.TIMEOUT_SECONDS, check=False)
    if done.returncode != 0:
        benchlib.stop(f"{' '.join(arguments)} failed: {done.stderr}")
    return benchlib.parse_pairs(done.stdout)


def count_visits(program, library, pattern, many):
    """{rank: (visits per call, mean hold, share of the busiest, sharers)} of one run."""
    _, command, key, few_of, many_of, threads_each, calls = pattern
    number = many_of if many else few_of
    with tempfile.NamedTemporaryFile() as file:
        figures = run(program, library,
                      [*command.split(), f"{key}={number}", f"rounds={ROUNDS}"], file.name)
        lines = [line.split() for line in file.read().decode().splitlines()]
    total_calls = figures["operations"] * (ROUNDS + 1) * number * threads_each * calls
    kinds = {}
    for rank, visits, hold, sharers in lines:
        kinds.setdefault(int(rank), []).append((int(visits), float(hold), float(sharers)))
    counted = {}
    for rank, locks in kinds.items():
        visits = sum(v for v, _, _ in locks)
        counted[rank] = (visits / total_calls, sum(v * h for v, h, _ in locks) / visits,
                         max(v for v, _, _ in locks) / visits,
                         sum(v * s for v, _, s in locks) / visits)
    return counted


def measure(options, program, counting, pattern):
    """The kinds of locks of a pattern, and ns of CPU per call of the library as it is."""
    _, command, key, few_of, many_of, _, calls = pattern
    names = rank_names()
    few, many = (count_visits(program, counting, pattern, which) for which in (False, True))
    kinds = []
    for rank, (visits, hold, share, sharers) in many.items():
        before = few[rank][3] if rank in few else 1.0
        power = math.log(max(1.0, sharers / before)) / math.log(many_of / few_of)
        kinds.append(Kind(names[rank], visits, hold, share, min(1.0, power)))
    plain = run(program, os.path.join(options.build, "libtally.so"),
                [*command.split(), f"{key}={few_of}", f"rounds={ROUNDS}"])
    return kinds, plain["cpu_ns"] / calls


def demand(kind, cores, transfer):
    """ns of the busiest lock that one call of one thread needs, on average."""
    return kind.visits * kind.share_at(cores) * (kind.hold + transfer)


def throughput(kinds, ns, cores, transfer):
    """Calls per ns of n threads by mean value analysis.  Of a kind there are 1/share equal locks."""
    shared = [(demand(k, cores, transfer), 1 / k.share_at(cores)) for k in kinds if not k.private]
    waiting = [0.0] * len(shared)
    rate = 1 / ns
    for threads in range(1, cores + 1):
        stay = [need * (1 + waiting[i]) for i, (need, _) in enumerate(shared)]
        rate = threads / (ns + sum(t * locks for t, (_, locks) in zip(stay, shared)))
        waiting = [rate * t for t in stay]
    return rate


def first_ceiling(kinds, ns, cores, transfer):
    """The busiest kind of shared lock, and the number of threads that fills it."""
    shared = [k for k in kinds if not k.private]
    if not shared:
        return "none"
    for threads in range(1, 100_000):
        full = [k for k in shared if threads * demand(k, threads, transfer) >= ns]
        if full:
            return f"{max(full, key=lambda k: demand(k, threads, transfer)).name} at {threads}"
    busiest = max(shared, key=lambda k: demand(k, cores, transfer))
    return f"{busiest.name} beyond 100,000"


def describe(kinds):
    """What is worth telling of the locks: the most visited first."""
    told = sorted((k for k in kinds if k.visits * 1000 >= 0.05), key=lambda k: -k.visits)
    return ", ".join(f"{k.name} {k.visits * 1000:.1f} x {k.hold:.0f} ns"
                     f"{'' if k.private else ' shared'}" for k in told) or "nearly none"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.environ.get("BUILD", f"{benchlib.ROOT}/build"))
    parser.add_argument("--cores", default="16,64,192")
    parser.add_argument("--transfer", type=float, default=100,
                        help="ns for a cache line to come from another core (default 100)")
    parser.add_argument("--rebuild", action="store_true", help="build the counting library anew")
    parser.add_argument("--only", default="", help="patterns whose name matches this expression")
    options = parser.parse_args()
    cores = [int(text) for text in options.cores.split(",")]
    counting = build_counting(options)
    program = benchlib.find_program(options, "bench_threads")
    rows, locks = [], []
    for pattern in PATTERNS:
        if not re.search(options.only, pattern[0]):
            continue
        kinds, ns = measure(options, program, counting, pattern)
        row = [pattern[0], f"{ns:.1f}",
               f"{1000 * sum(k.visits for k in kinds):.1f}",
               f"{1000 * sum(k.visits for k in kinds if not k.private):.2f}"]
        alone = 1 / (ns + sum(k.visits * k.hold for k in kinds if not k.private))
        for number in cores:
            rate = throughput(kinds, ns, number, options.transfer)
            row.append(f"{rate / alone:.0f}")
        rows.append(row + [first_ceiling(kinds, ns, max(cores), options.transfer)])
        locks.append([pattern[0], describe(kinds)])
    print("Speed-up over one thread that the locks allow; visits per 1,000 calls of malloc or free.\n")
    benchlib.print_table(["pattern", "ns/call", "visits", "shared"]
                         + [f"{n} cores" for n in cores] + ["first ceiling, threads"], rows)
    print("\nLocks by kind, visits per 1,000 calls x mean hold; shared: not each thread's own.\n")
    for name, text in locks:
        print(f"{name:<22}{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
