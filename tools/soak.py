#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""soak.py - programs that run for hours under the library: does anything grow?

    soak.py [--hours 1] [--build build] [--only load,python3]

Starts a mixed load of our own (tools/soak_load.c) and, where they are installed, python3,
sqlite3 and redis-server, each under libtally.so and each doing the same over and over.  Looks at
every process every few seconds: resident anonymous memory, mappings, open descriptors.

The first quarter of the run, at most an hour, is warm-up.  Then:
  memory       the slope of a straight line through all samples, per hour, must be <= 0.5 % of the
               mean.  That is judged when an hour or more was measured; a shorter run only says what
               it saw and fails when the last third needs half as much memory again as the first.
  mappings     the smallest number seen in the last third must not exceed that of the first third;
               in a run that is too short for memory a few more are let pass.
  descriptors  the same, without exception.

Exit status: 0 when nothing grew, 1 when something did, a process ended or the library wrote a
message, 2 for wrong arguments, 77 when the machine cannot tell.
"""
import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MOST_WARM_UP = 3600.0
LEAST_TO_JUDGE = 3600.0
MOST_DRIFT = 0.5  # percent of the mean, per hour
MOST_GROWTH = 1.5  # last third over first third, in runs too short for a slope
SHORT_RUN_MAPPINGS = 8
MEBIBYTE = 1 << 20
SHORT_RUN_MEMORY = 8 * MEBIBYTE
SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

PYTHON_LOAD = """
import collections, json, random, zlib
random.seed(1)
recent = collections.deque(maxlen=30)
while True:
    table = {i: str(random.random()) * random.randint(1, 20) for i in range(3000)}
    text = json.dumps(table)
    back = json.loads(zlib.decompress(zlib.compress(text.encode(), 1)))
    assert len(back) == 3000
    recent.append(sorted(back.values())[:100])
"""

SQL_LOAD = """
BEGIN;
DELETE FROM t WHERE id % 3 = abs(random()) % 3;
INSERT INTO t(a, b) SELECT hex(randomblob(40)), randomblob(abs(random()) % 900) FROM
    (WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c WHERE x < 1000) SELECT x FROM c);
