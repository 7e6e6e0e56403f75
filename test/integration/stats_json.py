#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stats_json.py - judges statistics of program_stats.c, read from standard input.

    stats_json.py json LETTERS [PREFIX]    has exactly the members it should have, and its figures
                                           add up; the option prof_prefix is this string
    stats_json.py text                     has the lines that programs look for

One sentence per fault; exit status 1 if there was one.
"""
import json
import re
import sys

MUTEX = {"num_ops", "num_wait", "num_spin_acq", "num_owner_switch", "total_wait_time",
         "max_wait_time", "max_num_thds"}
GLOBAL_MUTEXES = {"background_thread", "max_per_bg_thd", "ctl", "prof", "prof_thds_data", "prof_dump",
                  "prof_recent_alloc", "prof_recent_dump", "prof_stats"}
ARENA_MUTEXES = {"large", "extent_avail", "extents_dirty", "extents_muzzy", "extents_retained",
                 "decay_dirty", "decay_muzzy", "base", "tcache_list", "hpa_shard", "hpa_shard_grow",
                 "hpa_sec"}
CONFIG = {"cache_oblivious", "debug", "fill", "lazy_lock", "opt_safety_checks", "prof", "prof_libgcc",
          "prof_libunwind", "prof_frameptr", "stats", "utrace", "xmalloc", "malloc_conf"}
PROF = {"thread_active_init", "active", "gdump", "interval", "lg_sample"}
ARENAS = {"narenas", "dirty_decay_ms", "muzzy_decay_ms", "quantum", "page", "hugepage", "tcache_max",
          "nbins", "nhbins", "bin", "nlextents", "lextent"}
TOTALS = {"allocated", "active", "metadata", "metadata_edata", "metadata_rtree", "metadata_thp",
          "resident", "mapped", "retained", "zero_reallocs"}
ARENA_SUMS = {"nthreads", "pactive", "pdirty", "pmuzzy", "dirty_npurge", "dirty_nmadvise",
              "dirty_purged", "muzzy_npurge", "muzzy_nmadvise", "muzzy_purged", "mapped", "retained",
              "base", "internal", "metadata_edata", "metadata_rtree", "metadata_thp", "tcache_bytes",
              "tcache_stashed_bytes", "resident", "abandoned_vm", "extent_avail"}
ARENA = ARENA_SUMS | {"uptime_ns", "dss", "dirty_decay_ms", "muzzy_decay_ms", "small", "large"}
KIND = {"allocated", "nmalloc", "ndalloc", "nrequests", "nfills", "nflushes"}
BIN = {"nmalloc", "ndalloc", "curregs", "nrequests", "nfills", "nflushes", "nreslabs", "curslabs",
       "nonfull_slabs"}
EXTENT = {"ndirty", "nmuzzy", "nretained", "dirty_bytes", "muzzy_bytes", "retained_bytes"}
HPA_SLABS = {f"{what}_{kind}" for what in ("npageslabs", "nactive", "ndirty")
             for kind in ("nonhuge", "huge")}
HPA = {"sec_bytes", "sec_hits", "sec_misses", "sec_dalloc_noflush", "sec_dalloc_flush",
       "sec_overfills", "npageslabs", "nactive", "ndirty", "npurge_passes", "npurges", "nhugifies",
       "nhugify_failures", "ndehugifies", "slabs", "full_slabs", "empty_slabs", "nonfull_slabs"}
# Options that every version has, of each type, and the sources.
SOME_OPTIONS = {"global_var": str, "symlink": str, "env_var": str, "abort": bool, "narenas": int,
                "dirty_decay_ms": int, "dss": str, "stats_print": bool, "stats_print_opts": str,
                "tcache_max": int, "prof_prefix": str, "hpa_dirty_mult": str, "retain": bool}

faults = []


def expect(is_right, sentence):
    if not is_right:
        faults.append(sentence)


def expect_keys(where, object_, keys):
    expect(isinstance(object_, dict), f"{where} is no object")
    missing, more = keys - set(object_), set(object_) - keys
    expect(not missing, f"{where} lacks {sorted(missing)}")
    expect(not more, f"{where} has {sorted(more)} too")


def expect_numbers(where, object_, keys):
    for key in keys & set(object_):
        expect(type(object_[key]) is int, f"{where}.{key} is {object_[key]!r}")


def expect_mutexes(where, object_, names):
    expect_keys(where, object_, names)
    for name, mutex in object_.items():
        expect_keys(f"{where}.{name}", mutex, MUTEX)
        expect_numbers(f"{where}.{name}", mutex, MUTEX)


def without_duplicates(pairs):
    keys = [key for key, _ in pairs]
    for key in set(keys):
        expect(keys.count(key) == 1, f"the key {key} comes {keys.count(key)} times")
    return dict(pairs)


def check_general(all_, arenas):
    expect_keys("config", all_["config"], CONFIG)
    for key in CONFIG - {"malloc_conf"}:
        expect(type(all_["config"][key]) is bool, f"config.{key} is no boolean")
    expect(all_["config"]["stats"] is True, "config.stats is not true")
    expect(re.match(r"\d+\.\d+\.\d+-", all_["version"]), f"the version is {all_['version']!r}")
    expect_keys("system", all_["system"], {"thp_mode"})
    expect(all_["system"]["thp_mode"] in ("always", "madvise", "never", "not supported"),
           "system.thp_mode is unknown")
    for key, kind in SOME_OPTIONS.items():
        expect(type(all_["opt"].get(key)) is kind, f"opt.{key} is {all_['opt'].get(key)!r}")
    expect_keys("prof", all_["prof"], PROF)
    check_arenas(all_["arenas"])
    expect(len([name for name in arenas if name.isdigit()]) <= all_["arenas"]["narenas"],
           "there are more arenas than arenas.narenas")


def check_arenas(arenas):
    expect_keys("arenas", arenas, ARENAS)
    expect_numbers("arenas", arenas, ARENAS - {"bin", "lextent"})
    expect(arenas["narenas"] >= 1, "arenas.narenas is 0")
    expect(arenas["quantum"] == 16, "arenas.quantum is not 16")
    expect(arenas["page"] in (4096, 16384, 65536), "arenas.page is no page size")
    expect(arenas["hugepage"] > arenas["page"], "arenas.hugepage is not larger than a page")
    expect(len(arenas["bin"]) == arenas["nbins"] > 0, "arenas.bin has not arenas.nbins members")
    expect(len(arenas["lextent"]) == arenas["nlextents"] > 0,
           "arenas.lextent has not arenas.nlextents members")
    for one in arenas["bin"]:
        expect_keys("arenas.bin[]", one, {"size", "nregs", "slab_size", "nshards"})
        expect(one["size"] * one["nregs"] <= one["slab_size"], f"{one} does not fit its slab")
    for one in arenas["lextent"]:
        expect_keys("arenas.lextent[]", one, {"size"})
    sizes = [one["size"] for one in arenas["bin"] + arenas["lextent"]]
    expect(sizes == sorted(set(sizes)), "sizes of classes do not rise")


def check_totals(stats, letters):
    keys = TOTALS | {"background_thread"} | ({"mutexes"} if "x" not in letters else set())
    expect_keys("stats", stats, keys)
    expect_numbers("stats", stats, TOTALS)
    expect_keys("stats.background_thread", stats["background_thread"],
                {"num_threads", "num_runs", "run_interval"})
    if "x" not in letters:
        expect_mutexes("stats.mutexes", stats["mutexes"], GLOBAL_MUTEXES)
    expect(256000 <= stats["allocated"] <= stats["active"] < stats["resident"] <= 2 ** 30,
           f"allocated {stats['allocated']}, active {stats['active']}, resident {stats['resident']}")
    expect(stats["active"] <= stats["mapped"], "mapped is less than active")


def check_arena(where, arena, letters):
    parts = {"x": "mutexes", "b": "bins", "l": "lextents", "e": "extents", "h": "hpa_shard"}
    keys = ARENA | {part for letter, part in parts.items() if letter not in letters}
    expect_keys(where, arena, keys | ({"name"} if where.isdigit() else set()))
    expect_numbers(where, arena, ARENA_SUMS | {"uptime_ns", "dirty_decay_ms", "muzzy_decay_ms"})
    expect(type(arena["dss"]) is str, f"{where}.dss is no string")
    for kind in ("small", "large"):
        expect_keys(f"{where}.{kind}", arena[kind], KIND)
        expect_numbers(f"{where}.{kind}", arena[kind], KIND)
    if "x" not in letters:
        expect_mutexes(f"{where}.mutexes", arena["mutexes"], ARENA_MUTEXES)
    for one in arena.get("bins", []):
        expect_keys(f"{where}.bins[]", one, BIN | ({"mutex"} if "x" not in letters else set()))
        expect_numbers(f"{where}.bins[]", one, BIN)
        if "x" not in letters:
            expect_keys(f"{where}.bins[].mutex", one["mutex"], MUTEX)
    for one in arena.get("lextents", []):
        expect_keys(f"{where}.lextents[]", one, {"curlextents"})
    for one in arena.get("extents", []):
        expect_keys(f"{where}.extents[]", one, EXTENT)
    if "h" not in letters:
        check_hpa(f"{where}.hpa_shard", arena["hpa_shard"])


def check_hpa(where, shard):
    expect_keys(where, shard, HPA)
    expect(len(shard["nonfull_slabs"]) == 64, f"{where}.nonfull_slabs has not 64 members")
    for one in [shard["slabs"], shard["full_slabs"], shard["empty_slabs"]] + shard["nonfull_slabs"]:
        expect_keys(f"{where}: slabs", one, HPA_SLABS)


def check_sums(where, arena, arenas):
    """The figures of classes add up to those of the arena."""
    bins, small, large = arena["bins"], arena["small"], arena["large"]
    expect(len(bins) == arenas["nbins"], f"{where}.bins has not arenas.nbins members")
    expect(len(arena["lextents"]) == arenas["nlextents"],
           f"{where}.lextents has not arenas.nlextents members")
    for key in ("nmalloc", "ndalloc", "nrequests", "nfills", "nflushes"):
        total = sum(one[key] for one in bins)
        expect(total == small[key], f"{where}: bins' {key} sum up to {total}, not {small[key]}")
    held = sum(one["curregs"] * row["size"] for one, row in zip(bins, arenas["bin"]))
    expect(held == small["allocated"], f"{where}: bins hold {held}, not {small['allocated']}")
    for one, row in zip(bins, arenas["bin"]):
        expect(one["nmalloc"] - one["ndalloc"] == one["curregs"],
               f"{where}: {row['size']} has {one['curregs']} objects out, by traffic "
               f"{one['nmalloc'] - one['ndalloc']}")
        expect(one["curregs"] <= one["curslabs"] * row["nregs"],
               f"{where}: more objects of {row['size']} than room for them")
    count = sum(one["curlextents"] for one in arena["lextents"])
    expect(count == large["nmalloc"] - large["ndalloc"], f"{where}: {count} large objects")
    dirty = sum(one["dirty_bytes"] for one in arena["extents"])
    expect(dirty == arena["pdirty"] * arenas["page"], f"{where}: {dirty} dirty bytes in extents")


def check_merged(arenas, all_):
    """The figures of arenas add up to those of all together, and these are what the program did."""
    merged, stats, classes = arenas["merged"], all_["stats"], all_["arenas"]
    each = [arena for name, arena in arenas.items() if name != "merged"]
    for key in ARENA_SUMS:
        total = sum(arena[key] for arena in each)
        expect(total == merged[key], f"{key} of all arenas is {total}, merged says {merged[key]}")
    for kind in ("small", "large"):
        for key in KIND:
            total = sum(arena[kind][key] for arena in each)
            expect(total == merged[kind][key], f"{kind}.{key} of all arenas is not merged's")
    expect(merged["pactive"] * classes["page"] == stats["active"], "merged.pactive is not stats.active")
    expect(merged["base"] + merged["internal"] == stats["metadata"],
           f"metadata of all arenas is {merged['base'] + merged['internal']}, not {stats['metadata']}")
    for key in ("resident", "mapped", "retained"):
        expect(merged[key] == stats[key], f"merged.{key} is {merged[key]}, stats.{key} {stats[key]}")
    held = merged["small"]["allocated"] + merged["large"]["allocated"] - merged["tcache_bytes"]
    expect(held == stats["allocated"], f"small, large and caches leave {held} bytes, "
                                       f"allocated is {stats['allocated']}")
    # What program_stats.c holds: 500 objects of a class, and two large ones.
    index = [one["size"] for one in classes["bin"]].index(112)
    expect(merged["bins"][index]["curregs"] >= 500, "fewer than 500 objects of 112 bytes")
    expect(sum(one["curlextents"] for one in merged["lextents"]) >= 2, "fewer than 2 large objects")
    expect(merged["large"]["allocated"] >= 200000, "large objects of less than 200000 bytes")
    expect(merged["uptime_ns"] > 0, "the process is not old at all")
    expect(merged["dss"] == "N/A", "merged.dss is not N/A")


def check_json(text, letters, prefix=None):
    expect(text.count("\n") == 1 and text.endswith("\n"), "it is not one line")
    document = json.loads(text, object_pairs_hook=without_duplicates)
    expect_keys("the document", document, {"jemalloc"})
    all_ = document["jemalloc"]
    keys = {"stats"}
    if "g" not in letters:
        keys |= {"version", "config", "system", "opt", "prof", "arenas"}
    if not set("mda") <= set(letters):
        keys |= {"stats.arenas"}
    expect_keys("jemalloc", all_, keys)
    check_totals(all_["stats"], letters)
    arenas = all_.get("stats.arenas", {})
    names = [name for name in arenas if name.isdigit()]
    expect(("merged" in arenas) == ("m" not in letters), "merged is there or not, wrongly")
    expect((names == []) == ("a" in letters), f"arenas {names} are there")
    expect(set(arenas) <= set(names) | {"merged"}, f"there are arenas {list(arenas)}")
    for name, arena in arenas.items():
        check_arena(name, arena, letters)
    if "g" not in letters:
        check_general(all_, arenas)
    if not set("gble") & set(letters):
        for name, arena in arenas.items():
            check_sums(name, arena, all_["arenas"])
    if letters == "J":
        check_merged(arenas, all_)
    if prefix is not None:
        expect(all_["opt"]["prof_prefix"] == prefix, f"prof_prefix is {all_['opt']['prof_prefix']!r}")


LINES = (
    r"\A___ Begin jemalloc statistics ___$",
    r"^Version: \"\d+\.\d+\.\d+-.*\"$",
    r"^  config\.stats: true$",
    r"^  system\.thp_mode: \"(always|madvise|never|not supported)\"$",
    r"^  Environment variable MALLOC_CONF: \"narenas:2\"$",
    r"^  opt\.narenas: 2$",
    r"^  opt\.dirty_decay_ms: -?\d+ \(arenas\.dirty_decay_ms: -?\d+\)$",
    r"^  opt\.dss: \"\w+\"$",
    r"^  prof\.active: false$",
    r"^Arenas: [1-9]\d*$",
    r"^Quantum size: 16$",
    r"^Page size: (4096|16384|65536)$",
    r"^Hugepage size: \d+$",
    r"^Maximum thread-cached size class: \d+$",
    r"^Number of bin size classes: [1-9]\d*$",
    r"^Number of thread-cache bin size classes: [1-9]\d*$",
    r"^Number of large size classes: [1-9]\d*$",
    r"^Allocated: \d+, active: \d+, metadata: \d+ \(n_thp \d+, edata \d+, rtree \d+\), "
    r"resident: \d+, mapped: \d+, retained: \d+$",
    r"^Count of realloc\(non-null-ptr, 0\) calls: 0$",
    r"^Background threads: \d+, num_runs: \d+, run_interval: \d+ ns$",
    r"^Merged arenas stats:$",
    r"^arenas\[0\]:\nname: \"auto_0\"$",
    r"^assigned threads: \d+$",
    r"^uptime: [1-9]\d*$",
    r"^dss allocation precedence: \"N/A\"$",
    r"^decaying: +time +npages +sweeps +madvises +purged$",
    r"^ +112 +6 +[1-9]\d* ",
    r"^ +---$",
    r"^--- End jemalloc statistics ---\n\Z",
)


def check_text(text):
    for line in LINES:
        expect(re.search(line, text, re.M), f"no line {line}")
    figures = {name: int(bytes_) for name, bytes_ in
               re.findall(r"^  (live|[+=] [\w' ]+?|without memory) +(\d+) bytes ", text, re.M)}
    parts = [figures[name] for name in ("live", "+ cached", "+ free in slabs",
                                        "+ ends of large blocks")]
    expect(sum(parts) == figures["= in spans"], f"{parts} do not add up to what is in spans")
    expect(figures["= in spans"] + figures["+ free pages kept"] + figures["+ tally's own"] ==
           figures["= resident at most"], "resident does not add up")
    totals = re.search(r"^Allocated: (\d+), active: (\d+), .*resident: (\d+),", text, re.M).groups()
    summary = [figures[name] for name in ("live", "= in spans", "= resident at most")]
    expect([int(one) for one in totals] == summary, f"the summary says {summary}, below {totals}")


if sys.argv[1] == "json":
    check_json(sys.stdin.read(), *sys.argv[2:])
else:
    check_text(sys.stdin.read())
for fault in faults[:20]:
    print(fault)
sys.exit(1 if faults else 0)
