#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""read_proto.py FILE - the sums of the values of all samples of a profile.proto in gzip.

Fails with a sentence when the file is damaged or refers to what is not there.
"""
import gzip
import sys


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """Yield (number, value) of each field of a message; bytes where they are of that kind."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        if tag & 7 == 2:
            if at + value > len(data):
                sys.exit("a field reaches beyond the end")
            value, at = data[at:at + value], at + value
        elif tag & 7 != 0:
            sys.exit(f"wire type {tag & 7}")
        yield tag >> 3, value


def packed(data):
    at, values = 0, []
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def main():
    with gzip.open(sys.argv[1]) as file:
        profile = list(fields(file.read()))
    strings = [value for number, value in profile if number == 6]
    mappings = [dict(fields(value)) for number, value in profile if number == 3]
    locations = [dict(fields(value)) for number, value in profile if number == 4]
    if not strings or strings[0] != b"":
        sys.exit("the first string is not empty")
    for kind in (mappings, locations):
        if [one[1] for one in kind] != list(range(1, len(kind) + 1)):
            sys.exit("ids are not 1, 2, 3 ...")
    for one in mappings:
        if one[2] >= one[3] or one[5] >= len(strings) or one.get(6, 0) >= len(strings):
            sys.exit(f"a strange mapping: {one}")
    for one in locations:
        mapping = one.get(2, 0)
        if mapping and not mappings[mapping - 1][2] <= one[3] < mappings[mapping - 1][3]:
            sys.exit(f"a location outside of its mapping: {one}")
    types = sum(number == 1 for number, value in profile)
    sums = [0] * types
    for value in (value for number, value in profile if number == 2):
        sample = list(fields(value))
        ids = [number for key, content in sample if key == 1 for number in packed(content)]
        values = [number for key, content in sample if key == 2 for number in packed(content)]
        if len(values) != types or not ids or max(ids) > len(locations) or min(ids) < 1:
            sys.exit(f"a strange sample: {sample}")
        sums = [a + b for a, b in zip(sums, values)]
    print(*sums[:4])


if __name__ == "__main__":
    main()
