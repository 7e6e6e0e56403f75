#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A set-uid program reads no configuration: whoever starts it chooses the environment, not its
# rights. The loader ignores a preload there, so the library is linked into the program. The same
# program is seen to warn about the same environment first, while it is not yet set-uid.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

compiler=${CC:-cc}
program=$scratch/program
command -v "$compiler" >/dev/null || skip "there is no C compiler"
[ "$(id -u)" -eq 0 ] || skip "only root can make a program set-uid to another user"
[ -f "$build/libtally.a" ] ||
    fail "$build/libtally.a does not exist: build it, or say where it is in BUILD"
"$compiler" -O1 -fno-builtin -pthread -static -o "$program" \
    "$here/test/integration/program_static.c" "$build/libtally.a" ||
    fail "program_static.c does not link"

run() {
    under_libc TALLY_CONF=no_such_key:1 MALLOC_CONF=no_such_key:1 "$program" secure \
        >"$scratch/output" 2>"$scratch/errors" || fail "the program ended with status $?"
}

run
[ "$(cat "$scratch/output")" = 'secure 0' ] ||
    fail "a plain program printed $(cat "$scratch/output")"
[ "$(wc -l <"$scratch/errors")" -eq 2 ] ||
    fail "a plain program must warn twice: $(cat "$scratch/errors")"

chmod 755 "$scratch"
chown nobody "$program" || skip "the file cannot be given to another user"
chmod u+s "$program"
run
[ "$(cat "$scratch/output")" = 'secure 1' ] || skip "$scratch does not allow set-uid programs"
[ -s "$scratch/errors" ] &&
    fail "a set-uid program read its configuration: $(cat "$scratch/errors")"
echo "a set-uid program reads no configuration"
