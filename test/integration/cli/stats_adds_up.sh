#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The lines of `tally stats` add up to what the kernel says, in running programs: a database with keys of
# mixed sizes, an interpreter with objects and threads, a sorter with its input in memory, a program that
# maps memory of its own beside the heap, heaps of 200 MiB in huge pages, and 200 threads. What no line explains
# is less than 1 % of RSS.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../../lib/under_tally.sh"

need python3
need redis-server
need redis-benchmark
prove_preload
started_all=
settings=
end_all() {
    # shellcheck disable=SC2086
    [ -z "$started_all" ] || kill -KILL $started_all 2>/dev/null
    wait 2>/dev/null
    rm -rf "$scratch"
}
trap end_all EXIT

# look WHAT PID [written]: the figures of one process are checked; "written" is one that has written to all
# that it holds, so that only free space and bookkeeping can be without memory.
look() {
    "$build/tally" stats --format=json "$2" >"$scratch/json" || fail "$1: no statistics"
    "$build/tally" stats "$2" >"$scratch/text" || fail "$1: no statistics"
    python3 - "$1" "$2" "$scratch/json" "${3:-}" <<'END' || { cat "$scratch/text"; fail "$1: the lines do not add up"; }
import json, sys
what, pid, path, written = sys.argv[1:5]
one = json.load(open(path))
rollup = dict(line.split(":", 1) for line in open(f"/proc/{pid}/smaps_rollup").read().splitlines()[1:])
kernel = int(rollup["Rss"].split()[0]) * 1024
heap = sum(one[f"heap_{name}_bytes"] or 0 for name in ("live", "rounding", "inside", "cached", "kept", "own"))
heap -= one["heap_untouched_bytes"]
other = sum(one[f"{name}_resident_bytes"] for name in ("files", "stacks", "shared", "anonymous"))
rss, unexplained = one["resident_bytes"], one["unexplained_bytes"]
print(f"{what}: RSS {rss >> 10} KiB, heap {heap >> 10}, without memory {one['heap_untouched_bytes'] >> 10},"
      f" other {other >> 10}, unexplained {unexplained >> 10}")
if heap != one["heap_resident_bytes"] or heap + other + unexplained != rss:
    sys.exit("a sum is wrong")
if abs(rss - kernel) > kernel // 100 + (256 << 10):  # it goes on meanwhile
    sys.exit(f"the kernel says {kernel >> 10} KiB")
if unexplained * 100 > rss:
    sys.exit("more than 1 % is unexplained")
free = sum(one[f"heap_{name}_bytes"] for name in ("inside", "cached", "kept", "own"))
if written and one["heap_untouched_bytes"] > free + rss // 100:
    sys.exit("too much is said to be without memory")
if one["heap_objects"] == 0 or one["heap_live_bytes"] == 0:
    sys.exit("nothing is live")
END
}

# is_larger_than NAME NUMBER: of the process that was looked at last.
is_larger_than() {
    python3 - "$scratch/json" "$1" "$2" <<'END' || fail "$1 is less than $2"
import json, sys
sys.exit(json.load(open(sys.argv[1]))[sys.argv[2]] < int(sys.argv[3]))
END
}

# The program says "ready" when it is, and goes on.
start_python() {
    mkfifo "$scratch/ready.$1"
    exec 7<>"$scratch/ready.$1"
    # shellcheck disable=SC2086
    start_under_tally PYTHONMALLOC=malloc $settings python3 -c "$2" </dev/null >&7
    started_all="$started_all $started"
    read -r -t "$patience" _ <&7 || fail "$1 did not start"
    exec 7>&-
    wait_until_mapped "$started"
}

start_python interpreter '
import sys, threading
kept = [str(i) * (i % 50 + 1) for i in range(200000)]
def work(): kept.append([bytes(i) for i in range(2000)])
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
del kept[::2]
print("ready", flush=True)
import time
while True: time.sleep(0.05); kept[0] = bytes(5000)
'
interpreter=$started

start_python neighbour '
import mmap, time
own = [mmap.mmap(-1, 3 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(10)]
for one in own: one.write(b"x" * (3 << 20))
kept = [bytes(100000 + i) for i in range(300)]
print("ready", flush=True)
while True: time.sleep(0.05); kept[0] = bytes(200000)
'
neighbour=$started

start_python sorter '
import time
lines = sorted(("%016x" % (i * 2654435761 % 2**32)).encode() for i in range(300000))
print("ready", flush=True)
while True: time.sleep(0.05); lines[0] = bytes(1000)
'
sorter=$started

socket=$scratch/redis.sock
start_under_tally redis-server --port 0 --unixsocket "$socket" --save "" --dir "$scratch" \
    >"$scratch/redis.log" 2>&1 </dev/null
started_all="$started_all $started"
until_so test -S "$socket"
redis-benchmark -s "$socket" -q -t set,lpush,hset -n 50000 -r 20000 -d 200 >/dev/null 2>&1
redis=$started

# Far beyond what is one huge page, all of it written and half of it freed, by a program that asks for huge
# pages: the kernel may then give memory that nobody has written to. What they go on with needs the slow paths, so
# that their figures are fresh.
settings=TALLY_CONF=thp:always
start_python large '
import time
kept = [bytes([i % 251]) * (700 + i % 900) for i in range(180000)]
print("ready", flush=True)
while True: time.sleep(0.05); kept[0] = [bytes(i * 16) for i in range(500)]
'
large=$started

start_python sparse '
import time
kept = [bytes([i % 251]) * (700 + i % 900) for i in range(180000)]
del kept[::2]
del kept[20000:60000]
print("ready", flush=True)
while True: time.sleep(0.05); kept[0] = [bytes(i * 16) for i in range(500)]
'
sparse=$started
settings=

# Many threads that live, each with a cache and a stack.
start_python threads '
import threading, time
kept, done = [], threading.Barrier(201)
def work(number):
    kept.append([bytes([number % 251]) * (50 + i * 7 % 3000) for i in range(100)])
    done.wait()
    time.sleep(1000)
threading.stack_size(256 << 10)
[threading.Thread(target=work, args=(i,), daemon=True).start() for i in range(200)]
done.wait()
print("ready", flush=True)
while True: time.sleep(0.05); kept[0] = [bytes(i * 16) for i in range(500)]
'
threads=$started

sleep 1.2 # sums over threads are a second old at most
look interpreter "$interpreter"
look neighbour "$neighbour"
is_larger_than anonymous_resident_bytes $((30 << 20))
look sorter "$sorter" written
look redis-server "$redis"
look "large heap, huge pages" "$large" written
is_larger_than heap_live_bytes $((190 << 20))
look "large heap with holes, huge pages" "$sparse" written
look "200 threads" "$threads"
is_larger_than heap_threads 200
