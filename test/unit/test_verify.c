/* SPDX-License-Identifier: MIT
 *
 * test_verify.c - heap_verify finds what is broken on purpose, and nothing where nothing is.
 *
 * Each fault has a process of its own, which starts its heap after the fork: in the child of a process
 * that had one, some losses are no fault.
 */
#include "heap/verify.h"

#include "base/os.h"
#include "heap/arena.h"
#include "heap/cache.h"
#include "heap/classmap.h"
#include "heap/depot.h"
#include "heap/pool.h"
#include "heap/emergency.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/pages.h"
#include "heap/slab.h"
#include "heap/stash.h"
#include "heap/tcaches.h"
#include "unit.h"

enum { CLASS = 6, SIZE = 96, OTHER_SIZE = 208, OBJECTS = 300 };

/* A heap in which A, F, a depot and an explicit cache hold something, and which is sound. */
static void start_sound(const char *conf) {
    static void *objects[OBJECTS];
    start_heap_with(conf);
    for (unsigned size = SIZE; size <= OTHER_SIZE; size += OTHER_SIZE - SIZE) {
        for (unsigned i = 0; i < OBJECTS; i++) {
            objects[i] = tally_malloc(size);
        }
        for (unsigned i = 0; i < OBJECTS; i++) {
            tally_free(objects[i]);
        }
        tally_free(tally_malloc(size)); /* One comes from A and goes to F. */
    }
    check(tls.self != NULL);
    heap_verify();
}

static void start(void) {
    start_sound("narenas:4,background_thread:false");
}

static struct rec *rec(void) {
    return &tls.self->hot.rec[CLASS];
}

/* A slot of A that is filled. */
static void **slot_in_take(unsigned i) {
    check(magazine_take_count(rec()->take) > i);
    return &magazine_of_take(rec()->take)->slots[i];
}

static void **slot_in_give(void) {
    check(magazine_give_count(rec()->give, tls.self->cap[CLASS]) > 0);
    return (void **)rec()->give - 1;
}

/* The only magazine of the depot: it takes the one that was returned last. */
static struct magazine *new_waiting(unsigned count) {
    void *objects[MAGAZINE_MOST];
    check_eq(bin_refill(arena_bin(0, CLASS), objects, count, PAGES_MAY_GROW), count);
    depot_drain_all();
    struct magazine *magazine = pool_take();
    pool_put(magazine);
    depot_put(0, CLASS, objects, count);
    check_eq(depot_count(CLASS), count);
    check_eq(magazine->slots[0], objects[0]);
    return magazine;
}

static struct span *slab_of(const void *object) {
    return classmap_span((uintptr_t)object);
}

static unsigned index_of(const void *object) {
    const struct span *slab = slab_of(object);
    return size_class_index(slab_class(slab), (uint32_t)((uintptr_t)object - slab->base));
}

#define FOUND(condition) "tally: internal error: '" condition
#define check_found(fault, condition)                                                              \
    check_dies(                                                                                    \
        {                                                                                          \
            start();                                                                               \
            fault;                                                                                 \
            heap_verify();                                                                         \
        },                                                                                         \
        FOUND(condition), SIGABRT)

TEST(sound_heap_passes) {
    start();
    int cache = tcaches_create();
    void *object = NULL;
    check(cache >= 0 && tcaches_alloc((unsigned)cache, 0, CLASS, &object));
    check(tcaches_free((unsigned)cache, CLASS, object));
    new_waiting(20);
    void *block = emergency_alloc(100, 64);
    heap_verify();
    emergency_free(block);
    heap_trim();
    heap_verify();
}

/* ---------------------------------------------------------------- objects in caches */

static void cache_twice_in_one_magazine(void) {
    *slot_in_take(0) = *slot_in_take(1);
}

static void cache_in_both_magazines(void) {
    *slot_in_give() = *slot_in_take(0);
}

static void cache_in_magazine_and_depot(void) {
    new_waiting(5)->slots[2] = *slot_in_take(0);
}

static void cache_twice_in_explicit_cache(void) {
    unsigned cache = (unsigned)tcaches_create();
    void *object = NULL;
    for (unsigned i = 0; i < 20; i++) { /* until the class has magazines */
        check(tcaches_alloc(cache, 0, CLASS, &object));
        check(tcaches_free(cache, CLASS, object));
    }
    check(tcaches_free(cache, CLASS, object));
}

static void defer_what_is_cached(void) {
    emergency_defer(*slot_in_take(0));
}

