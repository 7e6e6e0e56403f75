/* SPDX-License-Identifier: MIT
 *
 * program_inlined.c - functions within functions within functions, for test_symbols.sh.
 *
 * Loops, branches and a split into hot and cold parts give the calls that the compiler inlines ranges
 * of several pieces.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline unsigned mix(unsigned a, unsigned b) {
    return (a << 7 | a >> 25) ^ b * 2654435761U;
}

static inline unsigned mix_text(const char *text) {
    unsigned hash = 0;
    for (; *text != '\0'; text++) {
        hash = mix(hash, (unsigned char)*text);
        if (__builtin_expect(hash == 0, 0)) {
            fprintf(stderr, "zero at %s\n", text);
            abort();
        }
    }
    return hash;
}

struct pair {
    char *name;
    unsigned hash;
};

static inline void set_pair(struct pair *pair, const char *name) {
    pair->hash = mix_text(name);
    pair->name = strdup(name);
    if (pair->name == NULL) {
        perror("strdup");
        exit(1);
    }
}

static int compare(const void *a, const void *b) {
    const struct pair *left = a, *right = b;
    return left->hash < right->hash ? -1 : left->hash > right->hash;
}

__attribute__((noinline)) unsigned fill(struct pair *pairs, unsigned count, char **names) {
    unsigned sum = 0;
    for (unsigned i = 0; i < count; i++) {
        set_pair(&pairs[i], names[i]);
        sum = mix(sum, pairs[i].hash);
    }
    qsort(pairs, count, sizeof pairs[0], compare);
    return sum;
}

/* A function inside a function lies outside of it. */
__attribute__((noinline)) unsigned apply(unsigned from, unsigned to) {
    unsigned total = from;
#ifndef __clang__
    __attribute__((noinline)) void add(unsigned n) {
        total = mix(total, n);
    }
#else
#define add(n) total = mix(total, n)
#endif
    for (unsigned i = from; i < to; i++) {
        add(i);
    }
    return total;
}

int main(int count, char **words) {
    struct pair *pairs = calloc((unsigned)count, sizeof pairs[0]);
    if (pairs == NULL) {
        return 1;
    }
    printf("%u %u\n", fill(pairs, (unsigned)count, words), apply(1, (unsigned)count));
    return 0;
}
