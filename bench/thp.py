#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Time and memory for every kernel setting of transparent huge pages and every value of thp.

    bench/thp.py [--rounds N] [--build DIR] [--mib N]

Needs root, because /sys/kernel/mm/transparent_hugepage/enabled is written; it is set back at the
end, whatever happens.  Where it cannot be written, only the present setting is measured.  Times are
CPU time, the least of the rounds; memory is the median.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import benchlib
import programs

SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"
OPTIONS = ("auto", "never", "always")


def read_setting():
    with open(SETTING, encoding="ascii") as file:
        return file.read().split("[")[1].split("]")[0]


def write_setting(mode):
    with open(SETTING, "w", encoding="ascii") as file:
        file.write(mode)


def settable_modes(present):
    try:
        write_setting(present)
    except OSError:
        print(f"{SETTING} cannot be written: only '{present}' is measured.", file=sys.stderr)
        return [present]
    return ["never", "madvise", "always"]


def run_pattern(options, thp, pattern):
    library = os.path.abspath(os.path.join(options.build, "libtally.so"))
    environment = dict(os.environ, LD_PRELOAD=library, BENCH_EXPECT=library,
                       TALLY_CONF=f"thp:{thp}")
    done = subprocess.run([benchlib.find_program(options, "bench_thp"), *pattern],
                          env=environment, capture_output=True, text=True, check=True)
    return benchlib.parse_pairs(done.stdout)


def run_sqlite(options, thp, script):
    library = os.path.abspath(os.path.join(options.build, "libtally.so"))
    environment = dict(os.environ, LD_PRELOAD=library, TALLY_CONF=f"thp:{thp}")
    with open(script, encoding="ascii") as file:
        child = subprocess.Popen(["sqlite3", ":memory:"], stdin=file, env=environment,
                                 stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise benchlib.RunFailed(f"sqlite3 ended with {status}")
    return {"time_s": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}


def combine(results):
    """Times: the least.  All else: the median."""
    return {key: (min if key.endswith("_s") else statistics.median)(r[key] for r in results)
            for key in results[0] if key != "pattern"}


def measure(options, mode, thp, script):
    walk = ["walk", f"mib={options.mib}"]
    jobs = [("hello", lambda: run_pattern(options, thp, ["hello"])),
            ("walk", lambda: run_pattern(options, thp, walk)),
            ("saw", lambda: run_pattern(options, thp, ["saw"])),
            ("sqlite", lambda: run_sqlite(options, thp, script))]
    for name, job in jobs:
        result = combine([job() for _ in range(options.rounds)])
        words = "  ".join(f"{key} {value:.2f}" if key.endswith("_s") else f"{key} {value:.0f}"
                          for key, value in result.items())
        print(f"kernel {mode:8} thp {thp:7} {name:7} {words}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.environ.get("BUILD", "build"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=1024, help="size of the heap that is walked")
    options = parser.parse_args()
    present = read_setting()
    with tempfile.TemporaryDirectory() as directory:
        script = os.path.join(directory, "script.sql")
        with open(script, "w", encoding="ascii") as file:
            file.write(programs.SQL.format(rows=120_000))
        try:
            for mode in settable_modes(present):
                if mode != present or os.access(SETTING, os.W_OK):
                    write_setting(mode)
                for thp in OPTIONS:
                    measure(options, mode, thp, script)
        finally:
            if read_setting() != present:
                write_setting(present)


if __name__ == "__main__":
    main()
