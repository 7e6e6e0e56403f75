#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What tally doctor says of programs that are linked, stripped and marked in different ways. What it says
# of the machine is left out, since machines differ.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

compiler=${CC:-cc}
cat >plain.c <<'END'
int main(void) { return 0; }
END
cat >own.c <<'END'
#include <stddef.h>
void *malloc(size_t bytes) { static char memory[4096]; return bytes < 4096 ? memory : NULL; }
int main(void) { return 0; }
END
$compiler -g -Wl,--build-id -o plain plain.c || fail "cannot compile"
$compiler -Wl,--build-id=none -o without plain.c || fail "cannot compile"
$compiler -rdynamic -o own own.c || fail "cannot compile"
$compiler -static -o fixed plain.c || fail "cannot link statically"
strip -o stripped plain
printf '#!/no/such/shell\n' >script
printf 'text' >text
cp plain setid
chmod u+s setid
chmod +x script text
head -c 200 plain >cut
chmod +x cut

about_program() {
    show sh -c "tally doctor ./$1 | sed '/^warn  control is/,\$d'"
}

say A program with everything.
about_program plain
show sh -c 'tally doctor ./plain >/dev/null'
say Without debug information and build id, and stripped.
about_program without
about_program stripped
say A malloc of its own, and no loader.
about_program own
show sh -c "tally doctor ./fixed | grep linked"
say Rights that make the loader deaf.
about_program setid
say No program at all.
about_program script
about_program text
about_program cut
show tally doctor ./missing
show tally doctor missing-program
show tally doctor 999999999
show tally doctor plain two
say The end says whether something failed.
show sh -c 'tally doctor ./fixed >/dev/null'
say The directory of the socket.
mkdir -m 700 run run/tally
mask "s|$work|WORK|g"
show XDG_RUNTIME_DIR="$work/run" sh -c 'tally doctor | grep directory'
chmod 755 run/tally
show XDG_RUNTIME_DIR="$work/run" sh -c 'tally doctor | grep directory'
rmdir run/tally
show XDG_RUNTIME_DIR="$work/run" sh -c 'tally doctor | grep directory'
ln -s . run/tally
show XDG_RUNTIME_DIR="$work/run" sh -c 'tally doctor | grep directory'
say The configuration of programs started from here.
show sh -c 'tally doctor | grep "control is"'
show TALLY_CONF=prof:true,control:write,narenas:2 sh -c 'tally doctor | grep "control is"'
show TALLY_CONF=control:off sh -c 'tally doctor | grep "control is"'
