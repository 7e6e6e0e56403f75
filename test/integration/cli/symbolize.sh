#!/bin/bash
# SPDX-License-Identifier: MIT
#
# symbolize.sh - a profile of bare addresses becomes one with names that needs the program no more.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

compiler=${CC:-cc}
{ command -v "$compiler" && command -v objdump; } >/dev/null || { exec >&3; skip "there is no compiler"; }
cat >app.c <<'END'
#include <stdlib.h>
char *leaf(int n) {
    return malloc(n);
}
static inline __attribute__((always_inline)) char *middle(int n) {
    return leaf(n + 1);
}
char *root(int n) {
    return middle(n);
}
int main(void) {
    return root(1) == 0;
}
END
"$compiler" -O0 -g -fno-pie -no-pie -o app app.c || { exec >&3; skip "app.c cannot be compiled"; }
# The return address behind the first call of a function, as the profile has it.
call_in() {
    objdump -d --no-show-raw-insn app |
        awk -v name="<$1>:" '$2 == name { inside = 1 } called { print "0x" substr($1, 1, length($1) - 1); exit }
                             inside && $2 ~ /^(callq?|bl)$/ { called = 1 }'
}
segment=$(readelf -lW app | awk '$1 == "LOAD" && $0 ~ / R E / { print $2, $3, $6 }')
read -r offset start size <<<"$segment"
{
    echo "heap_v2/1"
    echo "  t*: 2: 300 [0: 0]"
    echo "@ $(call_in leaf) $(call_in root) $(call_in main)"
    echo "  t*: 2: 300 [0: 0]"
    echo
    echo "MAPPED_LIBRARIES:"
    printf '%08x-%08x r-xp %08x 00:00 0 %s/app\n' "$start" $(((start + size + 4095) / 4096 * 4096)) \
        "$offset" "$work"
} >app.heap
mask "s|$work|DIR|g"
mask "s|0x[0-9a-f]*|ADDRESS|g"

say "Names are added"
show XDG_CACHE_HOME="$work/cache" tally symbolize -o named.pb.gz app.heap
say "Where they came from"
show XDG_CACHE_HOME="$work/cache" tally symbolize -v --overwrite -o named.pb.gz app.heap
show XDG_CACHE_HOME="$work/cache2" tally report -v --top app.heap
say "The program is not needed any more"
mv app elsewhere
show tally report --traces named.pb.gz
say "Nothing is replaced unless it is said"
show tally symbolize -o named.pb.gz app.heap
say "What is not there has no names"
show tally symbolize --no-cache --overwrite -o named.pb.gz app.heap
say "What cannot be done"
show tally symbolize -o x.pb.gz nothing.heap
show tally symbolize --demangle=loudly app.heap
show tally symbolize
