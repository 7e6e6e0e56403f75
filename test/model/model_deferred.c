/* SPDX-License-Identifier: MIT
 *
 * model_deferred.c - frees that had to be put off: a stack anybody may push to, taken off as a
 * whole.
 *
 * A handler that interrupted a slow path cannot free; it pushes the object onto a list, and the
 * next slow path takes the whole list by one exchange and frees what is on it.  Since nobody takes
 * a single object off, it does not matter when a head changes and comes back.  Objects that were
 * freed are allocated and pushed again, so that it does.
 *
 * Actor 0 pushes object 1, and again when it is free; actor 1 pushes object 2; two others drain.
 * Each object that was pushed is freed once, and none is left behind.
 */
#include "explore.h"

enum { OBJECTS = 3 };

enum cell { HEAD, NEXT, WAITING = NEXT + OBJECTS + 1, PUSHED = WAITING + OBJECTS + 1, FREED };

enum { SEEN, FOLLOWING, ROUNDS };

enum step {
    LOAD_HEAD,
    STORE_NEXT,
    SWAP_HEAD,
    STORE_NEXT_LATE,
    DRAIN,
    CLEAR_HEAD,
    READ_NEXT,
    FREE,
    POP_READ_NEXT,
    POP_SWAP,
    FINISHED,
};

enum mutant {
    NONE,
    DRAIN_BY_LOAD_AND_STORE,
    NEXT_READ_AFTER_FREE,
    NEXT_STORED_AFTER_SWAP,
    PUSH_BY_STORE,
    ONE_IS_POPPED,
    PUSH_IS_RELAXED,
};

static void begin(struct world *world) {
    world->actor[0].r[ROUNDS] = 2;
    world->actor[1].r[ROUNDS] = 1;
    world->actor[2].at = world->actor[3].at = DRAIN;
}

/* ---------------------------------------------------------------- pushing */

static void pushed(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    me->r[SEEN] = 0;
    me->r[ROUNDS]--;
    me->at = me->r[ROUNDS] > 0 ? LOAD_HEAD : FINISHED;
}

static enum outcome swap_head(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    bool relaxed = explore_mutant == PUSH_IS_RELAXED;
    if (relaxed ? !can_modify_relaxed(world, a, HEAD) : !can_modify(world, a, HEAD)) {
        return WAITS;
    }
    if (explore_mutant == PUSH_BY_STORE) {
        world->cell[HEAD] = (uint8_t)(a + 1);
    } else if (!compare_and_swap(world, HEAD, me->r[SEEN], a + 1)) {
        me->at = LOAD_HEAD;
        return STEPPED;
    }
    world->cell[WAITING + a + 1] = 1;
    world->cell[PUSHED]++;
    if (explore_mutant == NEXT_STORED_AFTER_SWAP) {
        me->at = STORE_NEXT_LATE;
    } else {
        pushed(world, a);
    }
    return STEPPED;
}

static enum outcome step_pusher(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    switch (me->at) {
    case LOAD_HEAD:
        if (world->cell[WAITING + a + 1]) {
            return WAITS; /* The object is not ours again yet. */
        }
        me->r[SEEN] = load(world, a, HEAD);
        me->at = explore_mutant == NEXT_STORED_AFTER_SWAP ? SWAP_HEAD : STORE_NEXT;
        return STEPPED;
    case STORE_NEXT:
        store(world, a, NEXT + a + 1, me->r[SEEN]);
        me->at = SWAP_HEAD;
        return STEPPED;
    case STORE_NEXT_LATE:
        store(world, a, NEXT + a + 1, me->r[SEEN]);
        pushed(world, a);
        return STEPPED;
    case SWAP_HEAD:
        return swap_head(world, a);
    default:
        return WAITS;
    }
}

/* ---------------------------------------------------------------- draining */

static void free_object(struct world *world, unsigned object) {
    bool each_object_is_freed_once = object <= OBJECTS && world->cell[WAITING + object] == 1;
    expect(each_object_is_freed_once);
    world->cell[WAITING + object] = 0;
    world->cell[FREED]++;
}

