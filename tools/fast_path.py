#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""fast_path.py - the instructions of malloc and free on a cache hit, compared with a golden file.

    fast_path.py build/libtally.so             compare; exit 1 and print the difference when unlike
    fast_path.py --update build/libtally.so    rewrite the golden file
    fast_path.py --count LIBRARY.so ...        count any allocators, "-" for libc; compares nothing
    fast_path.py --show LIBRARY.so             also list the instructions, one a line

The numbers come from step_count (built from tools/step_count.c), which single-steps the exported
symbols in a process that has the library preloaded.  The golden file holds two kinds of lines:

    malloc 14              what was counted when somebody last looked
    limit malloc 15        the budget, which --update keeps

A change that makes a path shorter fails too: the golden file is then updated in the same commit,
and the next one cannot lose what was won.  Loads, stores, branches and atomics are shown for the
reader; they are read off the disassembly (objdump), without that of `ret`, and not compared.
"""
import argparse
import os
import platform
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FUNCTIONS = ("malloc", "free")
DEFAULT_LIMITS = {"malloc": 15, "free": 22}
SKIPPED = 77


def find_tool(given):
    """The step_count program: the one given, the build's, or the default build's."""
    build = os.environ.get("BUILD", os.path.join(ROOT, "build"))
    tool = given or os.path.join(build, "step_count")
    if not os.access(tool, os.X_OK):
        sys.exit(f"fast_path: no {tool}: build first, or name it with --tool")
    return tool


def count(tool, library, size):
    """Return ({function: count}, {function: [offset, ...]}) for one library."""
    if library != "-" and not os.path.exists(library):
        sys.exit(f"fast_path: no {library}")
    path = library if library == "-" else os.path.abspath(library)
    done = subprocess.run([tool, "--trace", "--size", str(size), path], text=True,
                          stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(SKIPPED if done.returncode == SKIPPED else 1)
    counts, steps = {}, {name: [] for name in FUNCTIONS}
    for line in done.stdout.splitlines():
        words = line.split()
        if words[0] == "step":
            steps[words[1]].append(int(words[2], 16))
        else:
            counts[words[0]] = int(words[1])
    return counts, steps


def disassemble(library, offsets):
    """The text of each instruction; None where objdump does not know the address."""
    if library == "-" or not offsets:
        return [None] * len(offsets)
    syntax = ["-M", "intel"] if platform.machine() == "x86_64" else []
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", *syntax, library], text=True,
                          stdout=subprocess.PIPE, check=True).stdout
    known = {}
    for line in text.splitlines():
        match = re.match(r"\s*([0-9a-f]+):\s+(.*)", line)
        if match:
            known[int(match.group(1), 16)] = re.sub(r"\s+", " ", match.group(2)).strip()
    return [known.get(offset) for offset in offsets]


def touches(text):
    """Which of load, store, branch, atomic one x86-64 instruction in Intel syntax is."""
    kinds = set()
    word, _, operands = text.partition(" ")
    if word in ("lock", "xacquire", "xrelease"):
        kinds.add("atomic")
        word, _, operands = operands.partition(" ")
    operands = operands.partition("#")[0].partition(" <")[0]
    if word in ("pop", "leave"):
        return kinds | {"load"}
    if word in ("push", "call"):
        kinds.add("store")
    if re.match(r"j(?!mp)", word):
        return kinds | {"branch"}
    if "[" not in operands or word in ("lea", "nop", "nopw", "nopl", "prefetcht0", "prefetchw"):
        return kinds
    target, _, source = operands.partition(",")
    if "[" in source or word in ("cmp", "test", "jmp", "call", "bt", "push") or not source:
        kinds.add("load")
    if "[" in target and word not in ("cmp", "test", "jmp", "call", "bt", "push"):
        kinds.add("store")
        if not word.startswith("mov"):
            kinds.add("load")
    if word == "xchg":
        kinds.add("atomic")
    return kinds


def describe(texts):
    """How many loads, stores, branches and atomics, as text; empty where that is not known."""
    if platform.machine() != "x86_64" or not texts or None in texts:
        return ""
    kinds = [touches(text) for text in texts]
    return "  ".join(f"{kind} {sum(kind in one for one in kinds)}"
                     for kind in ("load", "store", "branch", "atomic"))


def print_library(tool, library, size, show):
    counts, steps = count(tool, library, size)
    for name in FUNCTIONS:
        texts = disassemble(library, steps[name])
        print(f"{os.path.basename(library):28} {name:7} {counts[name]:4}   {describe(texts)}")
        if show:
            for offset, text in zip(steps[name], texts):
                print(f"    {offset:8x}  {text or '?'}")


def read_golden(path):
    golden, limits = {}, dict(DEFAULT_LIMITS)
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.partition("#")[0].split()
            if len(words) == 3 and words[0] == "limit":
                limits[words[1]] = int(words[2])
            elif len(words) == 2:
                golden[words[0]] = int(words[1])
    return golden, limits


def write_golden(path, counts, limits):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("# Instructions on a cache hit, release build with gcc."
                   "  Rewritten by tools/fast_path.py --update.\n")
        file.writelines(f"{name} {counts[name]}\n" for name in FUNCTIONS)
        file.writelines(f"limit {name} {limits[name]}\n" for name in FUNCTIONS)


def compare(counts, golden, limits):
    """Print one line per function; true when all are as the golden file says and within limits."""
    same = True
    for name in FUNCTIONS:
        expected = golden.get(name)
        change = "" if expected is None else f" ({counts[name] - expected:+d})"
        verdict = "as before" if counts[name] == expected else f"golden says {expected}{change}"
        if counts[name] > limits[name]:
            verdict += f", over the limit of {limits[name]}"
        same &= counts[name] == expected and counts[name] <= limits[name]
        print(f"{name} {counts[name]}: {verdict}")
    return same


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", nargs="+")
    parser.add_argument("--update", action="store_true", help="rewrite the golden file")
    parser.add_argument("--count", action="store_true", help="print counts, compare nothing")
    parser.add_argument("--show", action="store_true", help="list the instructions")
    parser.add_argument("--size", type=int, default=48, help="bytes to ask for (48)")
    parser.add_argument("--tool", help="the step_count program")
    parser.add_argument("--golden", help="the golden file", default=os.path.join(
        ROOT, "test", "golden", f"fast_path.{platform.machine()}.txt"))
    args = parser.parse_args()
    tool = find_tool(args.tool)

    if args.count or args.show:
        for library in args.library:
            print_library(tool, library, args.size, args.show)
        return 0
    if len(args.library) != 1:
        parser.error("one library, unless --count or --show is given")
    counts, _ = count(tool, args.library[0], args.size)
    exists = os.path.exists(args.golden)
    golden, limits = read_golden(args.golden) if exists else ({}, DEFAULT_LIMITS)
    if args.update:
        write_golden(args.golden, counts, limits)
        golden = counts
    elif not exists:
        print(f"no {os.path.relpath(args.golden)}: --update writes it")
    if compare(counts, golden, limits):
        return 0
    if not args.update:
        print("If this is meant: tools/fast_path.py --update, and say why in the commit.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
