/* SPDX-License-Identifier: MIT
 *
 * test_glibc_extras.c - the functions of <malloc.h> that programs use to look at the heap: their
 * answers have to be true.
 *
 * Bounds are chosen so that size classes, caches and page rounding fit in, and a counter that is
 * forgotten, counted twice or never lowered does not. Numbers are read into variables first and
 * compared afterwards, so that nothing allocates between two observations.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

static const size_t MIB = 1024 * 1024;

enum { BLOCKS = 10000, TEXT_BYTES = 1 << 20 };

static void *blocks[BLOCKS];
static char text[TEXT_BYTES];

/* Bytes the program holds: glibc counts blocks it mapped on their own apart from the others. */
static size_t held(struct mallinfo2 info) {
    return info.uordblks + info.hblkhd;
}

static void allocate_blocks(size_t size) {
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(size);
        check(blocks[i] != NULL);
        memset(blocks[i], 1, size);
    }
}

static void free_blocks(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
}

static void check_between(size_t value, size_t least, size_t most) {
    char number[3][24];
    if (value < least || value > most) {
        test_say("    ", test_decimal(number[0], (long long)value), " is not between ",
                 test_decimal(number[1], (long long)least), " and ",
                 test_decimal(number[2], (long long)most), "\n", NULL);
    }
    check(least <= value && value <= most);
}

TEST(mallinfo2_counts_ten_megabytes_of_small_blocks) {
    struct mallinfo2 before = mallinfo2();
    allocate_blocks(1000);
    struct mallinfo2 with = mallinfo2();
    free_blocks();
    struct mallinfo2 after = mallinfo2();
    check_between(held(with) - held(before), 10 * 1000 * 1000, 11500 * 1000);
    check_between(held(after), 0, held(before) + MIB);
}

TEST(mallinfo2_counts_one_large_block) {
    struct mallinfo2 before = mallinfo2();
    void *p = malloc(100 * MIB);
    struct mallinfo2 with = mallinfo2();
    free(p);
    struct mallinfo2 after = mallinfo2();
    check_between(held(with) - held(before), 100 * MIB, 101 * MIB);
    check_between(held(after), 0, held(before) + MIB);
}

TEST(mallinfo2_parts_add_up) {
    allocate_blocks(500);
    for (size_t i = 0; i < BLOCKS; i += 2) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
    struct mallinfo2 info = mallinfo2();
    check_eq(info.uordblks + info.fordblks, info.arena);
    check(info.fordblks >= BLOCKS / 2 * 500 / 2);
    free_blocks();
}

static void *allocate_in_thread(void *unused) {
    allocate_blocks(1000);
    return unused;
}

TEST(mallinfo2_counts_what_an_ended_thread_left) {
    pthread_t thread;
    struct mallinfo2 before = mallinfo2();
    check_eq(pthread_create(&thread, NULL, allocate_in_thread, NULL), 0);
    check_eq(pthread_join(thread, NULL), 0);
    struct mallinfo2 with = mallinfo2();
    free_blocks();
    struct mallinfo2 after = mallinfo2();
    check_between(held(with) - held(before), 10 * 1000 * 1000, 11500 * 1000);
    check_between(held(after), 0, held(before) + MIB);
}

/* Deprecated, still called by old programs. */
static struct mallinfo old_mallinfo(void) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return mallinfo();
#pragma GCC diagnostic pop
}

TEST(mallinfo_agrees_with_mallinfo2) {
    allocate_blocks(300);
    struct mallinfo2 large = mallinfo2();
    struct mallinfo small = old_mallinfo();
    check_eq(small.uordblks, large.uordblks);
    check_eq(small.fordblks, large.fordblks);
    check_eq(small.arena, large.arena);
    check_eq(small.hblkhd, large.hblkhd);
    free_blocks();
}

TEST(mallinfo_saturates_where_an_int_ends) {
    void *p = malloc(3000 * MIB);
    if (p == NULL) {
        skip("the kernel does not give 3 GB of untouched memory");
    }
    struct mallinfo2 large = mallinfo2();
    struct mallinfo small = old_mallinfo();
    check(held(large) >= 3000 * MIB);
    check_eq(small.uordblks, large.uordblks > INT_MAX ? INT_MAX : large.uordblks);
    check_eq(small.hblkhd, large.hblkhd > INT_MAX ? INT_MAX : large.hblkhd);
    check_eq(small.arena, large.arena > INT_MAX ? INT_MAX : large.arena);
    free(p);
}