TEST(object_in_two_places_is_found) {
    check_found(cache_twice_in_one_magazine(), "!was_met_before'");
    check_found(cache_in_both_magazines(), "!was_met_before'");
    check_found(cache_in_magazine_and_depot(), "!was_met_before'");
    check_found(cache_twice_in_explicit_cache(), "!was_met_before'");
    check_found(defer_what_is_cached(), "!was_met_before'");
}

static void cache_interior(void) {
    *slot_in_take(0) = (char *)*slot_in_take(0) + 16;
}

static void cache_other_class(void) {
    *slot_in_take(0) = tally_malloc(OTHER_SIZE);
}

static void cache_large(void) {
    *slot_in_take(0) = tally_malloc(1 << 20);
}

static void cache_foreign(void) {
    static uint64_t words[2];
    *slot_in_take(0) = words;
}

TEST(what_is_no_object_of_the_class_is_found) {
    check_found(cache_interior(), "size_class_is_start(");
    check_found(cache_other_class(), "slab != NULL && slab->kind == SPAN_SLAB");
    check_found(cache_large(), "slab != NULL && slab->kind == SPAN_SLAB");
    check_found(cache_foreign(), "slab != NULL && slab->kind == SPAN_SLAB");
}

/* Its slab counts as many free objects as before: another one is out instead. */
static void free_what_is_cached(void) {
    void *objects[2];
    new_waiting(1); /* drains what waited, so that slabs have some */
    struct bin *bin = arena_bin(slab_of(*slot_in_take(0))->arena, CLASS);
    check_eq(bin_refill(bin, objects, 2, PAGES_USED_BEFORE), 2);
    struct span *slab = slab_of(objects[0]);
    check_eq(slab, slab_of(objects[1]));
    bin_drain(CLASS, objects, 1);
    *slot_in_take(0) = objects[1];
    bits_clear_range(slab->bits, index_of(objects[0]), 1);
    bits_set_range(slab->bits, index_of(objects[1]), 1);
}

static void cache_uncarved(void) {
    void *object;
    check(arena_prepare(!tls.self->arena));
    check_eq(bin_refill(arena_bin(!tls.self->arena, CLASS), &object, 1, PAGES_MAY_GROW), 1);
    const struct span *slab = slab_of(object);
    check(slab->ncarved < slab_class(slab)->total);
    *slot_in_take(0) = (void *)(slab->base + (uintptr_t)slab->ncarved * SIZE);
}

TEST(cached_object_that_its_slab_has_too_is_found) {
    check_found(free_what_is_cached(), "slab_is_out(slab, index)'");
    check_found(cache_uncarved(), "slab_is_out(slab, index)'");
}

static void *object_of_new_arena(void) {
    bool zeroed;
    int arena = arena_create(NULL);
    check(arena >= 0);
    return place_alloc((struct place){arena, PLACE_NO_CACHE}, SIZE, 1, &zeroed);
}

static void cache_object_of_manual_arena(void) {
    *slot_in_take(0) = object_of_new_arena();
}

static void let_object_of_manual_arena_wait(void) {
    new_waiting(5)->slots[0] = object_of_new_arena();
}

TEST(object_in_a_cache_that_may_not_have_it_is_found) {
    check_found(cache_object_of_manual_arena(), "may_be_here(");
    check_found(let_object_of_manual_arena_wait(), "may_be_here(");
}

static struct stash *start_stash(void) {
    start_sound("narenas:2,background_thread:false,prof:true,lg_prof_sample:0");
    void *objects[8];
    for (unsigned i = 0; i < 8; i++) {
        objects[i] = tally_malloc(SIZE);
    }
    for (unsigned i = 0; i < 8; i++) {
        tally_free(objects[i]);
    }
    struct stash *stash = tls.self->stash;
    check(stash != NULL && stash->count[CLASS] >= 2);
    heap_verify();
    return stash;
}

static void stash_twice(void) {
    struct stash *stash = start_stash();
    stash->objects[CLASS][0] = stash->objects[CLASS][1];
    heap_verify();
}

static void stash_with_number(void) {
    void *object = start_stash()->objects[CLASS][0];
    slab_set_id(slab_of(object), object, 7);
    heap_verify();
}

TEST(wrong_stash_is_found) {
    check_dies(stash_twice(), FOUND("!was_met_before'"), SIGABRT);
    check_dies(stash_with_number(), FOUND("slab_id("), SIGABRT);
}

/* ---------------------------------------------------------------- magazines and books */

static void lose_magazine_of_pool(void) {
    check(pool_take() != NULL);
}

