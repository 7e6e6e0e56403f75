/* SPDX-License-Identifier: MIT
 *
 * model_sleepers.c - the heap of a thread that sleeps is emptied by another thread.
 *
 * The owner works by the fast path, which reads HOT and then uses the heap; by a slow call that found
 * its heap in HOT; or, while HOT is at the zeros, by a slow call that looks whether it is CLAIMED.  In
 * between it sleeps, and wakes whenever it likes.  A signal handler that sleeps may interrupt it
 * anywhere in a fast path; then FRAME is set.  The emptier is that of sleepers.c.
 *
 * They never use the heap at the same time, and each sees what the other has written.
 */
#include "explore.h"

enum { OWNER, EMPTIER };

/* OWNER_IN, EMPTIER_IN, CONTENT_IS and what the kernel keeps are facts, not memory: not queued. */
enum cell {
    HOT, /* 1: the heap, 0: the zeros */
    CLAIMED,
    INSIDE,
    CLAIM,   /* a lock */
    CONTENT, /* of the heap */
    ASLEEP,
    FRAME,
    SWITCHES,
    OWNER_IN,
    EMPTIER_IN,
    CONTENT_IS, /* what was written last */
};

enum { SEEN, TURNS, BEFORE };
enum { OWNER_TURNS = 3, EMPTIER_TURNS = 2 };

enum step {
    FINISHED,
    /* the owner */
    READ_HOT,
    INTERRUPTED,
    IN_HANDLER,
    MARK_AGAIN,
    SLEEP_INSIDE,
    SLEEPING_INSIDE,
    USE,
    USED,
    MARK,
    TEST_CLAIMED,
    TAKE_CLAIM,
    UNCLAIM,
    UNPARK,
    GIVE_CLAIM,
    LEAVE,
    SLEEP,
    SLEEPING,
    /* the emptier */
    BEGIN,
    LOOK,
    LOOK_INSIDE,
    SET_CLAIMED,
    PARK,
    FENCE,
    LOOK_AGAIN,
    EMPTY,
    EMPTIED,
    END,
};

enum mutant {
    NONE,
    NO_SECOND_LOOK,
    SWITCHES_ARE_NOT_COMPARED,
    FRAMES_ARE_NOT_SEEN,
    INSIDE_IS_NOT_SEEN,
    NOT_PARKED,
    CLAIM_IS_NOT_TAKEN_BY_THE_OWNER,
    NO_FENCE,
};

static void begin(struct world *world) {
    world->cell[HOT] = 1;
    world->cell[CONTENT] = world->cell[CONTENT_IS] = 1;
    world->actor[OWNER].at = READ_HOT;
    world->actor[OWNER].r[TURNS] = OWNER_TURNS;
    world->actor[EMPTIER].at = BEGIN;
    world->actor[EMPTIER].r[TURNS] = EMPTIER_TURNS;
}

static enum outcome go(struct world *world, unsigned a, enum step next) {
    world->actor[a].at = (uint8_t)next;
    return STEPPED;
}

/* The heap is used from here to the step after. */
static void use(struct world *world, unsigned a, unsigned content) {
    bool nobody_else_uses_the_heap = world->cell[OWNER_IN] == 0 && world->cell[EMPTIER_IN] == 0;
    expect(nobody_else_uses_the_heap);
    bool what_was_written_is_seen = load(world, a, CONTENT) == world->cell[CONTENT_IS];
    expect(what_was_written_is_seen);
    world->cell[a == OWNER ? OWNER_IN : EMPTIER_IN] = 1;
    store(world, a, CONTENT, content);
    world->cell[CONTENT_IS] = (uint8_t)content;
}

/* A processor that leaves a thread has finished its stores. */
static bool may_switch(const struct world *world, unsigned a) {
    return world->actor[a].nqueued == 0;
}

static enum outcome fall_asleep(struct world *world, enum step next) {
    if (!may_switch(world, OWNER)) {
        return WAITS;
    }
    world->cell[ASLEEP] = 1;
    world->cell[SWITCHES]++;
    return go(world, OWNER, next);
}

static enum outcome take(struct world *world, unsigned a, enum step next) {
    if (!can_modify(world, a, CLAIM) || !compare_and_swap(world, CLAIM, 0, 1)) {
        return WAITS;
    }
    return go(world, a, next);
}

