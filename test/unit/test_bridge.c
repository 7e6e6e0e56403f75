/* SPDX-License-Identifier: MIT
 *
 * test_bridge.c - the memory of this very process, cut into a heap that the test makes up and the rest.
 */
#include "live/bridge.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "live/live_stats.h"
#include "test.h"

enum { MIB = 1 << 20, HEAP = 8 * MIB };

/* What the process itself may have of anonymous memory. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { OTHERS_BYTES = 512 * MIB };
#else
enum { OTHERS_BYTES = 4 * MIB };
#endif

static struct bridge bridge;
static struct target_page page;
static char
    *memory; /* three times HEAP that the kernel has as one mapping; the heap is in the middle */

static void make_heap(void) {
    size_t guard = 1 << 16;
    char *all = mmap(NULL, 3 * HEAP + 2 * guard, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(all != MAP_FAILED);
    check(mprotect(all, guard, PROT_READ) == 0); /* what lies above nothing is a stack */
    check(mprotect(all + guard + 3 * HEAP, guard, PROT_NONE) == 0);
    madvise(all, 3 * HEAP + 2 * guard, MADV_NOHUGEPAGE);
    memory = all + guard;
    page.range_count = 1;
    page.ranges[0] = (struct stats_page_range){(uint64_t)(uintptr_t)memory + HEAP,
                                               (uint64_t)(uintptr_t)memory + 2 * HEAP};
}

static void build(void) {
    struct target target = {.pid = getpid(), .pidfd = -1, .page_fd = -1};
    check(bridge_build(&target, &page, &bridge));
    uint64_t told = bridge.requested + bridge.rounding + bridge.inside + bridge.cached +
                    bridge.kept + bridge.own;
    check_eq(told - bridge.untouched, bridge.heap);
    check_eq(bridge.files + bridge.stacks + bridge.shared + bridge.anonymous, bridge.other);
    check_eq(bridge.heap + bridge.other + bridge.unexplained, bridge.rss);
}

TEST(a_heap_inside_of_a_larger_mapping_is_told_apart) {
    make_heap();
    memset(memory, 1, 3 * HEAP);
    page.words = (struct stats_page){
        .requested = 5 * MIB, .live = 6 * MIB, .cached = 2 * MIB, .profile_rate = 1};
    build();
    check_eq(bridge.heap, HEAP);
    check_eq(bridge.untouched, 0);
    check_eq(bridge.unexplained, 0);
    check_eq(bridge.rounding, MIB);
    check(bridge.anonymous >= 2 * HEAP && bridge.anonymous < 2 * HEAP + OTHERS_BYTES);
}

TEST(a_heap_that_begins_where_a_file_ends_is_no_part_of_the_file) {
    make_heap();
    FILE *file = tmpfile();
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    check(file != NULL && ftruncate(fileno(file), (off_t)bytes) == 0);
    check(mmap(memory + HEAP - bytes, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
               fileno(file), 0) == memory + HEAP - bytes);
    memset(memory + HEAP, 1, HEAP);
    page.words = (struct stats_page){.requested = HEAP, .live = HEAP};
    build();
    check_eq(bridge.heap, HEAP);
    check_eq(bridge.untouched, 0);
    fclose(file);
}

TEST(memory_that_was_never_written_to_is_subtracted) {
    make_heap();
    memset(memory + HEAP, 1, HEAP / 4);
    memset(memory + 2 * HEAP, 1, HEAP); /* a neighbour */
    page.words = (struct stats_page){.requested = HEAP, .live = HEAP};
    build();
    check_eq(bridge.heap, HEAP / 4);
    check_eq(bridge.untouched, HEAP - HEAP / 4);
    check_eq(bridge.unexplained, 0);
}

TEST(memory_that_nobody_accounts_for_is_unexplained) {
    make_heap();
    memset(memory + HEAP, 1, HEAP);
    page.words =
        (struct stats_page){.requested = 3 * MIB, .live = 3 * MIB, .dirty = MIB, .mapped = HEAP};
    build();
    check_eq(bridge.unexplained, HEAP - 4 * MIB);
    check_eq(bridge.heap, 4 * MIB);
    check_eq(bridge.kept, MIB);
}

TEST(memory_in_ranges_that_are_not_told_is_the_heaps_as_far_as_it_is_counted) {
    make_heap();
    memset(memory, 1, 3 * HEAP); /* the last third is of a range that found no room */
    page.words = (struct stats_page){.requested = 2 * HEAP - MIB, .live = 2 * HEAP - MIB};
    build();
    uint64_t anonymous = bridge.anonymous;
    check_eq(bridge.heap, HEAP);
    check_eq(bridge.untouched, HEAP - MIB);
    page.words.untold = HEAP;
    build();
    check_eq(bridge.heap, 2 * HEAP - MIB);
    check_eq(bridge.assumed, HEAP - MIB);
    check_eq(bridge.untouched, 0);
    check_eq(bridge.unexplained, 0);
    check(bridge.anonymous < anonymous - HEAP + 2 * MIB);
    page.words.untold = MIB; /* No more than that can be there. */
    build();
    check_eq(bridge.heap, HEAP + MIB);
}

/* All in huge pages, as far as the kernel has some; false where it has none. */
static bool fill_with_huge_pages(void) {
    make_heap();
    madvise(memory, 3 * HEAP, MADV_HUGEPAGE);
    memset(memory, 1, 3 * HEAP);
    page.words = (struct stats_page){.live = HEAP - 3 * MIB, .dirty = MIB, .mapped = HEAP};
    build();
    return bridge.kept > MIB;
}

TEST(pages_that_came_with_a_huge_page_are_kept_ones) {
    if (!fill_with_huge_pages()) {
        skip("the kernel gives no huge pages");
    }
    check_eq(bridge.unexplained, 0);
    check_eq(bridge.kept, 3 * MIB);
    /* Not more of them than there are pages that were never used. */
    page.words.mapped = HEAP - MIB;
    build();
    check_eq(bridge.kept, 2 * MIB);
    check_eq(bridge.unexplained, MIB);
}

TEST(without_ranges_all_anonymous_memory_is_the_heap) {
    make_heap();
    page.range_count = 0;
    memset(memory, 1, HEAP);
    page.words = (struct stats_page){.requested = 64 * MIB, .live = 64 * MIB};
    build();
    check(bridge.heap >= HEAP && bridge.heap < HEAP + OTHERS_BYTES);
    check_eq(bridge.anonymous, 0);
}

TEST(what_lies_above_a_guard_page_is_a_stack) {
    make_heap();
    page.range_count = 0;
    check(mprotect(memory, 4096, PROT_NONE) == 0);
    memset(memory + 4096, 1, HEAP);
    build();
    check(bridge.stacks >= HEAP && bridge.stacks < HEAP + 4 * MIB);
}

TEST(groups_are_named_and_sorted) {
    make_heap();
    memset(memory, 1, HEAP);
    build();
    check(bridge.group_count > 2);
    check_str(bridge.groups[0].name, "[anon]");
    bool has_stack = false, has_program = false;
    for (size_t i = 0; i < bridge.group_count; i++) {
        has_stack |= strcmp(bridge.groups[i].name, "stacks") == 0;
        has_program |= strcmp(bridge.groups[i].name, "test_bridge") == 0;
        check(i == 0 || bridge.groups[i - 1].rss >= bridge.groups[i].rss);
    }
    check(has_stack && has_program);
}

TEST(rates_are_what_was_added_and_never_less_than_nothing) {
    static struct look_at_process before, now;
    before.page.words = (struct stats_page){
        .refresh_ns = 1000000000, .nmalloc = 100, .nfree = 90, .allocated_total = 1000};
    now.page.words = (struct stats_page){
        .refresh_ns = 3000000000, .nmalloc = 300, .nfree = 80, .allocated_total = 5000};
    struct live_rates rates = live_stats_rates(&before, &now);
    check_eq((int)rates.malloc_per_s, 100);
    check_eq((int)rates.bytes_per_s, 2000);
    check_eq((int)rates.free_per_s, 0);
    check(rates.is_known);
}

/* Two looks at the same page are no reason to say that the program does nothing. */
TEST(rates_of_a_page_that_was_not_renewed_are_unknown) {
    static struct look_at_process look;
    look.page.words = (struct stats_page){.sum_ns = 1000000000, .nmalloc = 100};
    check(!live_stats_rates(&look, &look).is_known);
}

TEST(rounding_is_known_where_every_block_is_recorded_and_nowhere_else) {
    make_heap();
    memset(memory + HEAP, 1, HEAP);
    page.words = (struct stats_page){.requested = 5 * MIB, .live = 8 * MIB, .live_objects = 1000};
    build();
    check(!bridge.knows_rounding);
    check_eq(bridge.requested, 8 * MIB);
    page.words.profile_rate = 512 << 10;
    page.words.profile_samples = 1000;
    build();
    check(!bridge.knows_rounding);
    page.words.profile_rate = 1;
    page.words.profile_samples = 900; /* The others were there before the profiler. */
    build();
    check(!bridge.knows_rounding);
    page.words.profile_samples = 1000;
    build();
    check(bridge.knows_rounding);
    check_eq(bridge.requested, 5 * MIB);
    check_eq(bridge.rounding, 3 * MIB);
}