static void lose_magazine_of_depot(void) {
    void *objects[MAGAZINE_MOST];
    struct magazine *first = new_waiting(MAGAZINE_MOST);
    check_eq(bin_refill(arena_bin(0, CLASS), objects, 9, PAGES_MAY_GROW), 9);
    depot_put(0, CLASS, objects, 9); /* into a second one */
    for (unsigned left = MAGAZINE_MOST + 9, got; left > 0; left -= got) {
        got = depot_take(0, CLASS, objects, MAGAZINE_MOST);
        bin_drain(CLASS, objects, got);
    }
    check(first->next != NULL); /* Both are empty, and the first became so last. */
    first->next = NULL;
}

static void use_magazine_twice(void) {
    pool_put(magazine_of_take(rec()->take));
}

TEST(lost_magazine_is_found) {
    check_found(lose_magazine_of_pool(), "met == g.made");
    check_found(lose_magazine_of_depot(), "met == g.made");
    check_found(use_magazine_twice(), "!was_met_before'");
}

static void miscount_depot(int change) {
    struct magazine *waiting = new_waiting(9);
    waiting->next = (struct magazine *)((uintptr_t)waiting->next + (uintptr_t)(intptr_t)change);
}

TEST(wrong_count_of_a_depot_is_found) {
    check_found(miscount_depot(-1), "count == count_in(depot)");
    check_found(miscount_depot(-9), "here >= 1 && here <= MAGAZINE_MOST'");
}

static void shift_room(unsigned change, bool keeps_budget) {
    struct thread *heap = tls.self;
    heap->room[CLASS] = (uint8_t)(heap->room[CLASS] + change);
    heap->spare_bytes -= keeps_budget ? (size_t)(int)change * SIZE : 0;
}

static void take_all_room(void) {
    shift_room(-(unsigned)tls.self->room[CLASS], true);
}

static void exceed_room(void) {
    check(magazine_take_count(rec()->take) > 2);
    shift_room(2 - (unsigned)tls.self->room[CLASS], true);
}

TEST(room_or_budget_off_by_one_is_found) {
    check_found(shift_room(-1u, false), "");
    check_found(tls.self->spare_bytes++, "kind == CACHE_OF_ORPHAN || thread->spare_bytes");
    check_found(tls.self->spare_bytes--, "kind == CACHE_OF_ORPHAN || thread->spare_bytes");
    check_found(take_all_room(), "(rec->take != 0) == (rec->give != 0)");
    check_found(exceed_room(), "is_within_room(");
    check_found(tls.self->most[CLASS] = 1, "room <= thread->most[c]'");
    check_found(tls.self->cap[CLASS]++, "");
}

TEST(wrong_number_of_the_fast_paths_is_found) {
    check_found(tls.self->hot.rec[0].limit = 1, "memcmp(&hot->rec[0]");
    check_found(tls.self->hot.rec[0].take = 8, "memcmp(&hot->rec[0]");
    check_found(tls.self->hot.rec[CLASS_COUNT].give = 8, "memcmp(&hot->rec[CLASS_COUNT]");
    check_found(tls.self->hot.secret++, "memcmp(&hot->rec[CLASS_COUNT]");
    check_found(rec()->mult++, "rec->mult == sc->mult");
}

static void leave_list(void) {
    *tls.self->link = NULL;
}

TEST(wrong_list_of_heaps_is_found) {
    check_found(leave_list(), "listed == g.count'");
    check_found(tls.self->link = NULL, "(*link)->link == link'");
    check_found(tls.self->sleep = THREAD_ASLEEP, "(*link)->sleep != THREAD_ASLEEP");
}

/* ---------------------------------------------------------------- slabs, bins, arenas, pages */

TEST(wrong_slab_is_found) {
    check_found(slab_of(*slot_in_take(0))->bits[0] ^= 1, "bits_count_range(");
    check_found(slab_of(*slot_in_take(0))->nout--, "");
    check_found(slab_of(*slot_in_take(0))->ncarved++, "");
    check_found(slab_of(*slot_in_take(0))->uncarved |= 1, "");
    check_found(slab_of(*slot_in_take(0))->rest = SLAB_BUSY, "");
    check_found(classmap_publish(slab_of(*slot_in_take(0))->base, 1, 1), "byte == ");
}

static struct bin *bin(void) {
    return arena_bin(slab_of(*slot_in_take(0))->arena, CLASS);
}

TEST(wrong_bin_is_found) {
    check_found(bin()->empty ^= bin()->empty != 0 ? bin()->empty : 1, "sums.nslabs == bin->nslabs");
    check_found(bin()->nslabs--, "sums.nslabs == bin->nslabs");
    check_found(bin()->ndalloc++, "sums.nout == bin_nout(bin)");
    check_found(bin()->nonfull++, "sums.nout == bin_nout(bin)");
    check_found(bin()->arena ^= 1, "bin->size_class == c && bin->arena");
}

