#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The commands for running processes, against one that always says the same: what they print, and which
# sentence and exit status they have for a process that is not there, not alone, without the library, stopped,
# or unwilling.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

# shellcheck source=test/integration/cli/fake_targets.sh
. "$here/test/integration/cli/fake_targets.sh"
mkdir -m 700 "$scratch/run"

# start NAME WORD...: a target; its id is in $target.
start() {
    mkfifo "$scratch/ready"
    "$scratch/$1" "$scratch/run" "${@:2}" >"$scratch/ready" 2>/dev/null 3>&- &
    target=$!
    targets="$targets $target"
    read -r _ <"$scratch/ready" || fail "the fake target did not start"
    rm "$scratch/ready"
    mask "s/\\b$target\\b/PID/g"
}

mask "s|$scratch|SCRATCH|g"
mask "s/$name/fake/g"
mask 's/up [0-9.a-z ]* /up TIME /'
start "$name" write
# What the machine has besides the heap.
mask '/binaries, stacks/s/  [0-9,.]* MiB.*/ OTHER/'
mask '/= RSS/s/  [0-9,.]* MiB.*/ ALL/'
mask 's/^ *PID  *[^ ]*  *fake  *\([0-9.]* MiB\)  *[0-9.]* MiB/PID USER fake \1 RSS/'
mask '/the program has not needed/d'

say The bridge: lines up to the heap are those of the page.
show tally stats $target
show LC_ALL=C.UTF-8 tally stats "$name"
show LC_ALL=C.UTF-8 tally --ascii stats "$name"
show tally stats "$scratch/run/$target.sock"
say In bytes, for programs.
show sh -c "tally stats --format=prometheus $target | grep -e heap_live -e heap_resident -e _total -e unexplained"
show sh -c "tally stats --format=json $target | tr , '\n' | grep -e program -e heap_ -e control -e unexplained"
show tally stats --format=prometheus -o stats.prom $target
show sh -c 'grep -c "^tally_" stats.prom; stat -c %a stats.prom'
show tally stats -o stats.prom $target
say Again and again, a line each time.
show sh -c "tally stats --every=10ms --times=3 $target | cut -c1-34"
say Served at a socket that nobody else can open.
cat >"$scratch/ask.py" <<'END'
import os, socket, stat, subprocess, sys
serve = subprocess.Popen(["tally", "stats", "--serve=s.sock", *sys.argv[2:]], stderr=subprocess.PIPE)
serve.stderr.readline()
print(oct(stat.S_IMODE(os.stat("s.sock").st_mode)))
def ask(question):
    client = socket.socket(socket.AF_UNIX)
    client.connect("s.sock")
    try:
        client.sendall(question)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b"")).decode()
    except (ConnectionResetError, BrokenPipeError): # it was not read to its end
        return ""
head, page = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").split("\r\n\r\n")
print(head.split("\r\n")[:2], f"Content-Length: {len(page.encode())}" in head)
print([word for word in ("tally_heap_live_bytes{", '"program": "') if word in page])
print(ask(b"POST / HTTP/1.1\r\n\r\n").split("\r\n")[0], [ask(b"GET"), ask(b"x" * 9000)])
second = subprocess.run(["tally", "stats", "--serve=s.sock", *sys.argv[2:]], stderr=subprocess.PIPE)
print(second.returncode, second.stderr.decode().strip())
serve.send_signal(int(sys.argv[1]))
print(serve.wait(), os.path.exists("s.sock"))
END
show python3 "$scratch/ask.py" 15 $target
say One that was left behind is replaced.
show python3 "$scratch/ask.py" 9 --format=json $target
show python3 "$scratch/ask.py" 2 $target
mkdir -m 777 "$work/open"
show tally stats --serve=open/s.sock $target
show tally stats --serve=missing/s.sock $target
show tally stats --serve=s.sock --every=1s $target
say Who is there.
show sh -c "tally ps | grep -e PROGRAM -e $name"
show sh -c "tally ps --format=names | grep $name"

say A dump goes into a file of ours, that replaces nothing.
show tally dump --no-names $target
show sh -c "cat $name.$target.pb.gz; stat -c %a $name.$target.pb.gz"
show tally dump --no-names $target
show tally dump --kind=peak -o my.heap $target
show cat my.heap
show tally -q dump -o - --format=gperftools $target
show sh -c "tally -q dump --no-names -o - $target | cat"
show tally dump -o /nowhere/file $target
show tally start --for=1s -o my.heap $target
show sh -c "tally -q dump --no-names --format=gperftools -o /dev/stdout $target >redirected; cat redirected"
show tally dump --format=nonsense $target
show tally dump -o bad.pb.gz $target
show ls bad.pb.gz
show sh -c "tally -q dump --no-names --format=gperftools $target; ls | grep hprof"
say The profiler, options, pages.
show tally start --rate=dev $target
show sh -c "tally stats $target | head -n 1"
show tally start --rate=often $target
say Without --rate it stays.
show sh -c "tally start $target; tally stats $target | head -n 1"
show tally start --for=10ms --no-names -o burst.pb.gz $target
show tally stop $target
show tally stop --discard $target
say Time on the processor.
show tally start --cpu $target
show tally start --cpu=250 $target
show sh -c "tally ps | grep $name"
show tally dump --kind=cpu --no-names $target
show tally dump --kind=cpu -o time.prof $target
show cat time.prof
show tally stop --kind=cpu $target
show tally stop --kind=cpu $target
show tally start --cpu=99 --for=10ms --no-names -o time.pb.gz $target
show cat time.pb.gz
show tally start --cpu=99 --heap --for=10ms --no-names --format=pprof -o two.pb.gz $target
show tally start --cpu=0 $target
show tally start --cpu=9999 $target
mkdir both
show sh -c "cd both && tally start --cpu --rate=dev --for=10ms --no-names $target && cat ./*"
show tally set dirty_decay_ms=0 $target
show tally set dirty_decay_ms=5 dirty_decay_ms=6 $target
show tally set arenas.dirty_decay_ms=7 background_thread=true $target
show tally set nothing=1 $target
show tally set dirty_decay_ms=soon $target
show tally set dirty_decay_ms $target
show tally purge $target
say A terminal is needed for top.
show tally top $target

say A stopped process can be looked at, and is not waited for forever.
kill -STOP $target
show sh -c "tally stats $target | grep heap"
show tally purge $target
kill -CONT $target

say Without rights.
start "$name" read
show tally dump --no-names -o read.pb.gz $target
show tally purge $target
say Two of a name.
show tally stats "$name"
start "$name" off
show tally purge $target
show tally stats -q --format=prometheus -o - $target -o off.prom
say Pages that are not believed.
start "$name" write foreign
show tally stats $target
start "$name" write torn
show sh -c "tally stats $target | grep -e 'heap, resident' -e 'still'"
start "$name" write old
show sh -c "tally stats $target | grep -e asked -e caches"
say "Without a page a process can be asked by its socket's path alone."
start "$name" write pageless
show tally purge $target
show tally purge "$scratch/run/$target.sock"
show tally start "$scratch/run/$target.sock"
show tally stats "$scratch/run/$target.sock"
say Nobody there.
show tally stats 999999999
show tally stats 99999999999999999999
show tally stats no-such-program
show tally stats /no/such.sock
sleep 1000 &
targets="$targets $!"
mask "s/\\b$!\\b/PID/g"
show tally stats $!
show tally purge $!
