#!/bin/sh
# SPDX-License-Identifier: MIT
#
# gcc under the library: a large generated file compiled to assembly, byte for byte as under libc.
# The compiler proper, cc1, waits for its input behind a gate and is looked at while it does.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need gcc
prove_preload

awk 'BEGIN {
    print "struct node { struct node *next; long value[8]; };"
    for (f = 0; f < 250; f++) {
        printf "long function_%d(struct node *list, long n) {\n", f
        print "    long sum = 0;"
        print "    for (struct node *node = list; node; node = node->next) {"
        printf "        switch ((n + node->value[%d]) %% 7) {\n", f % 8
        for (c = 0; c < 7; c++) {
            printf "        case %d: sum += node->value[%d] * %d; break;\n", c, (c + f) % 8, f + c
        }
        print "        default: break;\n        }"
        print "        for (int i = 0; i < 8; i++) { node->value[i] ^= sum >> i; }"
        print "    }"
        if (f > 0) {
            printf "    return sum > n ? function_%d(list, n - 1) : sum;\n}\n", f - 1
        } else {
            print "    return sum;\n}"
        }
    }
}' >"$scratch/large.c"

# The driver must have started the compiler, and the compiler must have the library too.
held_check=compiler_is_mapped
compiler_is_mapped() {
    until_so pgrep -P "$1" -x cc1 >/dev/null
    wait_until_mapped "$(pgrep -P "$1" -x cc1)"
}

command -v pgrep >/dev/null || skip "pgrep is not installed"
under_libc gcc -O2 -S -o - -x c - <"$scratch/large.c" >"$scratch/libc" ||
    fail "gcc fails under libc"
run_held "$scratch/large.c" "$scratch/tally" gcc -O2 -S -o - -x c -
same_output gcc "$scratch/libc" "$scratch/tally"
[ "$(grep -c '^function_' "$scratch/tally")" -ge 250 ] || fail "gcc did not compile every function"
echo "gcc: $(wc -l <"$scratch/tally") lines of assembly as under libc"
