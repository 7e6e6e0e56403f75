/* SPDX-License-Identifier: MIT
 *
 * program_jemalloc_start.c - what a first program for jemalloc does: allocate, resize, measure, look
 * at the statistics before and after. test_jemalloc_names.sh and test/build/prefix.sh compile it in
 * several ways: against jemalloc's header and against ours, with and without the prefix.
 *
 * It prints the file that serves mallctl and the one that serves libc's malloc, so that the scripts
 * see whose functions these are, and ends with "works" if all figures are as they should be.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jemalloc/jemalloc.h>

#ifdef PLAIN_NAMES
#define je_malloc malloc
#define je_calloc calloc
#define je_realloc realloc
#define je_free free
#define je_malloc_usable_size malloc_usable_size
#define je_malloc_stats_print malloc_stats_print
#define je_mallctl mallctl
#endif

enum { BLOCKS = 6000, LEAST = 1000, MIB = 1 << 20 };

#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct figures {
    size_t allocated, active, mapped;
};

static size_t read_size(const char *name) {
    size_t value = 0;
    size_t bytes = sizeof(value);
    int error = je_mallctl(name, &value, &bytes, NULL, 0);
    if (error != 0) {
        fprintf(stderr, "mallctl of %s: %s\n", name, strerror(error));
        exit(1);
    }
    return value;
}

/* Statistics are a copy, made when the epoch is written. */
static struct figures look(void) {
    uint64_t epoch = 1;
    size_t bytes = sizeof(epoch);
    expect(je_mallctl("epoch", &epoch, &bytes, &epoch, sizeof(epoch)) == 0);
    return (struct figures){read_size("stats.allocated"), read_size("stats.active"),
                            read_size("stats.mapped")};
}

static void *blocks[BLOCKS];

/* About 60 MiB, in blocks of many sizes. */
static size_t allocate(void) {
    size_t sum = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = LEAST + i * 3;
        unsigned char *p = i % 2 ? je_malloc(size) : je_calloc(1, size);
        expect(p != NULL && (i % 2 || p[size - 1] == 0));
        memset(p, 1, size);
        sum += je_malloc_usable_size(p);
        blocks[i] = p;
    }
    return sum;
}

static void release(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = je_realloc(blocks[i], LEAST / 2);
        expect(blocks[i] != NULL && *(char *)blocks[i] == 1);
        je_free(blocks[i]);
    }
}

/* jemalloc counts what is in caches as well, so there is some play. */
static void check_figures(struct figures before, struct figures full, struct figures after,
                          size_t sum) {
    expect(full.allocated + MIB >= before.allocated + sum);
    expect(full.allocated <= before.allocated + sum + MIB);
    expect(full.active >= full.allocated);
    expect(full.mapped >= full.active);
    expect(after.allocated <= before.allocated + MIB);
    expect(after.active < full.active);
}

struct seen {
    size_t bytes;
    int has_summary;
};

static void see(void *opaque, const char *text) {
    struct seen *seen = opaque;
    seen->bytes += strlen(text);
    seen->has_summary |= strstr(text, "Allocated: ") != NULL;
}

static void say_who_serves(const char *what, void *function) {
    Dl_info info;
    int found = dladdr(function, &info);
    printf("%s: %s\n", what, found ? info.dli_fname : "nobody");
}

int main(void) {
    say_who_serves("mallctl", (void *)(uintptr_t)je_mallctl);
    say_who_serves("malloc of libc", dlsym(RTLD_DEFAULT, "malloc"));
    fflush(stdout);

    struct figures before = look();
    size_t sum = allocate();
    struct figures full = look();
    release();
    check_figures(before, full, look(), sum);

    struct seen seen = {0, 0};
    je_malloc_stats_print(see, &seen, NULL);
    expect(seen.bytes > 1000 && seen.has_summary);
    puts("works");
    return 0;
}
