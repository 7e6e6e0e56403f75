/* SPDX-License-Identifier: MIT
 *
 * test_stats_print.c - the printed lines are the heap's numbers, and they add up as they claim.
 */
#include "control/control.h"

#include <stdio.h>

#include "heap/heap.h"
#include "heap/pages.h"
#include "unit.h"

static const char *printed(void) {
    struct capture capture = capture_begin();
    control_print_stats(2);
    return capture_end(capture);
}

/* The number behind a name at the start of a line. */
static size_t number_of(const char *text, const char *name) {
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\n  %s ", name);
    const char *line = strstr(text, pattern);
    if (line == NULL) {
        test_say("    no line '", name, "' in\n", text, NULL);
        check(line != NULL);
    }
    return strtoull(line + strlen(pattern), NULL, 10);
}

static void check_sums(const char *text) {
    size_t spans = number_of(text, "live") + number_of(text, "+ cached") +
                   number_of(text, "+ free in slabs") + number_of(text, "+ ends of large blocks");
    check_eq(number_of(text, "= in spans"), spans);
    check_eq(spans, pages_totals().used);
    check_eq(number_of(text, "= mapped"),
             spans + number_of(text, "+ free pages kept") + number_of(text, "+ without memory"));
    check_eq(number_of(text, "= mapped"), pages_totals().mapped);
}

/* Adds up the table of classes: size, live, cached, slabs. */
static size_t live_in_table(const char *text) {
    const char *line = strstr(text, "    size         live     cached    slabs\n");
    check(line != NULL);
    size_t sum = 0;
    while ((line = strchr(line, '\n')) != NULL && line[1] != '\0') {
        size_t size, live, cached, slabs;
        line++;
        check_eq(sscanf(line, "%zu %zu %zu %zu", &size, &live, &cached, &slabs), 4);
        check(size_class_of(size) < CLASS_COUNT && size_classes[size_class_of(size)].size == size);
        check(slabs > 0);
        sum += size * live;
    }
    return sum;
}

TEST(empty_heap_prints_zeros) {
    start_heap();
    heap_trim();
    const char *text = printed();
    check(strncmp(text, "tally: where the heap's bytes are\n", 34) == 0);
    check_eq(number_of(text, "live"), 0);
    check_eq(number_of(text, "= in spans"), 0);
    check(number_of(text, "tally's own") > 0);
    check_eq(live_in_table(text), 0);
    check_sums(text);
}

TEST(lines_add_up_whatever_the_heap_holds) {
    start_heap();
    static void *blocks[3000];
    struct random random = random_start(30, 0);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 3000; i++) {
            void **slot = &blocks[random_below(&random, 3000)];
            tally_free(*slot);
            *slot = tally_malloc(random_below(&random, random_below(&random, 20) ? 3000 : 200000));
        }
        size_t live = 0, small = 0;
        for (unsigned i = 0; i < 3000; i++) {
            size_t size = tally_usable_size(blocks[i]);
            live += size;
            small += size <= SMALL_MAX ? size : 0;
        }
        const char *text = printed();
        check_sums(text);
        check_eq(number_of(text, "live"), live);
        check_eq(live_in_table(text), small);
    }
}
