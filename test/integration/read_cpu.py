#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""read_cpu.py - what is in a CPU profile of gperftools' binary format, or what is wrong with it.

    read_cpu.py FILE

Prints one line: period in microseconds, samples, stacks, lines of maps.  Exit status 1 for a file that is not
complete.
"""
import struct
import sys


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    words = struct.unpack(f"={len(data) // 8}Q", data[:len(data) // 8 * 8])
    if words[:3] != (0, 3, 0) or words[4] != 0:
        sys.exit("no header")
    at, samples, stacks = 5, 0, 0
    while words[at] != 0:
        count, depth = words[at:at + 2]
        if not 1 <= depth <= 254 or words[at + 2] == 0:
            sys.exit(f"a record of depth {depth} at word {at}")
        samples, stacks, at = samples + count, stacks + 1, at + 2 + depth
    if words[at + 1:at + 3] != (1, 0):
        sys.exit("no trailer")
    maps = data[(at + 3) * 8:].decode()
    if not maps.endswith("\n") or any(" r-xp " not in f"{line} " and "xp " not in line
                                      for line in maps.splitlines()):
        sys.exit("the maps are not whole")
    print(f"period {words[3]} samples {samples} stacks {stacks} maps {len(maps.splitlines())}")


main()
