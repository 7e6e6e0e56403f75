#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A program that has made its last call is shown as it is: random programs grow, shrink, free everything, with one
# thread, with several, and after a fork, and then call nothing any more. What `tally stats` says of them comes to
# what they hold, and what no line explains is below 1 % of RSS and a constant.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../../lib/under_tally.sh"

need python3
"${CC:-cc}" -O1 -fno-builtin -pthread -o "$scratch/program" "$here/test/integration/program_last_call.c" ||
    fail "program_last_call.c does not compile"
prove_preload

python3 - "$build/tally" "$library" "$scratch/program" <<'END' || fail "figures are not those of the program"
import json, os, signal, subprocess, sys, time
tally, library, program = sys.argv[1:4]
MIB = 1 << 20
LIMIT = 60  # seconds: what has not come by then does not come

def look(pid):
    return json.loads(subprocess.run([tally, "stats", "--format=json", pid], check=True, capture_output=True,
                                     text=True).stdout)

# What is wrong with the figures of a program that holds so much; None if they are right. They may be off by what the
# page says that it is behind, which is no more than a part of what lives, and by what fits into caches.
def fault(one, held, objects, frees, threads):
    live = one["heap_live_bytes"]
    if one["heap_rounding_bytes"] is not None:
        return "rounding is told that nobody knows"
    if threads > 1 and one["behind_bytes"] > 0:
        return "behind, and the background thread does nothing about it"
    if one["behind_bytes"] > 2 * MIB + (threads + 1) * live // 6:
        return f"behind by {one['behind_bytes']}"
    slack = one["behind_bytes"] + MIB // 2 * threads
    if abs(live - held) > slack:
        return f"live {live}"
    share = slack / max(live, held, slack)
    for name, truth in ("heap_objects", objects), ("frees_total", frees):
        if abs(one[name] - truth) > 500 * threads + 1.5 * share * max(one["heap_objects"], objects):
            return f"{name} {one[name]}"
    if one["unexplained_bytes"] > one["resident_bytes"] // 100 + 2 * MIB:
        return f"unexplained {one['unexplained_bytes']} of {one['resident_bytes']}"
    return None

def examine(seed, shape, kept):
    env = {"LD_PRELOAD": library, "PATH": os.environ["PATH"]}
    process = subprocess.Popen([program, str(seed), shape, kept], env=env, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    pid, held, objects, frees = line.split()
    threads = 4 if shape == "threads" else 1
    end = time.monotonic() + LIMIT
    while (wrong := fault(one := look(pid), int(held), int(objects), int(frees), threads)) is not None:
        if shape != "threads" or time.monotonic() > end:
            break
        time.sleep(0.1)
    print(f"seed {seed} {shape} {kept}: holds {held} in {objects}, {frees} frees; "
          f"shown {one['heap_live_bytes']} in {one['heap_objects']}, {one['frees_total']}, behind {one['behind_bytes']}, "
          f"unexplained {one['unexplained_bytes']}" + (f": WRONG: {wrong}" if wrong else ""))
    os.kill(int(pid), signal.SIGKILL)
    process.kill()
    process.wait()
    return wrong is None

shapes, kinds = ("plain", "threads", "fork"), ("all", "half", "none")
results = [examine(seed, shape, kept) for seed in (1, 2) for shape in shapes for kept in kinds]
sys.exit(not all(results))
END