static void use_arena_not_made(void) {
    unsigned arena = 1;
    while (arena_get(arena) != NULL) {
        arena++;
    }
    arena_unbind(tls.self->arena);
    tls.self->arena = (uint16_t)arena;
}

TEST(wrong_arena_is_found) {
    check_found(use_arena_not_made(), "a < g.count && thread_read_arena(a).threads == 0");
    check_found(arena_get(tls.self->arena)->threads++, "arena->threads == ");
    check_found(arena_add_units(0, 1), "pages == sums->pactive");
    check_found(arena_get(0)->sums.large_bytes += 4096, "found.large_bytes == ");
    check_found(arena_get(0)->sums.lextents[0].nmalloc++, "found.large_count == ");
    check_found(arena_get(0)->uses_hooks = true, "!arena->uses_hooks");
    check_found(arena_get(0)->state = ARENA_GONE, "arena->state == ARENA_LIVE");
}

/* A block on the caller's shelf. */
static struct span *shelved(void) {
    tally_free(tally_malloc(1 << 18));
    struct span *span = tls.self->shelf.slot[tls.self->shelf.last];
    check(span != NULL);
    return span;
}

static void shelve_twice(void) {
    struct span *span = shelved();
    struct shelf *shelf = &tls.self->shelf;
    unsigned other = (shelf->last + 1u) % SHELF_SLOTS;
    shelf->slot[other] = span;
    shelf->units[other] = shelf->units[shelf->last];
    shelf->held += shelf->units[other];
}

static void lose_shelved(void) {
    (void)shelved();
    struct shelf *shelf = &tls.self->shelf;
    shelf->slot[shelf->last] = NULL;
}

TEST(wrong_shelf_is_found) {
    check_found(shelve_twice(), "!was_met_before'");
    check_found(lose_shelved(), "walk->shelved == shelved");
    check_found(shelved()->kind = SPAN_LARGE, "found.large_bytes == ");
    check_found(shelved()->arena ^= 1, "pages == sums->pactive");
    check_found((shelved(), tls.self->shelf.units[tls.self->shelf.last]++),
                "large_units(span->bytes) == shelf->units[i]");
    check_found((shelved(), tls.self->shelf.held--), "held == shelf->held");
    check_found((shelved(), tls.self->shelf.given_bytes++), "found.large_bytes == ");
    check_found((shelved(), tls.self->shelf.taken[1]++), "found.large_count == ");
}

static void shrink_large(void) {
    slab_of(tally_malloc(1 << 20))->bytes -= os_facts.page_bytes;
}

static struct chunk *chunk(void) {
    return classmap_chunk((uintptr_t)*slot_in_take(0));
}

TEST(wrong_page_heap_is_found) {
    check_found(shrink_large(), "found.large_bytes == ");
    check_found(chunk()->used ^= (unit_map)1 << 100, "used == (chunk->first[unit] != UNIT_FREE)'");
    check_found(chunk()->first[100] = 100, "used == (chunk->first[unit] != UNIT_FREE)'");
    check_found(chunk()->bucket ^= 1, "chunk->bucket == ");
    check_found(chunk()->touched |= (unit_map)1 << 100, "(dirty_units(kind, chunk) != 0) == ");
    check_found(chunk()->muzzy |= 1, "(chunk->muzzy & ~chunk->touched) == 0");
}

/* ---------------------------------------------------------------- emergency areas */

static size_t *size_before(void *block) {
    return (size_t *)((char *)block - 16);
}

static void forget_block(void) {
    *size_before(emergency_alloc(100, 16)) = 0;
}

static void lengthen_block(void) {
    *size_before(emergency_alloc(100, 16)) += 4096;
}

static void overlap_blocks(void) {
    void *first = emergency_alloc(100, 16);
    check(emergency_alloc(4096, 16) != NULL);
    *size_before(first) += 16;
}

static void defer_free_pages(void) {
    void *large = tally_malloc(1 << 20);
    struct heap_object found = heap_look(large);
    emergency_defer(large);
    check(heap_free(&found));
}

TEST(wrong_emergency_area_is_found) {
    check_found(forget_block(), "live == (uint32_t)state");
    check_found(lengthen_block(), "taken <= end'");
    check_found(overlap_blocks(), "at >= taken'");
    check_found(defer_free_pages(), "span != NULL && span_is_owned(span)'");
}
