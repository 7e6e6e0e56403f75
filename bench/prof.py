#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the heap profiler costs: at the usual rate, recording everything, and while a profile is written.

    usual   real programs with MALLOC_CONF=prof:true beside the same without; a third column is the second
            once more, and says how far two equal things are apart on this machine
    count   instructions of the same programs, by valgrind: what of that is not the neighbours' doing
    run     the same programs as `tally run` starts them: one sample per 64 KiB, a thread that writes the
            recording, the control socket.  What the program itself takes, not the command's work on the
            names after its end; run-count has its instructions
    every   lg_prof_sample:0 on bench_prof parse, a program that mostly allocates, and on real programs, which
            have no frame pointers; heaptrack beside it, if installed
    live    bytes that a recorded object costs on top, as long as it lives
    dump    milliseconds for 20,000 stacks, and the longest wait of another thread in malloc meanwhile

Runs take turns within each round.  Of the times the minimum counts, of the peak sizes the median.  Nothing
here passes or fails on a figure.
"""
import glob
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import benchlib
import programs

# Of equal length: what python3 holds at its peak depends on the length of its environment (6 of 90 MiB).
USUAL = {"off": "prof:false,prof_prefix:", "again": "prof:false,prof_prefix:",
         "512KiB": "prof:true,prof_prefix:x"}
EVERY = {"off": "prof:false,prof_prefix:x,lg_prof_sample:0",
         "every": "prof:true,prof_prefix:xy,lg_prof_sample:0"}
LIVE = ((1_000_000, 16), (1_000_000, 32), (300_000, 200), (50_000, 3000))
STACKS = 20000


class Bench:
    def __init__(self, options, directory):
        self.library = benchlib.Allocator("tally", os.path.join(options.build, "libtally.so"))
        if not os.path.isfile(self.library.path):
            benchlib.stop(f"{self.library.path} is absent: build it with 'make'.")
        self.launcher = benchlib.find_program(options, "bench_launch")
        self.prof = benchlib.find_program(options, "bench_prof")
        self.micro = benchlib.find_program(options, "bench_micro")
        self.cpu = benchlib.bench_cpu()
        self.directory = directory
        self.rows = []
        self.failed = False

    def note(self, what, name, variant, number, **figures):
        for key, value in figures.items():
            self.rows.append([what, name, variant, number, key, value])

    def launch(self, conf, argv, cpu=None, options=(), client=None):
        """One run under tally with these options; its figures."""
        options = [*options, "--env", f"MALLOC_CONF={conf}"] if conf else options
        # The loader may have skipped the preload: a probe looks.
        benchlib.finish(benchlib.start(self.launcher, self.library, [self.micro, "hello"], cpu,
                                       options))
        process = benchlib.start(self.launcher, self.library, argv, cpu, options)
        if client:
            try:
                client(lambda: process.poll() is None)
            except RuntimeError as error:
                process.kill()
                process.communicate()
                raise benchlib.RunFailed(str(error)) from None
        figures = benchlib.parse_pairs(benchlib.finish(process))
        figures["total_ms"] = figures["user_ms"] + figures["sys_ms"]
        return figures


def take_turns(bench, what, name, variants, rounds, run):
    """{variant: [figures of a round, ...]}; a run that fails ends this name."""
    results = {variant: [] for variant in variants}
    order = list(variants)
    for number in range(rounds):
        first = number % len(order)
        for variant in order[first:] + order[:first]:
            try:
                figures = run(variant, variants[variant])
            except benchlib.RunFailed as failure:
                print(f"failed: {what} {name} {variant}: {failure}", file=sys.stderr)
                bench.failed = True
                return None
            results[variant].append(figures)
            bench.note(what, name, variant, number + 1,
                       **{key: figures[key] for key in ("time_ms", "peak_kib") if key in figures})
    return results


def best(results, variant):
    return min(figures["time_ms"] for figures in results[variant])


def peak(results, variant):
    return statistics.median(figures["peak_kib"] for figures in results[variant])


def middle(results, base, variant):
    """The median quotient within a round: runs that are neighbours have the same neighbours."""
    return statistics.median(b["time_ms"] / a["time_ms"]
                             for a, b in zip(results[base], results[variant]))


def spread(results, base, variant):
    """Least and largest quotient within a round."""
    quotients = [b["time_ms"] / a["time_ms"] for a, b in zip(results[base], results[variant])]
    return f"{min(quotients):.3f}..{max(quotients):.3f}"


def program_run(bench, job):
    cpu = None if job.parallel else bench.cpu

    def run(_variant, conf):
        figures = bench.launch(conf, job.argv, cpu,
                               [*job.launch_options, "--stdout", os.devnull], job.client)
        # CPU time for all of them: the wall clock says more about the neighbours.
        return {"time_ms": figures["total_ms"], "peak_kib": figures["maxrss_kib"]}

    return run


def jobs(options, directory, scale):
    for name, prepare in programs.PROGRAMS.items():
        if options.only in name:
            try:
                yield name, prepare(directory, scale)
            except programs.Absent as reason:
                print(f"{name} is skipped: {reason}.", file=sys.stderr)


def usual(bench, options):
    rows, product, again = [], [], []
    for name, job in jobs(options, bench.directory, 1):
        results = take_turns(bench, "usual", name, USUAL, options.rounds, program_run(bench, job))
        if not results:
            continue
        ratio, noise = (best(results, v) / best(results, "off") for v in ("512KiB", "again"))
        product.append(ratio)
        again.append(noise)
        grown = peak(results, "512KiB") - peak(results, "off")
        allowed = 0.01 * peak(results, "off") + 2048
        rows.append([name, f"{best(results, 'off'):.0f} ms", f"{ratio:.4f}",
                     spread(results, "off", "512KiB"), f"{noise:.4f}",
                     f"{peak(results, 'off') / 1024:.1f} MiB", f"{grown:+.0f} KiB",
                     f"{allowed:.0f} KiB"])
    if rows:
        rows.append(["mean", "", f"{statistics.geometric_mean(product):.4f}", "",
                     f"{statistics.geometric_mean(again):.4f}", "", "", ""])
    print("\nAt 512 KiB, CPU time as a multiple of that without (limit 1.01), least and largest of a"
          "\nround, the same without twice; peak memory, what is added, what may be added.\n")
    benchlib.print_table(["program", "off", "on/off", "of rounds", "again/off", "peak", "added",
                          "allowed"], rows)


def count_instructions(bench, conf, argv, launch_options):
    """Instructions of one process, which valgrind counts; its children are not in it."""
    environment = {**benchlib.clean_environment(), "LD_PRELOAD": bench.library.path}
    if conf:
        environment["MALLOC_CONF"] = conf
    standard_input = os.devnull
    for option, value in zip(launch_options[::2], launch_options[1::2]):
        if option == "--env":
            name, _, text = value.partition("=")
            environment[name] = text
        elif option == "--stdin":
            standard_input = value
    with open(standard_input, encoding="utf-8") as given:
        done = subprocess.run(["valgrind", "--tool=cachegrind", "--cache-sim=no",
                               "--cachegrind-out-file=/dev/null",
                               "--soname-synonyms=somalloc=nouserintercepts", *argv],
                              stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, env=environment, timeout=benchlib.TIMEOUT_SECONDS,
                              check=False)
    counted = re.search(r"I +refs: +([0-9,]+)", done.stderr)
    if done.returncode != 0 or not counted:
        raise benchlib.RunFailed(done.stderr.strip().splitlines()[-1])
    return int(counted.group(1).replace(",", ""))


def compiler_itself(job):
    """The arguments of cc1: gcc, the driver, only starts it."""
    compiler = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True,
                              check=True).stdout.strip()
    return [compiler, "-quiet", "-O2", job.argv[3], "-o", os.devnull]


def count(bench, options):
    if shutil.which("valgrind") is None:
        print("Instructions are not counted: valgrind is not installed.", file=sys.stderr)
        return
    rows = []
    for name, job in jobs(options, bench.directory, 0.3):
        if job.client or job.parallel:
            continue
        argv = compiler_itself(job) if name == "gcc" else job.argv
        counts = {}
        for variant in ("off", "512KiB"):
            counts[variant] = count_instructions(bench, USUAL[variant], argv, job.launch_options)
            bench.note("count", name, variant, 1, instructions=counts[variant])
        rows.append([name, f"{counts['off'] / 1e6:.0f} M",
                     f"{counts['512KiB'] / counts['off']:.4f}"])
    print("\nAt 512 KiB, instructions as a multiple of those without.\n")
    benchlib.print_table(["program", "off", "on/off"], rows)


def run_environments(bench, options):
    """{variant: TALLY_CONF}: what `tally run` sets, and as many characters that do nothing."""
    command = benchlib.find_program(options, "tally")
    file = os.path.join(bench.directory, "run.%p.tally")
    printed = subprocess.run([command, "run", "-o", file, "--preload-only", "true"], check=True,
                             capture_output=True, text=True, env=benchlib.clean_environment()).stdout
    conf = re.search(r"^TALLY_CONF='(.*)'$", printed, re.MULTILINE).group(1)
    idle = "prof:false,prof_prefix:".ljust(len(conf), "x")
    return {"off": idle, "again": idle, "run": conf}


def forget_recordings(bench, must_exist):
    found = glob.glob(os.path.join(bench.directory, "run.*.tally"))
    for path in found:
        os.remove(path)
    if must_exist and not found:
        raise benchlib.RunFailed("nothing was recorded")


def run_times(bench, job, environments, rounds, name):
    def once(variant, conf):
        # The recorder is a thread of the program: CPU time has it, on whichever CPU it runs.
        figures = bench.launch("", job.argv, None if job.parallel else bench.cpu,
                               [*job.launch_options, "--env", f"TALLY_CONF={conf}", "--stdout",
                                os.devnull], job.client)
        forget_recordings(bench, variant == "run")
        return {"time_ms": figures["total_ms"], "peak_kib": figures["maxrss_kib"]}

    return take_turns(bench, "run", name, environments, rounds, once)


def run_counts(bench, job, environments, name):
    """Instructions without, with the samples alone, and with all that `tally run` asks for."""
    counts = {}
    confs = {"off": environments["off"], "samples": "prof:true,prof_prefix:x,lg_prof_sample:16",
             "run": environments["run"]}
    for variant, conf in confs.items():
        counts[variant] = count_instructions(bench, "", job.argv,
                                             [*job.launch_options, "--env", f"TALLY_CONF={conf}"])
        forget_recordings(bench, variant == "run")
        bench.note("run-count", name, variant, 1, instructions=counts[variant])
    return [f"{counts['off'] / 1e6:.0f} M"] + [f"{counts[v] / counts['off']:.4f}"
                                               for v in ("samples", "run")]


def run_jobs(bench, options):
    for name, job in jobs(options, bench.directory, 1):
        if name == "gcc":
            job.argv = compiler_itself(job)
        yield name, job


def run(bench, options):
    rows, ratios = [], {"run": [], "again": []}
    environments = run_environments(bench, options)
    for name, job in run_jobs(bench, options):
        results = run_times(bench, job, environments, options.rounds, name)
        if not results:
            continue
        off = best(results, "off")
        for variant, list_of in ratios.items():
            list_of.append(best(results, variant) / off)
        rows.append([name, f"{off:.0f} ms", f"{ratios['run'][-1]:.4f}",
                     f"{middle(results, 'off', 'run'):.4f}", spread(results, "off", "run"),
                     f"{ratios['again'][-1]:.4f}", f"{middle(results, 'off', 'again'):.4f}",
                     f"{peak(results, 'run') - peak(results, 'off'):+.0f} KiB"])
    if rows:
        rows.append(["mean", "", f"{statistics.geometric_mean(ratios['run']):.4f}", "", "",
                     f"{statistics.geometric_mean(ratios['again']):.4f}", "", ""])
    print("\nUnder tally run (one sample per 64 KiB): CPU time of the program as a multiple of that with"
          "\nthe library alone (limit 1.03): of the least times, median of the rounds, least and largest;"
          "\nthe same without twice; what is added to the peak.\n")
    benchlib.print_table(["program", "off", "run/off", "median", "of rounds", "again/off", "median",
                          "added"], rows)


def run_count(bench, options):
    if shutil.which("valgrind") is None:
        print("Instructions are not counted: valgrind is not installed.", file=sys.stderr)
        return
    environments = run_environments(bench, options)
    rows = [[name, *run_counts(bench, job, environments, name)]
            for name, job in run_jobs(bench, options) if not job.client and not job.parallel]
    print("\nUnder tally run, instructions as a multiple of those without: the samples alone, and all."
          "\nUnder valgrind the clock goes some fifty times as fast as the program, so all has too much"
          "\nof the recorder, which looks at the clock.\n")
    benchlib.print_table(["program", "off", "samples/off", "run/off"], rows)


def heaptrack_run(bench, argv, cpu, environment):
    """CPU time of the program alone, without heaptrack's own compressor."""
    preload = benchlib.find_library("heaptrack/libheaptrack_preload.so") or next(
        iter(glob.glob("/usr/lib*/**/libheaptrack_preload.so", recursive=True)), None)
    output = os.path.join(bench.directory, "heaptrack.raw")
    library = benchlib.Allocator("heaptrack", preload)
    options = [*environment, "--env", f"DUMP_HEAPTRACK_OUTPUT={output}", "--stdout", os.devnull]
    process = benchlib.start(bench.launcher, library, argv, cpu, options)
    figures = benchlib.parse_pairs(benchlib.finish(process))
    if not os.path.getsize(output):
        raise benchlib.RunFailed("heaptrack wrote nothing")
    os.remove(output)
    return {"time_ms": figures["user_ms"] + figures["sys_ms"], "peak_kib": figures["maxrss_kib"]}


