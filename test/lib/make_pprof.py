#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_pprof.py - writes a profile.proto from a text that people can read.

    make_pprof.py OUT <TEXT

    types inuse_objects/count inuse_space/bytes     the last one is what is shown
    period 524288                                   of space/bytes, unless the line names another type
    main@server.c:412;work@work.c:7+copy@copy.h:3 = 2 64 thread=io-3 bytes=32

A stack is written root first, what was inlined into the same location behind a +.  A name may hold
escapes such as \\x1b.  Numbers behind a label make it one, with a unit behind a /.
"""
import sys


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


class Writer:
    def __init__(self):
        self.texts, self.functions, self.locations = {b"": 0}, {}, {}
        self.parts, self.period, self.period_type = [], 1, "space/bytes"

    def text(self, text):
        raw = text.encode("utf-8").decode("unicode_escape").encode("latin-1")
        return self.texts.setdefault(raw, len(self.texts))

    def line(self, frame):
        frame, _, line = frame.rpartition(":")
        name, _, file = frame.partition("@")
        if frame not in self.functions:
            self.functions[frame] = len(self.functions) + 1
            self.parts.append(field(5, field(1, self.functions[frame]) + field(2, self.text(name)) +
                                    field(3, self.text(name)) + field(4, self.text(file))))
        return field(4, field(1, self.functions[frame]) + field(2, int(line)))

    def location(self, text):
        if text not in self.locations:
            number = self.locations[text] = len(self.locations) + 1
            lines = b"".join(self.line(frame) for frame in reversed(text.split("+")))
            self.parts.append(field(4, field(1, number) + field(3, 0x1000 * number) + lines))
        return self.locations[text]

    def label(self, word):
        key, _, value = word.partition("=")
        number, _, unit = value.partition("/")
        if number.isdigit():
            return field(3, field(1, self.text(key)) + field(3, int(number)) +
                         field(4, self.text(unit)))
        return field(3, field(1, self.text(key)) + field(2, self.text(value)))

    def sample(self, stack, words):
        values = b"".join(varint(int(word)) for word in words if "=" not in word)
        labels = b"".join(self.label(word) for word in words if "=" in word)
        locations = b"".join(varint(self.location(text)) for text in reversed(stack.split(";")))
        self.parts.append(field(2, field(1, locations) + field(2, values) + labels))

    def read(self, line):
        if line.startswith("types "):
            for word in line.split()[1:]:
                name, unit = word.split("/")
                self.parts.append(field(1, field(1, self.text(name)) + field(2, self.text(unit))))
                self.default = self.text(name)
        elif line.startswith("period "):
            self.period = int(line.split()[1])
            self.period_type = (line.split() + [self.period_type])[2]
        elif line:
            stack, _, rest = line.rpartition(" = ")
            self.sample(stack, rest.split())

    def finish(self):
        name, unit = self.period_type.split("/")
        self.parts.append(field(11, field(1, self.text(name)) + field(2, self.text(unit))))
        self.parts.append(field(12, self.period))
        self.parts.append(field(14, self.default))
        return b"".join(field(6, text) for text in self.texts) + b"".join(self.parts)


def main():
    writer = Writer()
    for line in sys.stdin:
        writer.read(line.strip())
    with open(sys.argv[1], "wb") as out:
        out.write(writer.finish())


if __name__ == "__main__":
    main()
