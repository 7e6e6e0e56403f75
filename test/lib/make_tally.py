#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_tally.py OUT end|cut PROFILE...: a recording (prof/frames.h) whose snapshots, a second apart, are these.

With "cut" it has no last frame, as that of a killed program.
"""
import struct
import sys
import zlib

HEAD, SNAP, BYE = 1, 2, 5


def frame(kind, seconds, payload):
    head = b"TFRM" + struct.pack("<HHIIQI", kind, 0, len(payload), len(payload), seconds * 10**9,
                                 zlib.crc32(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload + bytes(-len(payload) % 8)


out, end, *profiles = sys.argv[1:]
content = b"TALLY\r\n\x1a" + struct.pack("<HHIQQ", 1, 0, 32, 1700000000 * 10**9, 0)
content += frame(HEAD, 0, b"program=/bin/made\npid=4711\nrate=1\n")
for second, path in enumerate(profiles, 1):
    with open(path, "rb") as file:
        content += frame(SNAP, second, file.read())
if end == "end":
    content += frame(BYE, len(profiles), b"dropped=0\n")
with open(out, "wb") as file:
    file.write(content)