def every(bench, options):
    has_heaptrack = shutil.which("heaptrack") is not None
    glibc = benchlib.Allocator("glibc", benchlib.find_library("libc.so.6"))
    rows = []

    def measure(name, argv, cpu, launch_options):
        def run(variant, conf):
            if variant == "heaptrack":
                return heaptrack_run(bench, argv, cpu, launch_options)
            if variant == "glibc":
                process = benchlib.start(bench.launcher, glibc, argv, cpu,
                                         [*launch_options, "--stdout", os.devnull])
                figures = benchlib.parse_pairs(benchlib.finish(process))
                figures["total_ms"] = figures["user_ms"] + figures["sys_ms"]
            else:
                figures = bench.launch(conf, argv, cpu,
                                       [*launch_options, "--stdout", os.devnull])
            return {"time_ms": figures["total_ms"], "peak_kib": figures["maxrss_kib"]}

        variants = {**EVERY, "glibc": ""}
        if has_heaptrack:
            variants["heaptrack"] = ""
        results = take_turns(bench, "every", name, variants, max(3, options.rounds), run)
        if results:
            row = [name, f"{best(results, 'off'):.0f} ms",
                   f"{best(results, 'every') / best(results, 'off'):.2f}",
                   spread(results, "off", "every"),
                   f"{peak(results, 'every') / peak(results, 'off'):.2f}",
                   f"{best(results, 'glibc'):.0f} ms",
                   f"{best(results, 'every') / best(results, 'glibc'):.2f}"]
            if has_heaptrack:
                row += [f"{best(results, 'heaptrack') / best(results, 'glibc'):.2f}",
                        f"{peak(results, 'heaptrack') / peak(results, 'glibc'):.2f}"]
            rows.append(row)

    if options.only in "parse":
        measure("parse", [bench.prof, "parse", "60"], bench.cpu, [])
    for name, job in jobs(options, bench.directory, 0.3):
        if not job.parallel and not job.client and name != "gcc":  # heaptrack stays in the driver
            measure(name, job.argv, bench.cpu, job.launch_options)
    print("\nEvery allocation recorded: CPU time as a multiple of that without (limit 3 with frame"
          "\npointers: parse), peak memory likewise; the same against glibc, and heaptrack against"
          "\nglibc (without the work of its compressor).\n")
    if not has_heaptrack:
        print("heaptrack is left out: it is not installed.", file=sys.stderr)
    benchlib.print_table(["program", "off", "every/off", "of rounds", "memory", "glibc",
                          "every/glibc"] + ["heaptrack/glibc", "memory"] * has_heaptrack, rows)


