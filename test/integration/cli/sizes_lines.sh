#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What reports say of one function that makes blocks of several sizes for several callers: a selection by size
# finds the large ones among the small ones, and callers are shown with the line of their call.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

cat >sizes.c <<'EOF'
#include <stdlib.h>
#define NEVER __attribute__((noinline, noclone))
void *volatile kept[1000];
int count;
NEVER static void *make(size_t size) {
    return malloc(size);
}
NEVER static void keep(size_t size) {
    kept[count++] = make(size);
}
NEVER static void work(void) {
    for (int i = 0; i < 300; i++) {
        keep(i % 100 == 0 ? 2 << 20 : 1 << 10);
    }
    keep(100);
    keep(200);
}
NEVER static void more(void) {
    keep(100000);
}
int main(void) {
    work();
    more();
    return 0;
}
EOF
${CC:-cc} -g -O1 -fno-builtin -fno-optimize-sibling-calls -fno-omit-frame-pointer -o sizes sizes.c ||
    fail "cannot compile"

export PATH="$build:$test_search_path"
under_libc PATH="$PATH" LC_ALL=C.UTF-8 tally run --rate=exact -o sizes.tally ./sizes 2>/dev/null || fail "no run"

# Of the program itself: what starts it has other names and lines on other systems.
report() {
    show sh -c "tally report --show-from='^main\$' $* sizes.tally | tail -n +3"
}

say Three blocks of 2 MiB are among 297 of 1 KiB that the same line made.
report --top --size=1M:
report --top --size=1M: -m inuse_objects
report --top --size=:2K -m inuse_objects
report --top -m inuse_objects

say A caller has the line of its call, and none where several lines call.
report --tree
report --tree --by=lines
report --peek=keep
