#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""read_frames.py - an independent reader of containers (src/contract/frames.h), for tests.

    read_frames.py FILE             a line for each frame, then `whole` or `cut BYTES`
    read_frames.py --totals FILE    name=sum for each sample type of the last snapshot
    read_frames.py --time FILE      the same of the last profile of the processor's time
    read_frames.py --prefixes FILE  every prefix of the file gives the frames that end in it, no others

It is written from the description alone and shares nothing with the command's reader.  What it cannot
follow is one sentence and exit status 1.
"""
import sys
import zlib

NAMES = {1: "HEAD", 2: "SNAP", 3: "STAT", 4: "NOTE", 5: "BYE", 6: "CPU"}


def number(data, at, count):
    return int.from_bytes(data[at:at + count], "little")


def read_frames(data):
    """The whole frames as (type, time, payload, end of the frame), and where the last one ends."""
    if len(data) < 32:
        return [], 0
    if data[:8] != b"TALLY\r\n\x1a":
        raise ValueError("the file does not begin with the mark")
    if number(data, 8, 2) != 1:
        raise ValueError("another major version")
    at = number(data, 12, 4)
    frames = []
    while at + 32 <= len(data):
        head = data[at:at + 32]
        stored = number(head, 8, 4)
        end = at + 32 + (stored + 7) // 8 * 8
        payload = data[at + 32:at + 32 + stored]
        if head[:4] != b"TFRM" or zlib.crc32(head[:28]) != number(head, 28, 4):
            break
        if end > len(data) or zlib.crc32(payload) != number(head, 24, 4):
            break
        if any(data[at + 32 + stored:end]):
            raise ValueError("what follows a payload is not zero")
        if number(head, 12, 4) != stored or number(head, 6, 2) != 0:
            raise ValueError("the library compresses nothing")
        frames.append((number(head, 4, 2), number(head, 16, 8), payload, end))
        at = end
    return frames, at


def varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            return value, at


def fields(data):
    """The fields of a protocol buffer message: number, then an integer or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            if len(value) != length:
                raise ValueError("a field is longer than its message")
        else:
            raise ValueError("a kind of field that profiles do not have")
        yield key >> 3, value


def totals(profile):
    """Sums of the sample types by name, in their order; what a sample refers to must be there."""
    types, samples, strings, locations, mappings = [], [], [], set(), set()
    for field, value in fields(profile):
        if field == 1:
            types.append(dict(fields(value)).get(1, 0))
        elif field == 2:
            samples.append(dict(fields(value)))
        elif field == 3:
            mappings.add(dict(fields(value))[1])
        elif field == 4:
            location = dict(fields(value))
            locations.add(location[1])
            if location.get(2, 0) not in mappings | {0}:
                raise ValueError("a location in a mapping that is not there")
        elif field == 6:
            strings.append(value.decode())
    sums = [0] * len(types)
    for sample in samples:
        at, stack = 0, sample[1]
        while at < len(stack):
            location, at = varint(stack, at)
            if location not in locations:
                raise ValueError("a sample at a location that is not there")
        at, values = 0, []
        while at < len(sample[2]):
            value, at = varint(sample[2], at)
            values.append(value)
        if len(values) != len(types):
            raise ValueError("a sample has %d values for %d types" % (len(values), len(types)))
        sums = [a + b for a, b in zip(sums, values)]
    return [(strings[name], value) for name, value in zip(types, sums)]


def describe(kind, time, payload):
    text = "%s %.3f" % (NAMES.get(kind, kind), time / 1e9)
    if kind in (1, 5):
        return text + "".join(" " + line for line in payload.decode().splitlines())
    if kind in (2, 6):
        return text + " %d bytes" % len(payload)
    if kind == 3:
        if len(payload) % 48 or not payload:
            raise ValueError("half a point")
        return text + " %d points" % (len(payload) // 48)
    return text + " " + payload.decode()


def check_order(frames):
    """Frames and points are in order of time."""
    times = [time for _, time, _, _ in frames]
    points = [number(payload, at, 8) for kind, _, payload, _ in frames if kind == 3
              for at in range(0, len(payload), 48)]
    if times != sorted(times) or points != sorted(points):
        raise ValueError("frames or points are not in order of time")


def check_prefixes(data):
    frames, _ = read_frames(data)
    ends = [end for _, _, _, end in frames]
    # Every length near an end of a frame, and some hundred in between.
    step = max(1, len(data) // 400)
    lengths = set(range(0, len(data), step))
    for end in ends + [32]:
        lengths.update(range(max(0, end - 40), min(len(data), end + 40)))
    for length in sorted(lengths):
        found, _ = read_frames(data[:length])
        expected = sum(end <= length for end in ends)
        if len(found) != expected:
            raise ValueError("%d bytes have %d frames, not %d" % (length, len(found), expected))
    print("%d prefixes of %d frames" % (len(lengths), len(frames)))


def main():
    with open(sys.argv[-1], "rb") as file:
        data = file.read()
    if "--prefixes" in sys.argv:
        check_prefixes(data)
        return
    frames, end = read_frames(data)
    check_order(frames)
    if "--totals" in sys.argv or "--time" in sys.argv:
        wanted = 6 if "--time" in sys.argv else 2
        last = [payload for kind, _, payload, _ in frames if kind == wanted][-1]
        for name, value in totals(last):
            print("%s=%d" % (name, value))
        return
    for kind, time, payload, _ in frames:
        if kind in (2, 6):
            totals(payload)
        print(describe(kind, time, payload))
    print("whole" if end == len(data) else "cut %d" % (len(data) - end))


if __name__ == "__main__":
    try:
        main()
    except (ValueError, IndexError, KeyError) as problem:
        print("%s: %s" % (sys.argv[-1], problem))
        sys.exit(1)
