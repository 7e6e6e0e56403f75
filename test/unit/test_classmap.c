/* SPDX-License-Identifier: MIT
 *
 * test_classmap.c - lookups answer for any pointer whatever, and exactly.
 *
 * Chunks are entered at made-up addresses: nothing behind them is touched.
 */
#define _GNU_SOURCE /* MAP_FIXED_NOREPLACE */
#include "heap/classmap.h"

#include <sys/mman.h>

#include "base/os.h"
#include "heap/fast.h"
#include "heap/slab.h"
#include "unit.h"

static const uintptr_t somewhere = UINT64_C(0x123456) << LG_CHUNK; /* below 2^45 */
static const uintptr_t twin_distance = UINT64_C(1) << 45;          /* same bits 14..44 */

static void start_map(void) {
    os_init();
    size_class_init();
    classmap_init(false);
    check(!classmap_is_windowed());
}

static struct chunk *enter_chunk(struct chunk *chunk, uintptr_t base) {
    static struct span spans[4][CHUNK_UNITS];
    static unsigned chunks;
    check(chunks < 4);
    chunk->span = spans[chunks++];
    check(classmap_cover(base));
    chunk->base = base;
    memset(chunk->first, UNIT_FREE, sizeof chunk->first);
    classmap_enter(chunk);
    return chunk;
}

TEST(lookups_before_start_find_nothing) {
    struct random random = random_start(13, 0);
    for (unsigned i = 0; i < 1000; i++) {
        uintptr_t address = random_next(&random);
        check_eq(classmap_get(address), 0);
        check(classmap_chunk(address) == NULL);
        check(classmap_span(address) == NULL);
    }
}

TEST(lookups_of_wild_addresses_find_nothing) {
    start_map();
    struct random random = random_start(14, 0);
    for (unsigned i = 0; i < 100000; i++) {
        uintptr_t address = random_next(&random) >> random_below(&random, 40);
        check_eq(classmap_get(address), 0);
        check(classmap_chunk(address) == NULL);
    }
    check_eq(classmap_get(0), 0);
    check_eq(classmap_get(UINTPTR_MAX), 0);
    check(classmap_chunk(UINTPTR_MAX) == NULL);
}

TEST(chunk_is_found_by_each_of_its_addresses_and_no_other) {
    static struct chunk chunk;
    start_map();
    enter_chunk(&chunk, somewhere);
    check_eq(classmap_chunk(somewhere), &chunk);
    check_eq(classmap_chunk(somewhere + CHUNK_BYTES - 1), &chunk);
    check(classmap_chunk(somewhere - 1) == NULL);
    check(classmap_chunk(somewhere + CHUNK_BYTES) == NULL);
    for (unsigned i = 0; i < 64; i++) {
        uintptr_t other = somewhere ^ UINT64_C(1) << i;
        check_eq(classmap_chunk(other), i < LG_CHUNK ? &chunk : NULL);
    }
}

TEST(chunk_that_shares_bytes_with_another_is_refused) {
    static struct chunk chunk, neighbour;
    start_map();
    enter_chunk(&chunk, somewhere);
    check(!classmap_cover(somewhere));
    check(!classmap_cover(somewhere + twin_distance));
    enter_chunk(&neighbour, somewhere + CHUNK_BYTES);
    check_eq(classmap_chunk(somewhere + CHUNK_BYTES), &neighbour);
    check_eq(classmap_chunk(somewhere), &chunk);
}

TEST(addresses_beyond_the_map_are_refused) {
    start_map();
    check(!classmap_cover((uintptr_t)1 << ADDRESS_BITS));
    check(!classmap_cover(UINTPTR_MAX - CHUNK_BYTES + 1));
    check(classmap_cover(((uintptr_t)1 << ADDRESS_BITS) - CHUNK_BYTES));
}

TEST(covering_again_before_entering_is_allowed) {
    static struct chunk chunk;
    start_map();
    check(classmap_cover(somewhere));
    check(classmap_cover(somewhere));
    enter_chunk(&chunk, somewhere);
}

TEST(published_granules_carry_their_class_and_others_do_not) {
    static struct chunk chunk;
    start_map();
    enter_chunk(&chunk, somewhere);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        uintptr_t first = somewhere + (uintptr_t)c * UNIT_BYTES;
        classmap_publish(first, 3, c);
        check_eq(classmap_get(first - 1), 0);
        check_eq(classmap_get(first), 4 * c);
        check_eq(classmap_get(first + 3 * UNIT_BYTES - 1), 4 * c);
        check_eq(classmap_get(first + 3 * UNIT_BYTES), 0);
        classmap_publish(first, 3, 0);
        check_eq(classmap_get(first), 0);
    }
    classmap_publish(somewhere, 0, 5);
    check_eq(classmap_get(somewhere), 0);
}