TEST(malloc_trim_gives_most_of_a_freed_heap_back) {
    enum { COUNT = 60000 };
    static void *many[COUNT];
    size_t before = test_anonymous_bytes();
    for (size_t i = 0; i < COUNT; i++) {
        many[i] = malloc(1000);
        memset(many[i], 1, 1000);
    }
    check(test_anonymous_bytes() > before + 55 * MIB);
    for (size_t i = 0; i < COUNT; i++) {
        free(many[i]);
    }
    int result = malloc_trim(0);
    check(result == 0 || result == 1);
    check(test_anonymous_bytes() < before + 10 * MIB);
}

/* Reads a name and moves past it. */
static size_t name_length(const char *at) {
    return strcspn(at, " \t\n/>=");
}

/* Checks the nesting of elements, which is all that the report has; attributes must be quoted. */
static bool well_formed(const char *at) {
    struct {
        const char *name;
        size_t length;
    } open[32];
    size_t depth = 0;
    size_t elements = 0;
    for (at = strchr(at, '<'); at != NULL; at = strchr(at + 1, '<')) {
        bool closing = at[1] == '/';
        const char *name = at + 1 + closing;
        size_t length = name_length(name);
        const char *end = strchr(at, '>');
        if (end == NULL || length == 0) {
            return false;
        }
        size_t quotes = 0;
        for (const char *c = at; c < end; c++) {
            quotes += *c == '"';
            if (c > at && *c == '<') {
                return false;
            }
        }
        if (quotes % 2 != 0) {
            return false;
        }
        if (closing) {
            if (depth == 0 || open[depth - 1].length != length ||
                memcmp(open[depth - 1].name, name, length) != 0) {
                return false;
            }
            depth--;
        } else if (end[-1] != '/' && at[1] != '?' && at[1] != '!') {
            if (depth == 32 || (depth == 0 && elements > 0)) {
                return false;
            }
            open[depth].name = name;
            open[depth++].length = length;
        }
        elements++;
    }
    return depth == 0 && elements > 0;
}

TEST(the_checker_of_well_formedness_can_fail) {
    check(well_formed("<malloc version=\"1\"><a/><b c=\"d\"></b></malloc>"));
    check(!well_formed("<malloc><a></malloc></a>"));
    check(!well_formed("<malloc>"));
    check(!well_formed("<malloc a=\"></malloc>"));
    check(!well_formed("<a></a><b></b>"));
    check(!well_formed("no element"));
}

TEST(malloc_info_writes_well_formed_xml) {
    allocate_blocks(700);
    FILE *file = fmemopen(text, sizeof text, "w");
    check(file != NULL);
    check_eq(malloc_info(0, file), 0);
    check_eq(fclose(file), 0);
    check(strncmp(text, "<malloc version=", 16) == 0);
    check(strlen(text) < sizeof text - 1);
    check(well_formed(text));
    free_blocks();
}

TEST(malloc_info_refuses_unknown_options) {
    FILE *file = fmemopen(text, sizeof text, "w");
    check(malloc_info(1, file) != 0);
    check_eq(fclose(file), 0);
    check_str(text, "");
}

/* Runs malloc_stats with standard error going into a pipe, and returns what it wrote. */
static const char *stats_text(void) {
    int ends[2];
    check_eq(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    check_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    malloc_stats();
    check_eq(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    size_t used = 0;
    ssize_t n;
    while ((n = read(ends[0], text + used, sizeof text - 1 - used)) > 0) {
        used += (size_t)n;
    }
    text[used] = '\0';
    close(ends[0]);
    return text;
}

TEST(malloc_stats_writes_lines_with_numbers_to_stderr) {
    const char *written = stats_text();
    size_t length = strlen(written);
    check(length > 0);
    check(written[length - 1] == '\n');
    check(strpbrk(written, "0123456789") != NULL);
}

TEST(malloc_usable_size_is_the_same_at_every_look) {
    for (size_t size = 1; size < 4 * MIB; size = size * 2 + 3) {
        void *p = malloc(size);
        size_t first = malloc_usable_size(p);
        check_between(first, size, size + size / 4 + 16384 + 16);
        memset(p, 0xff, first);
        check_eq(malloc_usable_size(p), first);
        free(p);
    }
}
