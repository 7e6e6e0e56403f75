# SPDX-License-Identifier: MIT
"""What the bench scripts share: which allocators, how to start a program under one, what to print.

An allocator is a name and a library to preload.  glibc is preloaded like the others (libc.so.6
itself), so that a program linked with another allocator, such as Debian's redis with jemalloc,
really runs on glibc's malloc in the column that says so.
"""
import argparse
import csv
import datetime
import glob
import os
import platform
import shutil
import subprocess
import sys
from typing import NamedTuple

BENCH = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(BENCH)
TIMEOUT_SECONDS = 600

# Debian's names; a peer that is not installed is named in one line and left out.
PEERS = (
    ("glibc", "libc.so.6"),
    ("jemalloc", "libjemalloc.so.2"),
    ("mimalloc", "libmimalloc.so.2*"),
    ("tcmalloc", "libtcmalloc_minimal.so.4"),
    ("tbb", "libtbbmalloc_proxy.so.2"),
)


class Allocator(NamedTuple):
    name: str
    path: str

    @property
    def is_ours(self):
        """tally and its variants (tally-unchecked=...) are compared with peers, not peers."""
        return self.name.startswith("tally")


class RunFailed(Exception):
    """One run went wrong; the sentence says how.  The other runs still count."""


def stop(sentence):
    print(sentence, file=sys.stderr)
    sys.exit(2)


def arguments(description):
    """A parser with the options that every script here has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("allocators", nargs="*", metavar="NAME=LIBRARY",
                        help="measure this library too, or give another one to a known name")
    parser.add_argument("--build", default=os.environ.get("BUILD", os.path.join(ROOT, "build")),
                        help="where libtally.so and the bench programs are (default: build)")
    parser.add_argument("--peers", metavar="NAMES", default=",".join(name for name, _ in PEERS),
                        help="which of the usual peers, by commas (default: %(default)s)")
    parser.add_argument("--peers-only", action="store_true", help="measure without tally")
    return parser


def find_library(pattern):
    for directory in ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"):
        for path in sorted(glob.glob(f"{directory}/{platform.machine()}-linux-gnu/{pattern}")
                           + glob.glob(f"{directory}/{pattern}")):
            return path
    return None


def find_allocators(options):
    """tally, the installed peers, then what the command line adds, in this order."""
    given = {}
    for text in options.allocators:
        name, equals, path = text.partition("=")
        if not (name and equals and os.path.isfile(path)):
            stop(f"'{text}' is not NAME=LIBRARY with a library that exists.")
        given[name] = os.path.abspath(path)
    found = {}
    if not options.peers_only:
        found["tally"] = given.get("tally", os.path.join(options.build, "libtally.so"))
        if not os.path.isfile(found["tally"]):
            stop(f"{found['tally']} is absent: build it with 'make', or pass --peers-only.")
    for name, pattern in PEERS:
        if name not in options.peers.split(","):
            continue
        path = given.get(name) or find_library(pattern)
        if path:
            found[name] = path
        else:
            print(f"{name} is left out: {pattern} is not installed.", file=sys.stderr)
    found.update(given)
    return [Allocator(name, os.path.realpath(path)) for name, path in found.items()]


def find_program(options, name):
    for directory in (options.build, os.path.join(options.build, "bench")):
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK):
            return os.path.abspath(path)
    stop(f"The program {name} is not in {options.build}: build it with 'make'.")


def bench_cpu():
    """The CPU for pinned runs: the last we may use, as the first serves most interrupts."""
    return max(os.sched_getaffinity(0))


def clean_environment(allocator=None):
    """Our environment without preloads; with the name that the bench programs must find loaded."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "BENCH_EXPECT")}
    if allocator:
        environment["BENCH_EXPECT"] = allocator.path
    return environment


def parse_pairs(text):
    """Every key=value of a text; numbers become numbers."""
    pairs = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if equals:
            try:
                pairs[key] = float(value)
            except ValueError:
                pairs[key] = value
    return pairs


def start(launcher, allocator, argv, cpu=None, options=()):
    """Start argv under the allocator through bench_launch, which prints what it cost."""
    command = [launcher, "--preload", allocator.path, *options]
    if cpu is not None:
        command += ["--cpu", str(cpu)]
    return subprocess.Popen([*command, "--", *argv], stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.PIPE, env=clean_environment(allocator))


def finish(process):
    """Wait for what start() started; its output, or RunFailed with the reason."""
    try:
        output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RunFailed(f"no end after {TIMEOUT_SECONDS} s") from None
    if process.returncode != 0:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        raise RunFailed(f"status {process.returncode}: {last}")
    return output


def print_table(header, rows):
    """A table of text: first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())


def read_line(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return "unknown"


def host_facts(allocators):
    """What a reader must know about the machine before comparing two files."""
    cpu_model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                cpu_model = line.partition(":")[2].strip()
                break
    facts = [
        f"date: {datetime.datetime.now().astimezone().isoformat(timespec='seconds')}",
        f"cpu: {cpu_model}, {len(os.sched_getaffinity(0))} usable cores",
        f"kernel: {platform.system()} {platform.release()} {platform.machine()}",
        f"libc: {' '.join(platform.libc_ver())}",
        f"page size: {os.sysconf('SC_PAGE_SIZE')}",
        f"transparent huge pages: {read_line('/sys/kernel/mm/transparent_hugepage/enabled')}",
        f"load average: {read_line('/proc/loadavg')}",
    ]
    for variable in ("TALLY_CONF", "MALLOC_CONF"):
        if variable in os.environ:
            facts.append(f"{variable}: {os.environ[variable]}")
    return facts + [f"allocator {a.name}: {os.path.basename(a.path)}" for a in allocators]


def write_csv(path, facts, header, rows):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(f"# {fact}\n" for fact in facts)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    print(f"\nThe figures are in {os.path.relpath(path)}.")


def dated_path(directory, what):
    return os.path.join(directory, f"{datetime.date.today().isoformat()}-{what}.csv")


class Progress:
    """One line that is overwritten on a terminal; elsewhere one line per group of runs."""

    def __init__(self, total):
        self.total, self.done, self.group = total, 0, None
        self.tty = sys.stderr.isatty()

    def step(self, group, detail):
        self.done += 1
        if self.tty:
            width = shutil.get_terminal_size().columns - 1
            text = f"[{self.done}/{self.total}] {group} {detail}"[:width]
            print(f"\r{text:<{width}}", end="", file=sys.stderr, flush=True)
        elif group != self.group:
            print(f"[{self.done}/{self.total}] {group}", file=sys.stderr, flush=True)
        self.group = group

    def end(self):
        if self.tty:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{'':<{width}}\r", end="", file=sys.stderr, flush=True)
