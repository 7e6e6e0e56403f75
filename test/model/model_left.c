/* SPDX-License-Identifier: MIT
 *
 * model_left.c - a heap that a thread gave up waits in a slot for the next thread.
 *
 * A thread that ends puts its heap into the slot by an exchange; what it gets out of it, the heap
 * of somebody who ended before and was not missed, it flushes and retires.  A thread that begins
 * takes what is there by an exchange with nothing, or makes a heap of its own.
 *
 * Two threads with heaps end while two others begin, use what they got, and end.  A heap has one
 * owner at a time; who adopts one sees all that its last owner wrote; no heap is lost.  At every
 * moment, and so in the child of every fork, the heap in the slot belongs to nobody.
 */
#include "explore.h"

enum { HEAPS = 4 };

enum cell { SLOT, OWNED, CONTENT = OWNED + HEAPS + 1, RETIRED = CONTENT + HEAPS + 1 };

enum { MINE, OTHER, SEEN };

enum step {
    BEGIN,
    ADOPT_STORE,
    USE,
    CHECK,
    LET_GO,
    LEAVE,
    LEAVE_STORE,
    WRITE_LATE,
    RETIRE,
    FINISHED
};

enum mutant {
    NONE,
    ADOPT_BY_LOAD_AND_STORE,
    LEAVE_BY_STORE,
    OTHER_IS_FORGOTTEN,
    WRITTEN_AFTER_LEAVING,
    LEAVE_IS_RELAXED,
};

static void begin(struct world *world) {
    for (unsigned a = 0; a < 2; a++) {
        world->actor[a].at = USE;
        world->actor[a].r[MINE] = (uint8_t)(a + 1);
        world->cell[OWNED + a + 1] = (uint8_t)(a + 1);
    }
}

static void become_owner(struct world *world, unsigned a, unsigned heap) {
    bool a_heap_has_one_owner = world->cell[OWNED + heap] == 0;
    expect(a_heap_has_one_owner);
    world->cell[OWNED + heap] = (uint8_t)(a + 1);
    world->actor[a].r[MINE] = (uint8_t)heap;
}

/* Whoever wrote it last wrote all of it: CONTENT is odd while it is being written. */
static void adopt(struct world *world, unsigned a, unsigned heap) {
    if (heap != 0) {
        become_owner(world, a, heap);
        world->actor[a].at = CHECK;
    } else {
        become_owner(world, a, a + 1); /* a new one */
        world->actor[a].at = USE;
    }
}

static enum outcome take_left(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (explore_mutant == ADOPT_BY_LOAD_AND_STORE) {
        me->r[SEEN] = load(world, a, SLOT);
        me->at = ADOPT_STORE;
        return STEPPED;
    }
    if (!can_modify(world, a, SLOT)) {
        return WAITS;
    }
    adopt(world, a, exchange(world, SLOT, 0));
    return STEPPED;
}

static enum outcome leave(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (explore_mutant == LEAVE_BY_STORE) {
        me->r[OTHER] = load(world, a, SLOT);
        me->at = LEAVE_STORE;
        return STEPPED;
    }
    bool relaxed = explore_mutant == LEAVE_IS_RELAXED;
    if (relaxed ? !can_modify_relaxed(world, a, SLOT) : !can_modify(world, a, SLOT)) {
        return WAITS;
    }
    me->r[OTHER] = exchange(world, SLOT, me->r[MINE]);
    me->at = explore_mutant == WRITTEN_AFTER_LEAVING ? WRITE_LATE : RETIRE;
    return STEPPED;
}

static void retire(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (me->r[OTHER] != 0 && explore_mutant != OTHER_IS_FORGOTTEN) {
        become_owner(world, a, me->r[OTHER]);
        world->cell[OWNED + me->r[OTHER]] = 0;
        world->cell[RETIRED + me->r[OTHER]] = 1;
    }
    memset(me->r, 0, sizeof me->r);
    me->at = FINISHED;
}

static enum outcome step(struct world *world, unsigned a, unsigned choice) {
    struct actor *me = &world->actor[a];
    if (choice > 0) {
        return NO_CHOICE;
    }
    switch (me->at) {
    case BEGIN:
        return take_left(world, a);
    case ADOPT_STORE:
        store(world, a, SLOT, 0);
        adopt(world, a, me->r[SEEN]);
        return STEPPED;
    case CHECK: {
        bool what_was_written_is_seen = load(world, a, CONTENT + me->r[MINE]) == 1;
        expect(what_was_written_is_seen);
        me->at = LET_GO;
        return STEPPED;
    }
    case USE:
        if (explore_mutant != WRITTEN_AFTER_LEAVING) {
            store(world, a, CONTENT + me->r[MINE], 1);
        }
        me->at = LET_GO;
        return STEPPED;
    case LET_GO:
        world->cell[OWNED + me->r[MINE]] = 0;
        me->at = LEAVE;
        return STEPPED;
    case LEAVE:
        return leave(world, a);
    case LEAVE_STORE:
        store(world, a, SLOT, me->r[MINE]);
        me->at = RETIRE;
        return STEPPED;
    case WRITE_LATE:
        store(world, a, CONTENT + me->r[MINE], 1);
        me->at = RETIRE;
        return STEPPED;
    case RETIRE:
        retire(world, a);
        return STEPPED;
    default:
        return WAITS;
    }
}

static void always(const struct world *world) {
    bool the_heap_in_the_slot_is_nobodys = world->cell[OWNED + world->cell[SLOT]] == 0;
    expect(the_heap_in_the_slot_is_nobodys);
}

/* Every heap that was ever made is retired or in the slot. */
static void at_end(const struct world *world) {
    for (unsigned heap = 1; heap <= HEAPS; heap++) {
        bool made = world->cell[CONTENT + heap] != 0;
        bool no_heap_is_lost = !made || world->cell[RETIRED + heap] || world->cell[SLOT] == heap;
        expect(no_heap_is_lost);
    }
}

static const struct protocol left = {.name = "left heap",
                                     .actors = 4,
                                     .begin = begin,
                                     .step = step,
                                     .always = always,
                                     .at_end = at_end};

TEST(left_heap_has_one_owner_and_is_not_lost) {
    check_holds(&left, MEMORY_SC);
    check_holds(&left, MEMORY_TSO);
    check_holds(&left, MEMORY_WEAK);
}

TEST(left_heap_without_one_of_its_parts_breaks) {
    check_breaks(&left, MEMORY_SC, ADOPT_BY_LOAD_AND_STORE, "a_heap_has_one_owner");
    check_breaks(&left, MEMORY_SC, LEAVE_BY_STORE, "a_heap_has_one_owner");
    check_breaks(&left, MEMORY_SC, OTHER_IS_FORGOTTEN, "no_heap_is_lost");
    check_breaks(&left, MEMORY_SC, WRITTEN_AFTER_LEAVING, "what_was_written_is_seen");
    check_breaks(&left, MEMORY_WEAK, LEAVE_IS_RELAXED, "what_was_written_is_seen");
}