static enum outcome step_owner(struct world *world, unsigned choice) {
    struct actor *me = &world->actor[OWNER];
    bool skips_claim = explore_mutant == CLAIM_IS_NOT_TAKEN_BY_THE_OWNER;
    if (choice >= (me->at == READ_HOT ? 3u : me->at == MARK_AGAIN ? 2u : 1u)) {
        return NO_CHOICE;
    }
    switch (me->at) {
    case READ_HOT:
        if (load(world, OWNER, HOT) == 0) {
            return choice == 0 ? go(world, OWNER, MARK) : NO_CHOICE;
        }
        return go(world, OWNER, choice == 0 ? USE : choice == 1 ? INTERRUPTED : MARK_AGAIN);
    case INTERRUPTED:
        world->cell[FRAME] = 1;
        return fall_asleep(world, IN_HANDLER);
    case IN_HANDLER:
        world->cell[ASLEEP] = world->cell[FRAME] = 0;
        return go(world, OWNER, USE);
    case MARK_AGAIN:
        store(world, OWNER, INSIDE, 1);
        return go(world, OWNER, choice == 0 ? USE : SLEEP_INSIDE);
    case SLEEP_INSIDE: /* for a lock */
        return fall_asleep(world, SLEEPING_INSIDE);
    case SLEEPING_INSIDE:
        world->cell[ASLEEP] = 0;
        return go(world, OWNER, USE);
    case USE:
        use(world, OWNER, 1);
        return go(world, OWNER, USED);
    case USED:
        world->cell[OWNER_IN] = 0;
        return go(world, OWNER, LEAVE);
    case MARK:
        store(world, OWNER, INSIDE, 1);
        return go(world, OWNER, TEST_CLAIMED);
    case TEST_CLAIMED:
        return go(world, OWNER, load(world, OWNER, CLAIMED) ? TAKE_CLAIM : USE);
    case TAKE_CLAIM:
        return skips_claim ? go(world, OWNER, UNCLAIM) : take(world, OWNER, UNCLAIM);
    case UNCLAIM:
        store(world, OWNER, CLAIMED, 0);
        return go(world, OWNER, UNPARK);
    case UNPARK:
        store(world, OWNER, HOT, 1);
        return go(world, OWNER, skips_claim ? USE : GIVE_CLAIM);
    case GIVE_CLAIM:
        store_release(world, OWNER, CLAIM, 0);
        return go(world, OWNER, USE);
    case LEAVE:
        store(world, OWNER, INSIDE, 0);
        return go(world, OWNER, SLEEP);
    case SLEEP:
        return fall_asleep(world, SLEEPING);
    case SLEEPING:
        world->cell[ASLEEP] = 0;
        return go(world, OWNER, --me->r[TURNS] > 0 ? READ_HOT : FINISHED);
    default:
        return WAITS;
    }
}

static bool sleeps(const struct world *world) {
    return world->cell[ASLEEP] && (!world->cell[FRAME] || explore_mutant == FRAMES_ARE_NOT_SEEN);
}

static bool sleeps_still(const struct world *world) {
    bool is_same = explore_mutant == SWITCHES_ARE_NOT_COMPARED ||
                   world->cell[SWITCHES] == world->actor[EMPTIER].r[BEFORE];
    return (world->cell[ASLEEP] && is_same) || explore_mutant == NO_SECOND_LOOK;
}

static enum outcome step_emptier(struct world *world, unsigned choice) {
    struct actor *me = &world->actor[EMPTIER];
    bool has_fence = explore_mutant != NO_FENCE;
    if (choice > 0) {
        return NO_CHOICE;
    }
    switch (me->at) {
    case BEGIN:
        return take(world, EMPTIER, LOOK);
    case LOOK:
        me->r[BEFORE] = world->cell[SWITCHES];
        return go(world, EMPTIER, sleeps(world) ? LOOK_INSIDE : END);
    case LOOK_INSIDE: {
        bool is_inside = load(world, EMPTIER, INSIDE) && explore_mutant != INSIDE_IS_NOT_SEEN;
        return go(world, EMPTIER, is_inside ? END : SET_CLAIMED);
    }
    case SET_CLAIMED:
        store(world, EMPTIER, CLAIMED, 1);
        return go(world, EMPTIER, PARK);
    case PARK:
        if (explore_mutant != NOT_PARKED) {
            store(world, EMPTIER, HOT, 0);
        }
        return go(world, EMPTIER, FENCE);
    case FENCE:
        if (has_fence && !(may_switch(world, OWNER) && may_switch(world, EMPTIER))) {
            return WAITS;
        }
        return go(world, EMPTIER, LOOK_AGAIN);
    case LOOK_AGAIN:
        return go(world, EMPTIER, sleeps_still(world) ? EMPTY : END);
    case EMPTY:
        use(world, EMPTIER, 0);
        return go(world, EMPTIER, EMPTIED);
    case EMPTIED:
        world->cell[EMPTIER_IN] = 0;
        return go(world, EMPTIER, END);
    case END:
        store_release(world, EMPTIER, CLAIM, 0);
        return go(world, EMPTIER, --me->r[TURNS] > 0 ? BEGIN : FINISHED);
    default:
        return WAITS;
    }
}

static enum outcome step(struct world *world, unsigned actor, unsigned choice) {
    return actor == OWNER ? step_owner(world, choice) : step_emptier(world, choice);
}

static void at_end(const struct world *world) {
    bool both_have_finished =
        world->actor[OWNER].at == FINISHED && world->actor[EMPTIER].at == FINISHED;
    expect(both_have_finished);
}

static const struct protocol sleepers = {
    .name = "sleepers", .actors = 2, .begin = begin, .step = step, .at_end = at_end};

TEST(owner_and_emptier_never_use_the_heap_together) {
    check_holds(&sleepers, MEMORY_SC);
    check_holds(&sleepers, MEMORY_TSO);
    check_holds(&sleepers, MEMORY_WEAK);
}

TEST(sleepers_without_one_of_their_parts_break) {
    check_breaks(&sleepers, MEMORY_SC, NO_SECOND_LOOK, "nobody_else_uses_the_heap");
    check_breaks(&sleepers, MEMORY_SC, SWITCHES_ARE_NOT_COMPARED, "nobody_else_uses_the_heap");
    check_breaks(&sleepers, MEMORY_SC, FRAMES_ARE_NOT_SEEN, "nobody_else_uses_the_heap");
    check_breaks(&sleepers, MEMORY_SC, INSIDE_IS_NOT_SEEN, "nobody_else_uses_the_heap");
    check_breaks(&sleepers, MEMORY_SC, NOT_PARKED, "nobody_else_uses_the_heap");
    check_breaks(&sleepers, MEMORY_SC, CLAIM_IS_NOT_TAKEN_BY_THE_OWNER,
                 "nobody_else_uses_the_heap");
    check_breaks(&sleepers, MEMORY_TSO, NO_FENCE, "nobody_else_uses_the_heap");
}
