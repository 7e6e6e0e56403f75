#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""rates.py PROGRAM LIBRARY DIRECTORY - whatever the rate, readers show the truth, within 3 sigma.

The program allocates known numbers of objects in known functions.  At rate 1 a reader must show them exactly.
With a rate R an object of s bytes is in the sample with p = 1 - exp(-s / R) and then counts 1 / p times, so n
objects are estimated with the variance n (1 - p) / p.  jeprof, which multiplies whole numbers of samples itself,
may be off by half a sample besides.

A case beyond 3 sigma, which chance brings along once in 370, is looked at again: the mean of 12 more runs must
be within 3 sigma of a mean.
"""
import glob
import math
import os
import shutil
import subprocess
import sys

FORMATS = {"heap": "jemalloc", "hprof": "gperftools", "pb.gz": "proto"}
AGAIN = 12
cases = 0


def google(reader, program, path, index):
    option = {"inuse": "--inuse_objects", "alloc": "--alloc_objects"}[index]
    return [reader, "--text", option, program, path]


def go(_reader, program, path, index):
    return ["go", "tool", "pprof", "-unit=B", "-top", "-nodefraction=0", f"-sample_index={index}_objects",
            program, path]


# name, endings it reads, command line
READERS = (("jeprof", ("heap", "hprof"), google), ("google-pprof", ("hprof",), google),
           ("go", ("pb.gz", "hprof"), go))


class Bench:
    def __init__(self, program, library, directory):
        self.program, self.library, self.directory = program, library, directory
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": directory, "LC_ALL": "C",
                            "GOPATH": os.path.join(directory, "go"), "PPROF_TMPDIR": directory}

    def profile(self, lg_rate, ending):
        """A new profile at this rate: its path, and the truth {name: (bytes, live, ever)}."""
        for old in glob.glob(os.path.join(self.directory, "rates.*")):
            os.remove(old)
        conf = (f"prof:true,prof_final:true,prof_accum:true,lg_prof_sample:{lg_rate},"
                f"prof_format:{FORMATS[ending]},prof_prefix:{self.directory}/rates")
        done = subprocess.run([self.program], capture_output=True, text=True, check=True, timeout=60,
                              env={**self.environment, "LD_PRELOAD": self.library, "MALLOC_CONF": conf})
        if done.stderr:
            sys.exit(f"the program says: {done.stderr}")
        (path,) = glob.glob(os.path.join(self.directory, f"rates.*.{ending}"))
        rows = (line.split() for line in done.stdout.splitlines())
        return path, {row[0]: tuple(map(int, row[1:])) for row in rows}

    def read(self, reader, command, path, index):
        """{name: objects} as the reader shows them."""
        done = subprocess.run(command(reader, self.program, path, index), capture_output=True, text=True,
                              check=False, timeout=60, env=self.environment)
        if done.returncode != 0:
            sys.exit(f"{reader} on {path}: {done.stderr}")
        words = (line.split() for line in done.stdout.splitlines())
        return {row[5]: float(row[0].rstrip("B")) for row in words
                if len(row) > 5 and row[5].startswith("rate_")}


def look_again(bench, reader, command, case, allowed):
    lg_rate, ending, index, name, objects = case
    found = []
    for _ in range(AGAIN):
        path, _truth = bench.profile(lg_rate, ending)
        found.append(bench.read(reader, command, path, index).get(name, 0))
    mean = sum(found) / AGAIN
    sigma, rounding = allowed
    print(f"again: {reader} {ending} {index} 2^{lg_rate} {name}: mean {mean:.0f} of {objects}")
    if abs(mean - objects) > 3 * sigma / math.sqrt(AGAIN) + rounding:
        sys.exit(f"{reader} on {ending}: {name} {index} at 2^{lg_rate}: {AGAIN} runs have a mean of {mean:.0f}"
                 f" objects, and there are {objects} (sigma {sigma:.0f})")


def judge(bench, reader, ending, command, lg_rate):
    global cases
    path, truth = bench.profile(lg_rate, ending)
    # Both before either is judged: a second look makes other profiles.
    shown = {index: bench.read(reader, command, path, index) for index in ("inuse", "alloc")}
    for index, place in (("inuse", 1), ("alloc", 2)):
        for name, counts in truth.items():
            share = 1 - math.exp(-counts[0] / 2 ** lg_rate) if lg_rate else 1
            sigma = math.sqrt(counts[place] * (1 - share) / share)
            rounding = 0.5 / share if lg_rate else 0
            found = shown[index].get(name, 0)
            cases += 1
            if lg_rate == 0 and found != counts[place]:
                sys.exit(f"{reader} on {ending}: {name} {index}: {found:.0f} and not {counts[place]}")
            if abs(found - counts[place]) > 3 * sigma + rounding:
                case = (lg_rate, ending, index, name, counts[place])
                look_again(bench, reader, command, case, (sigma, rounding))


def main():
    bench = Bench(*sys.argv[1:4])
    readers = [row for row in READERS if shutil.which(row[0], path=bench.environment["PATH"])]
    if not readers:
        print("skipped: neither jeprof nor google-pprof nor go is installed")
        sys.exit(77)
    for reader, endings, command in readers:
        for ending in endings:
            for lg_rate in (0, 16, 19):
                judge(bench, reader, ending, command, lg_rate)
    print(f"{cases} cases, {', '.join(row[0] for row in readers)}")


if __name__ == "__main__":
    main()
