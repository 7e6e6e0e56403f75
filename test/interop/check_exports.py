#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_exports.py FOLDER TRUTH - hostile.{json,speedscope.json,csv,svg,folded} have the totals of TRUTH.

TRUTH has lines "TYPE TOTAL", and "samples COUNT".  Each file is read by a parser of Python's library; what
the formats demand beyond their syntax is asked for here.
"""
import csv
import json
import os
import sys
import xml.etree.ElementTree

SVG = "{http://www.w3.org/2000/svg}"
UNITS = ("none", "bytes", "nanoseconds", "microseconds", "milliseconds", "seconds")


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found!r} and not {expected!r}")


def check_json(path, totals, samples):
    with open(path, encoding="utf-8") as file:
        profile = json.load(file)
    expect("json: totals", {t["name"]: t["total"] for t in profile["types"]}, totals)
    expect("json: samples", len(profile["samples"]), samples)
    for index, one in enumerate(profile["types"]):
        expect(f"json: sum of {one['name']}",
               sum(sample["values"][index] for sample in profile["samples"]), one["total"])
    for sample in profile["samples"]:
        names = [profile["frames"][frame]["name"] for frame in sample["stack"]]
        expect("json: the root", names[-1], "main")
        expect("json: lines", len(sample["lines"]), len(names))
    names = [frame["name"] for frame in profile["frames"]]
    expect("json: frames are one per function", len(names), len(set(names)))
    expect("json: names survive", "</title><script>alert(1)</script>" in names, True)


def check_speedscope(path, totals):
    """What speedscope's schema asks of a file of sampled profiles."""
    with open(path, encoding="utf-8") as file:
        whole = json.load(file)
    expect("speedscope: schema", whole["$schema"],
           "https://www.speedscope.app/file-format-schema.json")
    frames = whole["shared"]["frames"]
    for frame in frames:
        expect("speedscope: a frame's fields", set(frame) <= {"name", "file", "line", "col"}, True)
        expect("speedscope: a frame's name", isinstance(frame["name"], str), True)
    expect("speedscope: profiles", [one["name"] for one in whole["profiles"]], list(totals))
    active = whole["profiles"][whole["activeProfileIndex"]]
    expect("speedscope: what is shown", active["name"], "inuse_space")
    for one in whole["profiles"]:
        expect("speedscope: fields", set(one), {"type", "name", "unit", "startValue", "endValue",
                                                "samples", "weights"})
        expect("speedscope: type", one["type"], "sampled")
        expect("speedscope: unit", one["unit"] in UNITS, True)
        expect("speedscope: lengths", len(one["samples"]), len(one["weights"]))
        expect(f"speedscope: total of {one['name']}", sum(one["weights"]), totals[one["name"]])
        expect("speedscope: end", one["endValue"] - one["startValue"], totals[one["name"]])
        for stack in one["samples"]:
            expect("speedscope: frames exist", all(0 <= i < len(frames) for i in stack), True)
            expect("speedscope: the root", frames[stack[0]]["name"], "main")


def check_csv(path, totals, samples):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    expect("csv: rows", len(rows), samples)
    for name, total in totals.items():
        expect(f"csv: sum of {name}", sum(int(row[name]) for row in rows), total)
    for row in rows:
        expect("csv: cells", None in row or None in row.values(), False)
        for key, cell in row.items():
            if key not in totals and cell[:1] in tuple("=+-@\t\r"):
                sys.exit(f"csv: a spreadsheet would compute {cell!r}")
        expect("csv: the root", row["stack"].split(";")[0], "main")


def check_svg(path, totals):
    root = xml.etree.ElementTree.parse(path).getroot()
    boxes = [group for group in root.iter(f"{SVG}g") if group.get("class") == "f"]
    expect("svg: scripts", len(list(root.iter(f"{SVG}script"))), 1)
    for element in root.iter():
        for name in element.attrib:
            expect("svg: handlers and links", name.startswith("on") or "href" in name, False)
    texts = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    expect("svg: the total", f"total {totals['inuse_space']} bytes" in texts, True)
    below = {}
    for box in boxes:
        rect = box.find(f"{SVG}rect")
        row = float(rect.get("y"))
        below[row] = below.get(row, 0) + float(rect.get("width"))
    widths = [below[row] for row in sorted(below)]
    expect("svg: rows get no wider", all(a >= b - 0.1 for a, b in zip(widths, widths[1:])), True)
    expect("svg: all is as wide as main", abs(widths[0] - widths[1]) < 0.1, True)


def check_folded(path, totals):
    total = 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            stack, _, value = line.rstrip("\n").rpartition(" ")
            expect("folded: the root", stack.split(";")[0], "main")
            total += int(value)
    expect("folded: the total", total, totals["inuse_space"])


def main():
    folder, truth = sys.argv[1:]
    with open(truth, encoding="utf-8") as file:
        totals = {name: int(value) for name, value in (line.split() for line in file)}
    samples = totals.pop("samples")
    check_json(os.path.join(folder, "hostile.json"), totals, samples)
    check_speedscope(os.path.join(folder, "hostile.speedscope.json"), totals)
    check_csv(os.path.join(folder, "hostile.csv"), totals, samples)
    check_svg(os.path.join(folder, "hostile.svg"), totals)
    check_folded(os.path.join(folder, "hostile.folded"), totals)


main()
