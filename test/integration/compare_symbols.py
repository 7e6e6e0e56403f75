#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""compare_symbols.py - two outputs of `addr2line -afi`, frame by frame.

    compare_symbols.py OURS THEIRS

For each address the frames must be equal in number, and each must have the same file and line.  Names
must be equal where there is a line (several symbols may share an address) and addr2line knows the
linker's name: for functions of C++ without one in the debug information, such as those of unnamed name
spaces, it prints the plain name or the symbol at the address, whosever that is.
addr2line 2.40 mistakes the file of some lines of DWARF 5 for the first one of its table; then the numbers
must be equal.  Exit status 1 and the first differences when they are not.
"""
import os
import re
import sys


def read(path):
    """{address: [(name, file, line), ...]}"""
    places, frames, name = {}, [], None
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file.read().splitlines():
            if re.fullmatch(r"0x[0-9a-f]{16}", line):
                frames = places.setdefault(int(line, 16), [])
                name = None
            elif name is None:
                name = line
            else:
                line = re.sub(r" \(discriminator \d+\)$", "", line)
                source, _, number = line.rpartition(":")
                number = 0 if number == "?" else int(number)
                frames.append((name, os.path.normpath(source) if number else "??", number))
                name = None
    return places


def same_names(mine, other, is_cxx):
    for ours, theirs in zip(mine, other):
        is_known = theirs[0].startswith("_Z") and "." not in theirs[0] \
            and theirs[0] not in [one[0] for one in mine]
        if ours[0] != theirs[0] and ours[2] != 0 and (is_known or not is_cxx):
            return False
    return True


def same_line(mine, other, first_file):
    return mine[1:] == other[1:] or (mine[2] == other[2] and other[1] == first_file)


def main():
    ours, theirs = read(sys.argv[1]), read(sys.argv[2])
    if set(ours) != set(theirs) or not ours:
        sys.exit(f"different addresses: {len(ours)} and {len(theirs)}")
    counts = {"frames": 0, "names": 0, "lines": 0}
    inlined = 0
    files = [one[1] for frames in theirs.values() for one in frames if "program_inlined" in one[1]]
    is_cxx = any(one[0].startswith("_Z") for frames in theirs.values() for one in frames)
    first_file = files[0] if files else None
    for address in sorted(ours):
        mine, other = ours[address], theirs[address]
        inlined += len(other) > 1
        wrong = None
        if len(mine) != len(other):
            wrong = "frames"
        elif not all(same_line(a, b, first_file) for a, b in zip(mine, other)):
            wrong = "lines"
        elif not same_names(mine, other, is_cxx):
            wrong = "names"
        if wrong:
            counts[wrong] += 1
            if counts[wrong] <= 3:
                print(f"{address:#x}: {wrong}", *(f"  ours   {one}" for one in mine),
                      *(f"  theirs {one}" for one in other), sep="\n")
    total = sum(len(one) for one in theirs.values())
    print(f"{len(ours)} addresses, {inlined} of them in inlined calls, {total} frames; different:",
          ", ".join(f"{kind} {count}" for kind, count in counts.items()))
    sys.exit(any(counts.values()))


if __name__ == "__main__":
    main()
