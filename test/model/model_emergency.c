/* SPDX-License-Identifier: MIT
 *
 * model_emergency.c - the area that serves a handler which interrupted a slow path.
 *
 * The area is a bump allocator whose whole state is one word:
 *
 *      next | live        alloc   (next + size, live + 1)        by compare and swap
 *                         free    (next, live - 1), or (0, 0) when that was the last one
 *
 * Threads and handlers allocate and free blocks of two sizes in every interleaving.  Live blocks
 * never overlap, and when all are free the area is whole again.  A word that changes and comes back
 * to what it was is harmless, because the word is all there is; that is tried too, since it comes
 * up.
 */
#include "explore.h"

enum { AREA = 3, ROUNDS = 2, NEXT = 16 };

enum cell { WORD, OWNER };

enum { SEEN, START, LEFT, LIVE };

enum step {
    LOAD_TO_ALLOC,
    SWAP_TO_ALLOC,
    COUNT_LATER,
    SWAP_COUNT,
    LOAD_TO_FREE,
    SWAP_TO_FREE,
    RESET,
    FINISHED
};

enum mutant { NONE, RESET_BY_STORE, FREE_BY_STORE, NEVER_RESET, COUNTED_LATER, RESET_TOO_EARLY };

static unsigned size_of(unsigned a) {
    return a == 0 ? 2 : 1;
}

static void begin(struct world *world) {
    for (unsigned a = 0; a < 3; a++) {
        world->actor[a].r[LEFT] = ROUNDS;
    }
}

static void own(struct world *world, unsigned a, bool mine) {
    for (unsigned i = 0; i < size_of(a); i++) {
        uint8_t *owner = &world->cell[OWNER + world->actor[a].r[START] + i];
        bool live_blocks_do_not_overlap = *owner == (mine ? 0 : a + 1);
        expect(live_blocks_do_not_overlap);
        *owner = (uint8_t)(mine ? a + 1 : 0);
    }
}

/* No room: the caller is told, and comes again later or not at all. */
static void decide(struct actor *me, unsigned a) {
    if (me->r[SEEN] / NEXT + size_of(a) > AREA) {
        me->r[LEFT]--;
        me->at = me->r[LEFT] > 0 ? LOAD_TO_ALLOC : FINISHED;
    } else {
        me->at = SWAP_TO_ALLOC;
    }
}

static void alloc(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    unsigned live = explore_mutant == COUNTED_LATER ? 0 : 1;
    if (!compare_and_swap(world, WORD, me->r[SEEN], me->r[SEEN] + size_of(a) * NEXT + live)) {
        me->at = LOAD_TO_ALLOC;
        return;
    }
    me->r[START] = me->r[SEEN] / NEXT;
    own(world, a, true);
    me->at = explore_mutant == COUNTED_LATER ? COUNT_LATER : LOAD_TO_FREE;
}

static unsigned without_one(unsigned word) {
    bool last = word % NEXT == 1;
    if (explore_mutant == RESET_TOO_EARLY) {
        last = word % NEXT <= 2;
    }
    bool resets = last && explore_mutant != NEVER_RESET && explore_mutant != RESET_BY_STORE;
    return resets ? 0 : word - 1;
}

static void release(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (explore_mutant == FREE_BY_STORE) {
        world->cell[WORD] = (uint8_t)without_one(me->r[SEEN]);
    } else if (!compare_and_swap(world, WORD, me->r[SEEN], without_one(me->r[SEEN]))) {
        me->at = LOAD_TO_FREE;
        return;
    }
    own(world, a, false);
    me->r[START] = 0;
    me->r[LEFT]--;
    bool reset = explore_mutant == RESET_BY_STORE && me->r[SEEN] % NEXT == 1;
    me->at = reset ? RESET : me->r[LEFT] > 0 ? LOAD_TO_ALLOC : FINISHED;
}

static enum outcome step(struct world *world, unsigned a, unsigned choice) {
    struct actor *me = &world->actor[a];
    if (choice > 0) {
        return NO_CHOICE;
    }
    switch (me->at) {
    case LOAD_TO_ALLOC:
        me->r[SEEN] = load(world, a, WORD);
        decide(me, a);
        return STEPPED;
    case SWAP_TO_ALLOC:
        alloc(world, a);
        return STEPPED;
    case COUNT_LATER:
        me->r[SEEN] = load(world, a, WORD);
        me->at = SWAP_COUNT;
        return STEPPED;
    case SWAP_COUNT:
        me->at = compare_and_swap(world, WORD, me->r[SEEN], me->r[SEEN] + 1u) ? LOAD_TO_FREE
                                                                              : COUNT_LATER;
        return STEPPED;
    case LOAD_TO_FREE:
        me->r[SEEN] = load(world, a, WORD);
        me->at = SWAP_TO_FREE;
        return STEPPED;
    case SWAP_TO_FREE:
        release(world, a);
        return STEPPED;
    case RESET:
        world->cell[WORD] = 0;
        me->at = me->r[LEFT] > 0 ? LOAD_TO_ALLOC : FINISHED;
        return STEPPED;
    default:
        return WAITS;
    }
}

static void at_end(const struct world *world) {
    bool the_area_is_whole_again = world->cell[WORD] == 0;
    expect(the_area_is_whole_again);
}

static const struct protocol emergency = {
    .name = "emergency area", .actors = 3, .begin = begin, .step = step, .at_end = at_end};

/* Every access is a load or a compare and swap of one word, so there are no stores to reorder. */
TEST(emergency_blocks_never_overlap) {
    check_holds(&emergency, MEMORY_SC);
}

TEST(emergency_area_without_one_of_its_parts_breaks) {
    check_breaks(&emergency, MEMORY_SC, RESET_BY_STORE, "live_blocks_do_not_overlap");
    check_breaks(&emergency, MEMORY_SC, FREE_BY_STORE, "live_blocks_do_not_overlap");
    check_breaks(&emergency, MEMORY_SC, NEVER_RESET, "the_area_is_whole_again");
    check_breaks(&emergency, MEMORY_SC, COUNTED_LATER, "live_blocks_do_not_overlap");
    check_breaks(&emergency, MEMORY_SC, RESET_TOO_EARLY, "live_blocks_do_not_overlap");
}