TEST(span_is_found_from_every_unit_of_it) {
    static struct chunk chunk, next;
    start_map();
    enter_chunk(&chunk, somewhere);
    enter_chunk(&next, somewhere + CHUNK_BYTES);
    memset(chunk.first + 5, 5, 3);
    chunk.span[5] = (struct span){.base = somewhere + 5 * UNIT_BYTES, .kind = SPAN_SLAB};
    check(classmap_span(somewhere + 5 * UNIT_BYTES - 1) == NULL);
    check_eq(classmap_span(somewhere + 5 * UNIT_BYTES), &chunk.span[5]);
    check_eq(classmap_span(somewhere + 8 * UNIT_BYTES - 1), &chunk.span[5]);
    check(classmap_span(somewhere + 8 * UNIT_BYTES) == NULL);
    /* One that goes on in the next chunk is found as a whole. */
    memset(chunk.first + 100, 100, CHUNK_UNITS - 100);
    memset(next.first, 0, 10);
    chunk.span[100] = (struct span){.base = somewhere + 100 * UNIT_BYTES, .kind = SPAN_LARGE};
    next.continues = chunk.span[100].base;
    check_eq(classmap_span(next.base + 9 * UNIT_BYTES), &chunk.span[100]);
    check(classmap_span(next.base + 10 * UNIT_BYTES) == NULL);
    check(classmap_span(next.base + 9 * UNIT_BYTES + twin_distance) == NULL);
}

TEST(window_mode_answers_zero_and_finds_chunks) {
    static struct chunk chunk;
    os_init();
    size_class_init();
    classmap_init(true);
    check(classmap_is_windowed());
    enter_chunk(&chunk, somewhere);
    classmap_publish(somewhere, CHUNK_UNITS, 7);
    check_eq(classmap_get(somewhere), 0);
    check_eq(classmap_chunk(somewhere), &chunk);
    check(!classmap_cover(somewhere));
}

/* ---------------------------------------------------------------- shrinking */

TEST(first_byte_of_the_map_belongs_to_nobody) {
    start_map();
    check(!classmap_cover(0));
    check(!classmap_cover(twin_distance));
    check(classmap_cover(CHUNK_BYTES));
}

TEST(shrunk_map_answers_zero_for_any_address) {
    static struct chunk chunk;
    start_map();
    enter_chunk(&chunk, somewhere);
    classmap_publish(somewhere, CHUNK_UNITS, 7);
    classmap_shrink();
    check(classmap_is_windowed());
    struct random random = random_start(15, 0);
    for (unsigned i = 0; i < 100000; i++) {
        check_eq(classmap_get(random_next(&random)), 0);
    }
    check_eq(classmap_get(somewhere), 0);
    check_eq(classmap_get(0), 0);
    check_eq(classmap_chunk(somewhere), &chunk);
}

TEST(shrunk_map_takes_new_chunks_and_publishes_nothing) {
    static struct chunk chunk, later;
    start_map();
    enter_chunk(&chunk, somewhere);
    classmap_shrink();
    uintptr_t elsewhere = somewhere + ((uintptr_t)9 << LG_TABLE_LEAF);
    enter_chunk(&later, elsewhere);
    classmap_publish(elsewhere, CHUNK_UNITS, 7);
    classmap_publish(somewhere, CHUNK_UNITS, 7);
    check_eq(classmap_get(elsewhere), 0);
    check_eq(classmap_chunk(elsewhere), &later);
}

/* Is this byte of the process mapped?  The kernel looks, so that nothing faults. */
static bool is_mapped(const void *address) {
    static int null = -1;
    if (null < 0) {
        int ends[2];
        check(pipe(ends) == 0);
        null = ends[1];
    }
    return write(null, address, 1) == 1;
}

TEST(shrinking_keeps_what_describes_the_heap_and_unmaps_the_rest) {
    static struct chunk low, high;
    start_map();
    uintptr_t last = ((uintptr_t)1 << 45) - CHUNK_BYTES; /* its piece ends the map */
    enter_chunk(&low, somewhere);
    enter_chunk(&high, last);
    classmap_publish(somewhere, 1, 7);
    classmap_publish(last, 1, 9);
    size_t piece = sizeof(struct granule) << (LG_TABLE_LEAF - LG_UNIT);
    size_t first = align_down((somewhere >> LG_UNIT) * sizeof(struct granule), piece);
    size_t unused = first + 5 * piece;
    check(is_mapped((char *)classmap + unused));
    classmap_shrink();
    /* What a thread reads that had seen the old mask. */
    check_eq(classmap[somewhere >> LG_UNIT].class4, 4 * 7);
    check_eq(classmap[last >> LG_UNIT].class4, 4 * 9);
    check_eq(classmap[0].class4, 0);
    check(is_mapped((char *)classmap + first));
    check(is_mapped((char *)classmap + first + piece - 1));
    check(!is_mapped((char *)classmap + first - 1));
    check(!is_mapped((char *)classmap + first + piece));
    check(!is_mapped((char *)classmap + unused));
    check(!is_mapped((char *)classmap + os_facts.page_bytes));
}

TEST(shrinking_again_leaves_alone_what_came_into_the_holes) {
    static struct chunk chunk;
    start_map();
    enter_chunk(&chunk, somewhere);
    classmap_shrink();
    void *hole = (char *)classmap + (UINT64_C(1) << 31);
    void *filled = mmap(hole, os_facts.page_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    check_eq(filled, hole);
    classmap_shrink();
    check(is_mapped(filled));
}