static bool all_is_done(const struct world *world) {
    return world->actor[0].at == FINISHED && world->actor[1].at == FINISHED &&
           world->cell[HEAD] == 0;
}

static enum outcome drain(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (all_is_done(world)) {
        me->at = FINISHED;
        return STEPPED;
    }
    if (world->cell[HEAD] == 0 || !can_modify(world, a, HEAD)) {
        return WAITS;
    }
    if (explore_mutant == DRAIN_BY_LOAD_AND_STORE || explore_mutant == ONE_IS_POPPED) {
        me->r[SEEN] = load(world, a, HEAD);
        me->at = explore_mutant == ONE_IS_POPPED ? POP_READ_NEXT : CLEAR_HEAD;
    } else {
        me->r[SEEN] = exchange(world, HEAD, 0);
        me->at = explore_mutant == NEXT_READ_AFTER_FREE ? FREE : READ_NEXT;
    }
    return STEPPED;
}

/* The object may be allocated and pushed again as soon as it is freed, so its link is read first.
 * */
static void walk(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    bool late = explore_mutant == NEXT_READ_AFTER_FREE;
    if (me->at == FREE) {
        free_object(world, me->r[SEEN]);
        if (late) {
            me->at = READ_NEXT;
            return;
        }
    } else {
        me->r[FOLLOWING] = load(world, a, NEXT + me->r[SEEN]);
        if (!late) {
            me->at = FREE;
            return;
        }
    }
    me->r[SEEN] = me->r[FOLLOWING];
    me->r[FOLLOWING] = 0;
    me->at = me->r[SEEN] == 0 ? DRAIN : late ? FREE : READ_NEXT;
}

static enum outcome step_drainer(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    switch (me->at) {
    case DRAIN:
        return drain(world, a);
    case CLEAR_HEAD:
        store(world, a, HEAD, 0);
        me->at = READ_NEXT;
        return STEPPED;
    case READ_NEXT:
    case FREE:
        walk(world, a);
        return STEPPED;
    case POP_READ_NEXT:
        me->r[FOLLOWING] = load(world, a, NEXT + me->r[SEEN]);
        me->at = POP_SWAP;
        return STEPPED;
    case POP_SWAP:
        if (compare_and_swap(world, HEAD, me->r[SEEN], me->r[FOLLOWING])) {
            free_object(world, me->r[SEEN]);
        }
        me->r[SEEN] = me->r[FOLLOWING] = 0;
        me->at = DRAIN;
        return STEPPED;
    default:
        return WAITS;
    }
}

static enum outcome step(struct world *world, unsigned a, unsigned choice) {
    if (choice > 0) {
        return NO_CHOICE;
    }
    return a < 2 ? step_pusher(world, a) : step_drainer(world, a);
}

static void at_end(const struct world *world) {
    bool nothing_is_left_behind = world->cell[PUSHED] == 3 && world->cell[FREED] == 3;
    expect(nothing_is_left_behind);
}

static const struct protocol deferred = {
    .name = "deferred frees", .actors = 4, .begin = begin, .step = step, .at_end = at_end};

TEST(deferred_frees_happen_once_each) {
    check_holds(&deferred, MEMORY_SC);
    check_holds(&deferred, MEMORY_TSO);
    check_holds(&deferred, MEMORY_WEAK);
}

TEST(deferred_frees_without_one_of_their_parts_break) {
    check_breaks(&deferred, MEMORY_SC, DRAIN_BY_LOAD_AND_STORE, "each_object_is_freed_once");
    check_breaks(&deferred, MEMORY_SC, NEXT_READ_AFTER_FREE, "each_object_is_freed_once");
    check_breaks(&deferred, MEMORY_SC, NEXT_STORED_AFTER_SWAP, "nothing_is_left_behind");
    check_breaks(&deferred, MEMORY_SC, PUSH_BY_STORE, "nothing_is_left_behind");
    check_breaks(&deferred, MEMORY_SC, ONE_IS_POPPED, "nothing_is_left_behind");
    check_breaks(&deferred, MEMORY_WEAK, PUSH_IS_RELAXED, "nothing_is_left_behind");
}
