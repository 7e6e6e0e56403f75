/* SPDX-License-Identifier: MIT
 *
 * test_region.c - new chunks: one behind the other, described and usable, counted, and refused whole
 * when memory is short.
 */
#include "heap/region.h"

#include "base/os.h"
#include "heap/classmap.h"
#include "heap/heap.h"
#include "heap/pages.h"
#include "heap/runs.h"
#include "unit.h"

static void start(void) {
    start_heap();
    pages_lock();
}
TEST_SETUP(start);

/* Takes a run of new chunks out of the sets, so that the next growth is seen. */
static struct chunk *grow(size_t chunks) {
    size_t before = region_mapped_units();
    check(region_grow(chunks));
    check(region_mapped_units() >= before + chunks * CHUNK_UNITS);
    struct chunk *first = runs_find(chunks, 1);
    check(first != NULL);
    return runs_cut(first, chunks, 1);
}

TEST(new_chunks_are_described_usable_and_read_as_zeros) {
    struct chunk *first = grow(3);
    for (unsigned i = 0; i < 3; i++) {
        struct chunk *chunk = classmap_neighbour(first, (ptrdiff_t)i);
        check(chunk != NULL);
        check_eq(chunk->base, first->base + i * (uintptr_t)CHUNK_BYTES);
        check_eq(chunk->base % CHUNK_BYTES, 0);
        check_eq(classmap_chunk(chunk->base + CHUNK_BYTES - 1), chunk);
        check(chunk->used == 0 && chunk->touched == 0);
        for (unsigned unit = 0; unit < CHUNK_UNITS; unit++) {
            check_eq(chunk->first[unit], UNIT_FREE);
            check_eq(chunk->span[unit].kind, SPAN_NONE);
        }
        for (size_t at = 0; at < CHUNK_BYTES; at += 4096) {
            char *page = (char *)chunk->base + at;
            check_eq(*page, 0);
            *page = 1;
        }
    }
}

static unsigned count_mappings(void) {
    int maps = open("/proc/self/maps", O_RDONLY);
    check(maps >= 0);
    static char text[1 << 16];
    unsigned lines = 0;
    for (ssize_t n; (n = read(maps, text, sizeof text)) > 0;) {
        for (ssize_t i = 0; i < n; i++) {
            lines += text[i] == '\n';
        }
    }
    close(maps);
    return lines;
}

/* Metadata lies elsewhere, and the kernel may put other mappings in the way once. */
TEST(chunks_follow_each_other_in_one_mapping) {
    grow(1);
    unsigned before = count_mappings();
    uintptr_t last = grow(1)->base;
    unsigned gaps = 0;
    for (unsigned i = 0; i < 100; i++) {
        uintptr_t base = grow(1)->base;
        gaps += base != last + CHUNK_BYTES;
        last = base;
    }
    check(gaps <= 10);
    check(count_mappings() <= before + 20);
}

TEST(growth_at_the_end_of_the_heap_and_nowhere_else) {
    struct chunk *first = grow(2);
    uintptr_t end = first->base + 2 * (uintptr_t)CHUNK_BYTES;
    check(!region_grow_at(first->base + CHUNK_BYTES, 1));
    check(!region_grow_at(end + CHUNK_BYTES, 1));
    size_t before = region_mapped_units();
    if (region_grow_at(end, 2)) { /* Unless something else is mapped there. */
        check_eq(region_mapped_units(), before + 2 * CHUNK_UNITS);
        check(classmap_chunk(end) != NULL && classmap_chunk(end + CHUNK_BYTES) != NULL);
        check_eq(runs_find(2, 1)->base, end);
    } else {
        check_eq(region_mapped_units(), before);
    }
}

TEST(impossible_growth_is_refused_and_the_next_one_works) {
    size_t before = region_mapped_units();
    check(!region_grow((size_t)1 << 26)); /* 2^47 bytes */
    check_eq(region_mapped_units(), before);
    pages_unlock();
    pages_verify();
    pages_lock();
    grow(1);
}

TEST(shed_reservations_are_reserved_again_when_needed) {
    struct chunk *first = grow(1);
    region_shed();
    uintptr_t base = grow(5)->base;
    check(base != first->base);
    memset((void *)base, 1, 5 * (size_t)CHUNK_BYTES);
}
