#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Other users, and programs that have more rights than those who start them: they get nothing. The numbers
# are those of docs/manual/control.md; test_control_*.c have all the others.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
[ "$(id -u)" -eq 0 ] || skip "only root can become another user and make a program set-uid"
need setpriv
[ -f "$build/libtally.a" ] ||
    fail "$build/libtally.a does not exist: build it, or say where it is in BUILD"
chmod 755 "$scratch"

# Prints whether it is privileged, then waits for the end of its input. It allocates like any program.
cat >"$scratch/program.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>
int main(void) {
    char letter;
    for (int i = 0; i < 100000; i++) {
        char *p = malloc(100 + (size_t)i % 1000);
        memset(p, 1, 100);
        free(p);
    }
    printf("secure %lu\n", getauxval(AT_SECURE));
    fflush(stdout);
    return read(0, &letter, 1) < 0;
}
END
"$compiler" -O1 -fno-builtin -pthread -static -o "$scratch/program" "$scratch/program.c" \
    "$build/libtally.a" || fail "the program does not link"

# start: the program as the user nobody; its process id is in $pid.
mkfifo "$scratch/input"
mkdir "$scratch/control"
chown nobody "$scratch/control"
chmod 700 "$scratch/control"
start() {
    : >"$scratch/output"
    chmod 666 "$scratch/output"
    env -i TALLY_CONF="control:write,control_dir:$scratch/control" \
        setpriv --reuid="$1" --regid=65534 --clear-groups "$scratch/program" \
        <"$scratch/input" >"$scratch/output" 2>"$scratch/errors" &
    pid=$!
    exec 9>"$scratch/input"
    until_so test -s "$scratch/output"
}
stop() {
    exec 9>&-
    wait "$pid" || fail "the program ended with status $?"
}
pages() {
    find "/proc/$pid/fd" -lname '/memfd:tally-stats*' 2>/dev/null | wc -l
}
sockets() {
    find "$scratch/control" -type s | wc -l
}

start 65534
[ "$(cat "$scratch/output")" = 'secure 0' ] || fail "it printed $(cat "$scratch/output")"
[ "$(pages)" -eq 1 ] || fail "S-15: a static program has no page"
[ "$(sockets)" -eq 1 ] || fail "a program of another user has no socket: $(cat "$scratch/errors")"
setpriv --reuid=65533 --regid=65533 --clear-groups find "/proc/$pid/fd" -lname '*tally*' \
    >"$scratch/seen" 2>/dev/null
[ -s "$scratch/seen" ] && fail "another user sees the page"
setpriv --reuid=65533 --regid=65533 --clear-groups test -e "$scratch/control/$pid.sock" &&
    fail "S-03: another user gets to the socket"
setpriv --reuid=65534 --regid=65534 --clear-groups test -e "$scratch/control/$pid.sock" ||
    fail "the user does not get to the own socket"
stop
[ "$(sockets)" -eq 0 ] || fail "S-10: the socket is left behind"
echo "another user finds neither page nor socket"

chown nobody "$scratch/program"
chmod u+s "$scratch/program"
start 65533
if [ "$(cat "$scratch/output")" = 'secure 1' ]; then
    [ "$(pages)" -eq 0 ] || fail "S-15: a set-uid program has a page"
    [ "$(sockets)" -eq 0 ] || fail "S-01: a set-uid program has a socket"
    [ -s "$scratch/errors" ] && fail "a set-uid program said $(cat "$scratch/errors")"
    [ "$(find "/proc/$pid/task" -mindepth 1 -maxdepth 1 | wc -l)" -eq 1 ] ||
        fail "a set-uid program has a thread of ours"
    stop
    echo "a set-uid program has neither page nor socket"
else
    stop
    skip "$scratch does not allow set-uid programs"
fi
