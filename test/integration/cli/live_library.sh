#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The commands for running processes against the library itself: a program that is armed, dumped with names,
# set, purged and disarmed from outside.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

prove_preload
cat >"$scratch/holder.c" <<'END'
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) static void *hold_on(size_t bytes) {
    char *memory = malloc(bytes);
    memset(memory, 1, bytes);
    return memory;
}

int main(void) {
    static void *kept[2000];
    char byte;
    write(1, "r\n", 2);
    while (read(0, &byte, 1) == 1) {
        for (int i = 0; i < 2000; i++) {
            free(kept[i]);
            kept[i] = hold_on(10000);
        }
        write(1, "d\n", 2);
    }
    return 0;
}
END
name=holder-$$
${CC:-cc} -g -O1 -fno-omit-frame-pointer -fno-builtin -o "$scratch/$name" "$scratch/holder.c" ||
    fail "cannot compile the program"
until [ "$(sh -c 'echo $$')" -gt 1000 ]; do
    :
done
mkdir -m 700 "$scratch/run"
mkfifo "$scratch/in" "$scratch/out"
exec 6<>"$scratch/in" 7<>"$scratch/out"
start_under_tally TALLY_CONF=control:write,control_log:true XDG_RUNTIME_DIR="$scratch/run" "$scratch/$name" <&6 >&7 \
    2>"$scratch/audit"
target=$started
stop_target() {
    kill -KILL "$target" 2>/dev/null
    wait 2>/dev/null
}
golden_cleanup=stop_target
# step: the program does its work once.
step() {
    printf x >&6
    read -r -t "$patience" _ <&7 || fail "the program does not go on"
}
# More than eight requests in a second would be refused.
pause() {
    sleep 1.1
}
read -r -t "$patience" _ <&7 || fail "the program did not start"
mask "s|$scratch|SCRATCH|g"
mask "s/\\b$target\\b/PID/g"
mask "s/$name/holder/g"
mask 's/[0-9.]* [KM]*i*B live/SIZE live/; s/(\([0-9.]* [KM]*i*B\))/(SIZE)/'
mask 's/[0-9]* of [0-9]* addresses/N of N addresses/'

step
show sh -c "tally ps | grep -c $name"
show tally dump "$name"
show tally start --rate=dev "$name"
step
show tally dump -o heap.pb.gz "$name"
show sh -c 'tally report --traces heap.pb.gz | grep -o -e "hold_on .*c:[0-9]*" -e "main .*holder.c:[0-9]*" | sort -u'
show sh -c "tally report --traces pid:$name | grep -c hold_on"
show tally report pid:nobody-is-called-so
pause
show tally report --at=1s "pid:$name"
show sh -c "tally report --traces pid:$name@peak | grep -c hold_on"
show sh -c "tally check --max-peak=1K pid:$name | grep -o -e 'FAIL *peak' -e 'hold_on'"
show sh -c "tally info pid:$name | head -n 1"
show tally import -o imported.pb.gz "pid:$name"
show sh -c "tally symbolize --demangle=none -o named.pb.gz pid:$name 2>&1 | cut -d ' ' -f 1"
show sh -c 'tally report --traces named.pb.gz | grep -c hold_on'
pause
show tally dump -o heap.folded "$name"
show sh -c 'grep -c "main;hold_on" heap.folded'
show tally dump -o heap.heap "$name"
show sh -c 'head -c 8 heap.heap; echo'
show tally dump -o heap.pb.gz "$name"
pause
show sh -c "tally -q dump --kind=allocs -o allocs.pb.gz $name && tally report --top allocs.pb.gz | grep -o '^alloc_space'"
show tally dump --kind=allocs --no-names "$name"
show tally dump --kind=leaks "$name"
pause
show tally set arenas.dirty_decay_ms=-1 "$name"
show tally set arenas.dirty_decay_ms=10 background_thread=false "$name"
show tally set opt.prof=true "$name"
pause
show tally set dirty_decay_ms=20 prof_active=true "$name"
show tally set arena.0.dirty_decay_ms=0 "$name"
show tally set arenas.dirty_decay_ms=0 "$name"
pause
show sh -c "tally purge $name 2>&1 | sed 's/: .*kernel.*/: given/'"
show tally stop "$name"
show tally stop --discard "$name"
show sh -c "tally stats --format=json $name | tr , '\n' | grep control"
show sh -c "tally doctor $target | grep control"
say What was asked for is in the log of the process, with who it was.
show sh -c "sed 's/pid [0-9]* uid [0-9]*/pid N uid N/' $scratch/audit | sort | uniq -c"