DELETE FROM t WHERE id NOT IN (SELECT id FROM t ORDER BY id DESC LIMIT 5000);
COMMIT;
SELECT count(*), sum(length(b)) > 0 FROM t GROUP BY substr(a, 1, 1);
"""


class Subject:
    """One process under the library, and what was seen of it."""

    def __init__(self, name, process, errors, library):
        self.name = name
        self.process = process
        self.errors = errors
        self.samples = []  # (seconds, bytes, mappings, descriptors)
        self.helpers = []
        wait_until_mapped(process.pid, library)

    def sample(self, now):
        folder = f"/proc/{self.process.pid}"
        with open(f"{folder}/smaps_rollup", encoding="ascii") as file:
            anonymous = next(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))
        with open(f"{folder}/maps", encoding="utf-8", errors="replace") as file:
            mappings = sum(1 for _ in file)
        self.samples.append((now, anonymous << 10, mappings, len(os.listdir(f"{folder}/fd"))))

    def messages(self):
        self.errors.seek(0)
        return [line for line in self.errors.read().splitlines()
                if line.startswith(("tally:", "soak_load:"))]


def wait_until_mapped(pid, library):
    """The loader skips a preload that it cannot map, and the program would run on libc."""
    for _ in range(200):
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            if os.path.realpath(library) in file.read():
                return
        time.sleep(0.05)
    sys.exit(f"soak.py: process {pid} does not have {library} in its memory map")


class Soak:
    def __init__(self, build, scratch):
        self.library = os.path.realpath(os.path.join(build, "libtally.so"))
        self.load = os.path.realpath(os.path.join(build, "soak_load"))
        self.scratch = scratch
        self.subjects = []

    def start(self, name, command, **pipes):
        errors = open(os.path.join(self.scratch, f"{name}.errors"), "w+", encoding="utf-8",
                      errors="replace")
        environment = {"PATH": SEARCH_PATH, "HOME": self.scratch, "LC_ALL": "C",
                       "LD_PRELOAD": self.library}
        pipes.setdefault("stdout", subprocess.DEVNULL)
        process = subprocess.Popen(command, env=environment, stderr=errors, cwd=self.scratch,
                                   **pipes)
        subject = Subject(name, process, errors, self.library)
        self.subjects.append(subject)
        return subject

    def start_load(self):
        self.start("load", [self.load])

    def start_python3(self):
        python = shutil.which("python3", path=SEARCH_PATH)
        if python:
            self.start("python3", [python, "-S", "-c", PYTHON_LOAD])
        return bool(python)

    def start_sqlite3(self):
        """Fed through a pipe by a shell that is not under the library."""
        if not shutil.which("sqlite3", path=SEARCH_PATH):
            return False
        path = os.path.join(self.scratch, "load.sql")
        with open(path, "w", encoding="ascii") as file:
            file.write(SQL_LOAD)
        feed = subprocess.Popen(
            ["sh", "-c", "echo 'CREATE TABLE t(id INTEGER PRIMARY KEY, a, b);';"
             f" while cat '{path}'; do :; done"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
        subject = self.start("sqlite3", ["sqlite3", ":memory:"], stdin=feed.stdout)
        feed.stdout.close()
        subject.helpers.append(feed)
        return True

    def start_redis(self):
        if not shutil.which("redis-server", path=SEARCH_PATH) or \
                not shutil.which("redis-benchmark", path=SEARCH_PATH):
            return False
        socket = os.path.join(self.scratch, "redis")
        subject = self.start("redis", ["redis-server", "--port", "0", "--unixsocket", socket,
                                       "--save", "", "--appendonly", "no", "--maxmemory", "8mb",
                                       "--maxmemory-policy", "allkeys-random", "--hz", "50"])
        for _ in range(100):
            if os.path.exists(socket):
                break
            time.sleep(0.05)
        traffic = subprocess.Popen(
            ["redis-benchmark", "-s", socket, "-l", "-q", "-n", "50000", "-r", "10000", "-d", "300",
             "-c", "10", "-t", "set,get,lpush,lpop,sadd,hset,incr"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={"PATH": SEARCH_PATH})
        subject.helpers.append(traffic)
        return True

    def stop(self):
        """The load verifies its heap when it is asked to end; the others need not end well."""
        broken = []
        for subject in self.subjects:
            for helper in subject.helpers:
                helper.kill()
                helper.wait()
            if subject.process.poll() is None:
                subject.process.send_signal(signal.SIGTERM)
        for subject in self.subjects:
            try:
                status = subject.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                subject.process.kill()
                status = subject.process.wait()
                broken.append(f"{subject.name} does not end")
            if subject.name == "load" and status != 0:
                broken.append(f"load ended with status {status}")
            broken += [f"{subject.name}: {message}" for message in subject.messages()]
            subject.errors.close()
        return broken


def slope_per_hour(samples, column):
    """Least squares, in units per hour."""
    times = [sample[0] / 3600 for sample in samples]
    values = [sample[column] for sample in samples]
    middle, mean = statistics.fmean(times), statistics.fmean(values)
    spread = sum((t - middle) ** 2 for t in times)
    return sum((t - middle) * (v - mean) for t, v in zip(times, values)) / spread


def thirds(samples):
    size = len(samples) // 3
    return samples[:size], samples[-size:]


def judge(subject, warm_up):
    """One line about a process, and the list of what is wrong with it."""
    samples = [sample for sample in subject.samples if sample[0] >= warm_up]
    if len(samples) < 6:
        return f"{subject.name}: too few samples after the warm-up", ["too few samples"]
    seconds = samples[-1][0] - samples[0][0]
    first, last = thirds(samples)
    mean = statistics.fmean(sample[1] for sample in samples)
    drift = 100 * slope_per_hour(samples, 1) / mean
    growth = statistics.fmean(s[1] for s in last) / statistics.fmean(s[1] for s in first)
    mappings = min(s[2] for s in last) - min(s[2] for s in first)
    descriptors = min(s[3] for s in last) - min(s[3] for s in first)
    long_enough = seconds >= LEAST_TO_JUDGE
    wrong = []
    if long_enough and drift > MOST_DRIFT:
        wrong.append(f"memory grows by {drift:.2f} % per hour")
    # In a short run a program may still be filling what it keeps: only much counts.
    more = statistics.fmean(s[1] for s in last) - statistics.fmean(s[1] for s in first)
    if not long_enough and growth > MOST_GROWTH and more > SHORT_RUN_MEMORY:
        wrong.append(f"memory grew by {100 * (growth - 1):.0f} % within the run")
    if mappings > (0 if long_enough else SHORT_RUN_MAPPINGS):
        wrong.append(f"{mappings} more mappings")
    if descriptors > 0:
        wrong.append(f"{descriptors} more descriptors")
    judged = "" if long_enough else " (too short a run to judge)"
    line = (f"{subject.name:8} {mean / MEBIBYTE:8.1f} MiB, drift {drift:+8.2f} %/h{judged},"
            f" last third {100 * (growth - 1):+.1f} %;"
            f" mappings {max(s[2] for s in samples)} {mappings:+d};"
            f" descriptors {max(s[3] for s in samples)} {descriptors:+d}")
    return line, wrong


def watch(soak, seconds, interval):
    """Samples until the time is over; returns what went wrong meanwhile."""
    start = time.monotonic()
    next_word = 0.0
    while (now := time.monotonic() - start) < seconds:
        for subject in soak.subjects:
            if subject.process.poll() is not None:
                return [f"{subject.name} ended with status {subject.process.returncode}"]
            subject.sample(now)
        if now >= next_word:
            state = ", ".join(f"{s.name} {s.samples[-1][1] / MEBIBYTE:.1f} MiB {s.samples[-1][2]} maps"
                              for s in soak.subjects)
            print(f"{now:8.0f} s  {state}", flush=True)
            next_word = now + max(2.0, min(60.0, seconds / 20))
        time.sleep(max(0.0, min(interval, seconds - now)))
    return []


def main():
    parser = argparse.ArgumentParser(description="Run programs for hours and see what grows.")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="load,python3,sqlite3,redis")
    arguments = parser.parse_args()
    seconds = arguments.hours * 3600
    if seconds < 5:
        parser.error("a run of less than five seconds says nothing")
    if not os.path.exists("/proc/self/smaps_rollup"):
        print("skipped: this kernel does not tell the anonymous memory of a process")
        return 77
    with tempfile.TemporaryDirectory(prefix="tally-soak-") as scratch:
        soak = Soak(arguments.build, scratch)
        broken, ended = [], []
        try:
            for name in arguments.only.split(","):
                if getattr(soak, f"start_{name}")() is False:
                    print(f"left out, not installed: {name}")
            broken = watch(soak, seconds, min(5.0, seconds / 60))
        finally:
            ended = soak.stop()
        broken += ended
        warm_up = min(MOST_WARM_UP, seconds / 4)
        for subject in soak.subjects:
            line, wrong = judge(subject, warm_up)
            print(line)
            broken += [f"{subject.name}: {what}" for what in wrong]
    for what in broken:
        print(f"FAILED: {what}")
    if not broken:
        print(f"nothing grew in {arguments.hours:g} h, of which {warm_up / 3600:g} h warm-up")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
