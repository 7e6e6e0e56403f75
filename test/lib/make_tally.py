#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_tally.py OUT end|lost|cut PROFILE...: a recording (contract/frames.h) whose snapshots, a second apart, are these.

With "lost" its last frame says that the last snapshot could not be written, with "cut" it has none, as that of
a killed program.  cpu:PROFILE is the processor's time at the
moment of the snapshot that follows.
"""
import struct
import sys
import zlib

HEAD, SNAP, BYE, CPU = 1, 2, 5, 6


def frame(kind, seconds, payload):
    head = b"TFRM" + struct.pack("<HHIIQI", kind, 0, len(payload), len(payload), seconds * 10**9,
                                 zlib.crc32(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload + bytes(-len(payload) % 8)


out, end, *profiles = sys.argv[1:]
content = b"TALLY\r\n\x1a" + struct.pack("<HHIQQ", 1, 0, 32, 1700000000 * 10**9, 0)
content += frame(HEAD, 0, b"program=/bin/made\npid=4711\nrate=1\n")
second = 1
for path in profiles:
    is_cpu = path.startswith("cpu:")
    with open(path.removeprefix("cpu:"), "rb") as file:
        content += frame(CPU if is_cpu else SNAP, second, file.read())
    second += not is_cpu
if end != "cut":
    lines = b"dropped=0\ncpu_lost=3\n" + (b"end_snapshot=0\n" if end == "lost" else b"")
    content += frame(BYE, second - 1, lines)
with open(out, "wb") as file:
    file.write(content)
