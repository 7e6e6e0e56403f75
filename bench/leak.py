#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long a check for leaks holds up a program, and how long it takes.

    bench/leak.py [--rounds N] [--build DIR] [--out DIR]

Heaps of several sizes, with objects of 16 to 2,000 bytes or of 64, without and with threads that allocate
meanwhile.  The pause is the time from the first signal to the moment at which all threads may go on; it is a
median, and depends on the CPU that the threads and the copying of page tables can have: see the load in the
file.  `in place` is the same without a copy of the process.
"""
import argparse
import datetime
import os
import subprocess

import benchlib

CASES = (("256 MiB", "mib=256"), ("1 GiB", "mib=1024"), ("1 GiB, no threads", "mib=1024 threads=0"),
         ("1 GiB, 32 threads", "mib=1024 threads=32"), ("1 GiB of 64 bytes", "mib=1024 size=64"),
         ("4 GiB", "mib=4096"), ("256 MiB in place", "mib=256 in_place=1"))
FIGURES = ("live_mib", "pause_ms", "pause_least_ms", "pause_most_ms", "total_ms", "pause_ms_per_gib")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "results"))
    options = parser.parse_args()
    program = benchlib.find_program(options, "bench_leak")
    rows = []
    for name, words in CASES:
        done = subprocess.run([program, *words.split(), f"rounds={options.rounds}"],
                              capture_output=True, text=True, check=True)
        pairs = benchlib.parse_pairs(done.stdout)
        rows.append([name, *(str(pairs[figure]) for figure in FIGURES)])
    benchlib.print_table(["heap", *FIGURES], rows)
    today = datetime.date.today().isoformat()
    benchlib.write_csv(os.path.join(options.out, f"{today}-leak.csv"), benchlib.host_facts([]),
                       ["heap", *FIGURES], rows)


if __name__ == "__main__":
    main()
