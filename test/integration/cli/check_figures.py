#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_figures.py TALLY PROGRAM FOLDER: the figures of many small runs hold, and none is shown without its margin.

Each run is of program_figures.c with another seed, rate and end.  Nothing here depends on luck: what is
asserted of an estimate is that it respects what was counted, not that it is near.
"""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from read_frames import number, read_frames  # noqa: E402

TALLY, PROGRAM, FOLDER = sys.argv[1:4]
RATES = ["exact", "1K", "16K", "dev", "prod"]
ENDS = ["exit"] * 4 + ["_exit", "abort"]
RUNS = 20
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SIZE = r"\d[\d.,]* (?:B|KiB|MiB|GiB)\b"
MARGIN = r"(?:± [\d.]+|−\d+ \+\d+) %"  # the sides may differ
VIEWS = ["--top", "--top --cum", "--tree", "--peek=object", "--list=object", "--traces", "--sites", "--threads"]
METRICS = ["inuse_space", "alloc_objects", "peak_space", "temp_objects", "slack_space", "pinned_space"]
VIEWED = [0, 2, 3]  # one exact, two sampled
STATUS = {"exit": 0, "_exit": 0, "abort": 134}
what = ""


def fail(why, text=""):
    sys.exit(f"FAILED: {what}: {why}\n{text}")


def require(truth, why, text=""):
    if not truth:
        fail(why, text)


def tally(*words, status=0):
    env = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"], "COLUMNS": "110"}
    done = subprocess.run([TALLY, *words], cwd=FOLDER, env=env, text=True, capture_output=True)
    require(done.returncode == status, f"{words}: status {done.returncode}", done.stdout + done.stderr)
    return done


def bytes_of(text):
    value, unit = re.match(r"(\d[\d.,]*) (\w+)", text).groups()
    return float(value.replace(",", "")) * UNITS[unit]


def is_shown(text, value):
    """Whether a text of a size is that of the value, as far as its digits go."""
    digits, unit = text.split()[:2]
    return abs(bytes_of(text) - value) <= (0.051 if "." in digits else 0.51) * UNITS[unit] + 1


class Card:
    """The figures of a card by their names."""

    def __init__(self, text):
        self.text = text
        self.figures = {}
        for line in text.split("memory over time")[0].splitlines():
            for name, figure in re.findall(r"(?:^  |   )([a-z][a-z0-9. ]*?)  +(\S.*?)(?=   |$)", line):
                self.figures[name] = figure
        self.rows = re.findall(r"^.*\d\.\d %  .*$", text.split("where the peak was")[-1], re.M)

    def __getitem__(self, name):
        require(name in self.figures, f"no {name} on the card", self.text)
        return self.figures[name]


def check_series(path):
    """The counts of the recording: of the highest point and of the last one."""
    with open(os.path.join(FOLDER, path), "rb") as file:
        frames, _ = read_frames(file.read())
    live = [number(frame[2], at + 16, 8) for frame in frames if frame[0] == 3
            for at in range(0, len(frame[2]) - 47, 48)]
    require(live, "no series")
    return max(live), live[-1]


def check_limits(path, is_exact, highest, last, count):
    limits = ["--max-peak=1T", "--max-leaks=1T", "--max-allocs=1000000000000"]
    checks = {one["name"]: one for one in json.loads(tally("check", "--format=json", *limits, path).stdout)["checks"]}
    for name, one in checks.items():
        require(one["kind"] == ("exact" if is_exact or name == "leaks" else "estimate"), f"{name} is {one}")
        require(("low" in one) == (one["kind"] != "exact"), f"{name} is {one}")
        if "low" in one:
            require(one["low"] <= one["value"] <= one["high"], f"{name} lies outside of its interval: {one}")
            require(one["confidence"] == 0.95, f"{name} has no confidence: {one}")
    peak, leaks, allocs = checks["peak"], checks["leaks"], checks["allocs"]
    require(leaks["value"] == last, f"{last} bytes were live, not {leaks}")
    require(peak["value"] >= highest >= last, f"{highest} bytes were counted, the peak is {peak}")
    require(peak.get("low", peak["value"]) >= highest, f"{highest} bytes were counted, the peak may be {peak}")
    if is_exact:
        require(count <= allocs["value"] <= count + 300, f"{count} allocations are {allocs}")
    return checks


def check_card(card, checks, is_exact, highest, last):
    peak = card["peak"]
    require(is_shown(card["live at exit"], last), f"{last} bytes are live at exit", card.text)
    require(re.match(rf"at most {SIZE} in [\d,]+ blocks?$", card["leaked"]), "leaked", card.text)
    require(is_shown(card["leaked"][8:], last), f"{last} bytes are not freed", card.text)
    if is_exact:
        require("±" not in card.text, "an exact card has a margin", card.text)
        require(is_shown(peak, checks["peak"]["value"]), f"the peak is {checks['peak']}", card.text)
        return
    if peak.startswith("at least "):
        require(is_shown(peak[9:], highest), f"{highest} bytes were counted", card.text)
    else:
        require(re.match(rf"{SIZE} {MARGIN}( at |$)", peak), "the peak has no margin", card.text)
        require(is_shown(peak, checks["peak"]["value"]), f"the peak is {checks['peak']}", card.text)
    require(re.match(rf"{SIZE} {MARGIN}$|at least {SIZE}$|0 ± {SIZE}$", card["allocated"]), "allocated", card.text)
    require("±" in card["temporary"] or card["temporary"] == "unknown", "temporary", card.text)
    for row in card.rows:
        require(re.search(rf"\d %  +{SIZE} {MARGIN}  ", row), f"a row without a margin: {row}", card.text)


def check_cut(path, card):
    """A recording without an end: everything says until when it reaches, and no limit passes."""
    require(re.search(r"\(± 95 % sure\) until |recorded until ", card.text), "until when?", card.text)
    require(card["leaked"].startswith("unknown"), "leaked", card.text)
    for limit in "--max-peak=1T", "--max-leaks=1T", "--max-allocs=1000000000000", "--max-rss=1T":
        tally("check", limit, path, status=4)
    require("reaches only until" in tally("report", path).stderr, "a report does not say until when it reaches")
    require("  reaches    only until" in tally("info", path).stdout, "info does not say until when it reaches")


def numbers_of(text):
    """Sizes, times and counts that stand in a view, each with what follows it."""
    found = []
    lines = text.splitlines()
    average = lines[1].find("avg") + 3 if len(lines) > 1 and " avg " in lines[1] else None
    for line in lines[1:]:
        line = re.sub(r"   bytes: .*", "", line)  # labels
        for match in re.finditer(rf"(?<![\w./:±,-])({SIZE}|\d+(?:,\d{{3}})*(?= [±−]| blocks?))", line):
            if match.group(0) not in ("0 B", "0") and match.end() != average:
                found.append((match.group(0), line[match.end():]))
    return found


def check_views(path, is_exact, seed, last):
    for at, view in enumerate(VIEWS):
        for metric in METRICS[0], METRICS[(at + seed) % len(METRICS)]:
            words = view.split() + ["-n", "5", f"--metric={metric}"]
            text = tally("report", *words, path).stdout
            head = text.splitlines()[0] if text else ""
            require(head.startswith(metric), f"report {words}", text)
            if is_exact:
                require("±" not in text and " (exact) · " in head, f"report {words}: margins", text)
                continue
            found = re.search(rf" (?:± \S+|−\d+ \+\d+) (?:%|\w+) \(sampled, 95 % sure(?:; ({SIZE}) counted)?\) · ", head)
            is_nothing = head.startswith(f"{metric} 0 ± unknown")
            require(found or is_nothing, f"report {words}: heading", text)
            if metric == "inuse_space":
                require(is_shown(found.group(1), last), f"report {words}: {last} bytes are live", text)
            for figure, rest in numbers_of(text):
                require(rest.startswith((" ±", " −")), f"report {words}: {figure} has no margin", text)


def check_info(path, is_exact):
    text = tally("info", path).stdout
    metrics = re.findall(r"^ +(?:metrics +)?(\w+_(?:space|objects)) .*$", text, re.M)
    require(len(metrics) == 9, "info lists other metrics", text)
    profile = json.loads(tally("info", "--format=json", path).stdout)["profile"]
    for metric in profile["metrics"]:
        line = re.search(rf"^.*\b{metric['name']} .*$", text, re.M).group(0)
        require(metric["is_exact"] == is_exact, f"info: {metric}")
        require(is_exact == ("margin" not in metric), f"info: {metric}")
        require(is_exact != ("±" in line or "−" in line) or metric["total"] == 0, f"info: {line}")


def check_diff(before, after):
    for view in ["--top", "--sites", "--tree"]:
        text = tally("diff", view, before, after).stdout
        for figure, rest in numbers_of(text):
            require(rest.startswith(" ±"), f"diff {view}: {figure}", text)


def main():
    global what
    last_sampled = None
    for seed in range(RUNS):
        rate, end = RATES[seed % len(RATES)], ENDS[seed % len(ENDS)]
        what, path = f"seed {seed}, rate {rate}, {end}", f"{seed}.tally"
        run = tally("run", f"--rate={rate}", "--every=2ms", "-o", path, PROGRAM, str(seed), end, status=STATUS[end])
        if "no summary" in run.stderr:
            require(end != "exit", "no summary", run.stderr)
            continue
        card, is_exact = Card(run.stderr), rate == "exact"
        if end != "exit":
            check_cut(path, card)
            continue
        highest, last = check_series(path)
        checks = check_limits(path, is_exact, highest, last, int(run.stdout))
        check_card(card, checks, is_exact, highest, last)
        check_info(path, is_exact)
        if seed in VIEWED:
            check_views(path, is_exact, seed, last)
        if not is_exact and last_sampled is not None and seed < 10:
            check_diff(last_sampled, path)
        last_sampled = last_sampled if is_exact else path
    print(f"{RUNS} runs hold")


main()
