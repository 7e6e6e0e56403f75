#!/bin/bash
# SPDX-License-Identifier: MIT
#
# tally leak-check and tally run --leaks: a program with known leaks, live and recorded; rules, limits, exit
# statuses, and what cannot be looked at.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

prove_preload
cat >"$scratch/loser.c" <<'END'
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node {
    struct node *next;
    char rest[992];
};

static struct node *list;

__attribute__((noinline)) static void lose_pair(void) {
    struct node *first = calloc(1, sizeof *first);
    first->next = calloc(1, 200);
    __asm__ volatile("" : : "r"(first) : "memory");
}

__attribute__((noinline)) static void lose_one(void) {
    void *one = malloc(3000);
    __asm__ volatile("" : : "r"(one) : "memory");
}

__attribute__((noinline)) static void lose_more(void) {
    void *one = malloc(1000);
    __asm__ volatile("" : : "r"(one) : "memory");
}

__attribute__((noinline)) static void grow(void) {
    struct node *node = calloc(1, sizeof *node);
    node->next = list;
    list = node;
}

__attribute__((noinline)) static void wipe(void) {
    volatile char room[8192];
    for (size_t i = 0; i < sizeof room; i++) {
        room[i] = 0x11;
    }
}

int main(int count, char **words) {
    char byte;
    if (strcmp(words[1], "clean") != 0) {
        for (int i = 0; i < 64; i++) {
            lose_pair();
        }
        lose_one();
    }
    wipe();
    (void)!write(1, "r\n", 2);
    while (count > 2 && read(0, &byte, 1) == 1) {
        for (int i = 0; i < 1000; i++) {
            grow();
            lose_more();
        }
        wipe();
        usleep(300000);
        (void)!write(1, "d\n", 2);
    }
    if (strcmp(words[1], "quit") == 0) {
        _exit(0);
    }
    return words[1][0] == '7' ? 7 : 0;
}
END
name=loser-$$
${CC:-cc} -g -O1 -fno-omit-frame-pointer -fno-builtin -o "$work/$name" "$scratch/loser.c" ||
    fail "cannot compile the program"
# Sizes of the heap and of roots, times and process ids are this run's.
mask "s/$name/loser/g"
mask 's/\.[0-9][0-9]*\.tally/.PID.tally/g'
mask 's/^searched .*/searched .../'
mask 's/^STILL REACHABLE .* not leaks/STILL REACHABLE ... not leaks/'
mask 's/(+[0-9.]* [KMG]iB\/h, now [0-9.]* [KM]iB)/(+RATE, now SIZE)/'
mask 's/^DEFINITE .*  3 places:/DEFINITE ...  3 places:/'
mask 's/^  [0-9.]* [KM]iB in [0-9,]* blocks: lose_more/  ... lose_more/'
mask 's/^\(  \.\.\.\) [0-9]* more/\1 N more/'

# card: what the summary says about leaks.
card() {
    sed -f "$masks" "$scratch/stderr" | grep -E 'leaked|^  leak|leak-check' |
        sed 's/.*leaked/leaked/; s/  *temporary.*//; s/  *rss .*//'
}

say "recorded"
status=0
under_libc PATH="$build:$test_search_path" COLUMNS=200 tally run --leaks --rate=exact -o lost.tally "./$name" lose \
    >"$scratch/stdout" 2>"$scratch/stderr" || status=$?
echo "status $status"
card
show tally leak-check lost.tally
show tally leak-check --print-suppressions lost.tally
printf '# ours\nleak:^lose_pair$\n' >pair.supp
show tally leak-check --suppressions=pair.supp lost.tally
printf 'leak:loser.c\n' >file.supp
show tally leak-check --suppressions=file.supp lost.tally
show tally leak-check --min=10K lost.tally
show tally leak-check --min=1M lost.tally
show tally leak-check -n 1 lost.tally

show tally report --metric=leak_space -n 2 lost.tally
show tally check --max-leaks=100K lost.tally
show tally check --max-leaks=0 lost.tally
show tally check --max-leaks=128 lost.tally

say "exit statuses of tally run"
for words in "--exit-code-on-leak=9 lose" "--exit-code-on-leak=9 clean" "--exit-code-on-leak=9 7lose" \
    "--leaks lose" "--exit-code-on-leak=9 quit"; do
    rm -f one.tally
    # The options are words on purpose.
    # shellcheck disable=SC2086
    set -- $words
    status=0
    under_libc PATH="$build:$test_search_path" COLUMNS=200 tally run --rate=exact -o one.tally "$1" "./$name" "$2" \
        >"$scratch/stdout" 2>"$scratch/stderr" || status=$?
    echo "$words: status $status"
done
grep 'was not searched' "$scratch/stderr" | sed -f "$masks"
rm -f one.tally
show tally run --report=none --leaks -o one.tally "./$name" clean
show tally leak-check one.tally

say "a size that was not recorded is one of the size classes"
show tally run --report=none --leaks --rate=1G -o few.tally "./$name" lose
show tally leak-check few.tally

show tally run --report=none -o plain.tally "./$name" clean
show tally leak-check plain.tally
show tally report --metric=leak_space plain.tally

say "alive"
mkdir -m 700 "$scratch/run"
mkfifo "$scratch/in" "$scratch/out"
exec 6<>"$scratch/in" 7<>"$scratch/out"
start_under_tally TALLY_CONF=control:write,prof:true,lg_prof_sample:0 XDG_RUNTIME_DIR="$scratch/run" \
    "./$name" lose forever <&6 >&7 2>"$scratch/audit"
target=$started
stop_target() {
    kill -KILL "$target" 2>/dev/null
    wait 2>/dev/null
}
golden_cleanup=stop_target
read -r -t "$patience" _ <&7 || fail "the program does not start"
show tally leak-check "$name"
say "stopped: nobody waits until it goes on"
kill -STOP "$target"
mask "s/\\b$target\\b/PID/g"
show timeout 60 tally leak-check "$name"
kill -CONT "$target"
sleep 1.1
show tally leak-check --quick --suppressions=pair.supp "$name"
sleep 1.1
while sleep 0.2; do
    printf x
done >&6 &
feeder=$!
# What is lost grows as well, and is no news below what can be reached.
show tally leak-check --watch=1500ms --min=2K "$name"
kill "$feeder"

say "what cannot be"
show tally leak-check
show tally leak-check nobody-has-this-name
show tally leak-check --suppressions=absent lost.tally
printf 'a;b 1\n' >other.folded
show tally leak-check other.folded
show tally run --exit-code-on-leak=256 "./$name" lose
show tally leak-check --max-pause=0 lost.tally