def live(bench, options):
    rows = []
    for count, size in LIVE:
        grown = {}
        for variant, conf in EVERY.items():
            runs = []
            for number in range(3):
                figures = bench.launch(conf, [bench.prof, "live", str(count), str(size)], bench.cpu)
                runs.append(figures["grown_kib"])
                bench.note("live", f"{count}x{size}", variant, number + 1,
                           grown_kib=figures["grown_kib"])
            grown[variant] = statistics.median(runs)
        rows.append([f"{count} of {size} bytes", f"{grown['off'] / 1024:.1f} MiB",
                     f"{grown['every'] / 1024:.1f} MiB",
                     f"{1024 * (grown['every'] - grown['off']) / count:.1f}"])
    print("\nBytes per recorded live object, on top of the object (limit 64).\n")
    benchlib.print_table(["objects", "off", "every", "bytes each"], rows)


def dump(bench, options):
    runs = []
    for number in range(options.rounds):
        names = [os.path.join(bench.directory, f"dump{number}.{e}") for e in ("heap", "hprof", "pb")]
        figures = bench.launch(EVERY["every"],
                               [bench.prof, "dump", str(STACKS), *names])
        for name in names:
            os.remove(name)
        runs.append(figures)
        bench.note("dump", STACKS, "", number + 1,
                   **{k: v for k, v in figures.items() if k.split("_")[0] in
                      ("heap", "hprof", "pb", "stall", "raw", "calm", "above", "calls")})
    rows = [[key, f"{min(r[key] for r in runs):.1f}", f"{statistics.median(r[key] for r in runs):.1f}",
             f"{max(r[key] for r in runs):.1f}"]
            for key in ("heap_ms", "heap_cpu_ms", "hprof_ms", "hprof_cpu_ms", "pb_ms", "pb_cpu_ms",
                        "stall_us", "raw_stall_us", "calm_us", "raw_calm_us", "above_1ms")]
    print(f"\nA profile of {STACKS} stacks of 20 frames: wall and CPU milliseconds by format (limit 100),"
          "\nand the longest call of malloc and free in another thread meanwhile (limit 1000 us):"
          "\nstall without preemptions, raw with them, calm without a dump.\n")
    benchlib.print_table(["", "least", "median", "most"], rows)


PARTS = {"usual": usual, "count": count, "run": run, "run-count": run_count,
         "every": every, "live": live, "dump": dump}


def main():
    parser = benchlib.arguments(__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all of them")
    parser.add_argument("--only", default="", metavar="NAME", help="programs whose name has this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", default=os.path.join(benchlib.BENCH, "results"), metavar="DIR",
                        help="where the CSV goes (default: bench/results)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        bench = Bench(options, Path(directory))
        for part in options.part or PARTS:
            PARTS[part](bench, options)
    what = "-".join(["prof", *(options.part or []), *filter(None, [options.only])])
    benchlib.write_csv(benchlib.dated_path(options.out, what), benchlib.host_facts([bench.library]),
                       ["part", "name", "variant", "round", "figure", "value"], bench.rows)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
