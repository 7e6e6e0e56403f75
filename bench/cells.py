#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The sixteen cells of bench_cells.c over several allocators, in ns per malloc+free pair.

One process measures all cells of one allocator; the processes of all allocators take turns, on
one CPU, several times, and a cell's figure is the minimum.  Minimum and not mean, because what
disturbs a loop of some ms only ever makes it longer.
"""
import os
import statistics
import sys

import benchlib


def measure(options, allocators):
    """ns by (allocator, cell), and every single figure as rows for the CSV."""
    program = benchlib.find_program(options, "bench_cells")
    launcher = benchlib.find_program(options, "bench_launch")
    progress = benchlib.Progress(options.repeats * len(allocators))
    best, rows = {}, []
    for repeat in range(options.repeats):
        for allocator in allocators:
            progress.step(f"cells, repeat {repeat + 1}", allocator.name)
            argv = [program, f"rounds={options.rounds}"]
            process = benchlib.start(launcher, allocator, argv, cpu=benchlib.bench_cpu())
            try:
                output = benchlib.finish(process)
            except benchlib.RunFailed as failure:
                raise benchlib.RunFailed(f"{allocator.name}: {failure}") from None
            for line in output.splitlines():
                cell = benchlib.parse_pairs(line)
                if "ns" in cell:
                    key = (allocator.name, int(cell["size"]), int(cell["n"]))
                    best[key] = min(cell["ns"], best.get(key, cell["ns"]))
                    rows.append([allocator.name, key[1], key[2], repeat + 1, cell["ns"]])
    progress.end()
    return best, rows


def print_results(allocators, best):
    ours = [a.name for a in allocators if a.is_ours]
    peers = [a.name for a in allocators if not a.is_ours]
    cells = list(dict.fromkeys(key[1:] for key in best))
    rows = []
    for cell in cells:
        best_peer = min(best[(name, *cell)] for name in peers)
        rows.append([f"{cell[0]} B x {cell[1]}"]
                    + [f"{best[(a.name, *cell)]:.2f}" for a in allocators]
                    + [f"{best[(name, *cell)] / best_peer:.3f}" for name in ours])
    means = {a.name: statistics.geometric_mean([best[(a.name, *cell)] for cell in cells])
             for a in allocators}
    best_mean = min(means[name] for name in peers)
    rows.append(["geometric mean"] + [f"{means[a.name]:.2f}" for a in allocators]
                + [f"{means[name] / best_mean:.3f}" for name in ours])
    print("ns per malloc+free pair, every byte written, freed in order of allocation; minimum.")
    print("The last columns are ratios to the best peer: of the cell, and of the means.\n")
    benchlib.print_table(["cell"] + [a.name for a in allocators] + [f"{n}/best" for n in ours],
                         rows)


def main():
    parser = benchlib.arguments(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="processes per allocator")
    parser.add_argument("--rounds", type=int, default=25, help="rounds per cell and process")
    parser.add_argument("--out", default=os.path.join(benchlib.BENCH, "results"), metavar="DIR")
    options = parser.parse_args()
    allocators = benchlib.find_allocators(options)
    try:
        best, rows = measure(options, allocators)
    except benchlib.RunFailed as failure:
        print(f"bench_cells failed: {failure}", file=sys.stderr)
        return 1
    print_results(allocators, best)
    benchlib.write_csv(benchlib.dated_path(options.out, "cells"), benchlib.host_facts(allocators),
                       ["allocator", "size", "n", "repeat", "ns"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
