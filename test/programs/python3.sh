#!/bin/sh
# SPDX-License-Identifier: MIT
#
# python3 under the library: objects of many sizes, JSON, threads, subprocesses and a pool of
# forked processes. Python's own small-object allocator is switched off, so that every object
# comes from malloc. The children look into their memory maps themselves.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need python3
prove_preload

cat >"$scratch/script.py" <<'PYTHON'
import collections, hashlib, json, multiprocessing, os, random, re, subprocess, sys, threading, zlib

library = os.environ.get("EXPECT_LIBRARY", "")


def check_map():
    with open("/proc/self/maps") as maps:
        assert library in maps.read(), "the library is not mapped"


check_map()
source = random.Random(12345)
data = [{"id": i, "text": "x" * source.randrange(300), "list": list(range(source.randrange(50)))}
        for i in range(10000)]
text = json.dumps(data, sort_keys=True)
assert json.loads(text) == data
print("json", len(text), hashlib.sha256(text.encode()).hexdigest())
print("zlib", zlib.crc32(zlib.decompress(zlib.compress(text.encode()))))
print("words", collections.Counter(re.findall(r"\d+", text)).most_common(3))

totals = [0] * 8


def work(index):
    private = random.Random(index)
    live = {}
    for step in range(15000):
        live[private.randrange(500)] = bytes(private.randrange(2000))
    totals[index] = sum(len(block) for block in live.values())


threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("threads", totals)

CHILD = """
import os, sys
assert os.environ.get("EXPECT_LIBRARY", "") in open("/proc/self/maps").read()
print(sum(len(str(i)) for i in range(int(sys.argv[1]))))
"""
for count in (10, 10000):
    command = [sys.executable, "-c", CHILD, str(count)]
    result = subprocess.run(command, capture_output=True, check=True)
    print("subprocess", result.stdout.decode().strip(), result.stderr.decode())


def square(value):
    check_map()
    return len([str(i) * 3 for i in range(value)]) * value


with multiprocessing.get_context("fork").Pool(3) as pool:
    print("pool", pool.map(square, range(0, 2000, 100)))
print("end")
PYTHON

under_libc PYTHONMALLOC=malloc PYTHONHASHSEED=1 python3 - <"$scratch/script.py" >"$scratch/libc" ||
    fail "python3 fails under libc"
run_held "$scratch/script.py" "$scratch/tally" PYTHONMALLOC=malloc PYTHONHASHSEED=1 \
    EXPECT_LIBRARY="$library" python3 -
same_output python3 "$scratch/libc" "$scratch/tally"
[ "$(tail -n 1 "$scratch/tally")" = end ] || fail "python3 did not finish its script"
echo "python3: $(wc -l <"$scratch/tally") lines as under libc"
