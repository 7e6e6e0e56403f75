#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Sites are counted in one way: the summary of a run, `tally report --sites` and `tally check` agree about
# the same file, whose program allocates at seven lines of three functions.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

cat >sites.c <<'EOF'
#include <stdlib.h>
#define NEVER __attribute__((noinline, noclone))
void *volatile kept[64];
NEVER static void keep(void) {
    kept[0] = malloc(300000);
    kept[1] = malloc(200000);
    kept[2] = malloc(100000);
}
NEVER static void pass(void) {
    free(malloc(5000));
    free(malloc(6000));
    for (int i = 0; i < 100; i++) {
        free(malloc(10));
    }
}
NEVER static void fill(void) {
    for (int i = 3; i < 64; i++) {
        kept[i] = malloc(1000);
    }
}
int main(void) {
    pass();
    keep();
    fill();
    return 0;
}
EOF
${CC:-cc} -g -O1 -fno-builtin -fno-omit-frame-pointer -o sites sites.c || fail "cannot compile"

export PATH="$build:$test_search_path"
under_libc PATH="$PATH" LC_ALL=C.UTF-8 tally run --rate=exact -o sites.tally ./sites 2>card || fail "no run"

say The summary shows the largest sites and counts the others: all those that report --sites has.
shown=$(grep -c '[0-9]\.[0-9] %  ' card)
more=$(sed -n 's/.*… \([0-9]*\) more sites$/\1/p' card)
under_libc PATH="$PATH" tally report --sites -n 0 sites.tally >report || fail "no report"
rows=$(tail -n +3 report | wc -l)
[ "$more" -gt 0 ] && [ $((shown + more)) -eq "$rows" ] ||
    fail "the summary has $shown sites and $more more, report --sites $rows"

say Each line that allocates is a site, unless --by says otherwise.
sites() {
    show sh -c "tally report --sites -n 0 $* sites.tally | sed -n 's/^.*  \([a-z]\{1,\}\)  *\(sites.c:\)/\1 \2/p' | sort"
}
sites
sites --by=functions

# What was live before the program's first line depends on the libc.
mask 's/leaks       [0-9.]* KiB/leaks       SIZE/'

say What check names is the first row of report --sites.
for metric in alloc_objects inuse_space; do
    show sh -c "tally report --sites -n 1 -m $metric sites.tally | sed -n '3s/.*  \([a-z]*  *sites.c\)/\1/p'"
done
show tally check --max-allocs=1 sites.tally
show tally check --max-leaks=1K sites.tally
