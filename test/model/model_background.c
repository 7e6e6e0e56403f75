/* SPDX-License-Identifier: MIT
 *
 * model_background.c - the background thread goes to sleep while others leave it something to do.
 *
 * The thread reads the bell, does what there is to do, says that it sleeps, looks once more whether
 * there is something, and waits for the bell to change.  The others leave pages behind and then
 * ring if they see it asleep.  A store and then a load on both sides: if either were delayed, the
 * thread could sleep beside work for ever, which is memory that an idle process never gives back.
 */
#include "explore.h"

enum cell { STATE, BELL, DIRTY };

enum { AWAKE, ASLEEP };

enum { SEEN };

enum step {
    READ_BELL,
    TICK,
    SAY_ASLEEP,
    LOOK_AGAIN,
    WAIT,
    SLEEPING,
    SAY_AWAKE,
    READ_BELL_LATE,
    LEAVE_PAGES,
    LOOK_AT_STATE,
    RING,
    WAKE,
    FINISHED
};

enum mutant {
    NONE,
    SAYS_SO_LATER,
    NOT_ORDERED,
    BELL_READ_LATE,
    LOOKS_BEFORE_IT_LEAVES,
    NO_SECOND_LOOK
};

static void begin(struct world *world) {
    world->actor[1].at = world->actor[2].at =
        explore_mutant == LOOKS_BEFORE_IT_LEAVES ? LOOK_AT_STATE : LEAVE_PAGES;
}

/* The number on the bell does not matter, only that it changed; it wraps early here. */
static unsigned rung(unsigned bell) {
    return (bell + 1) % 4;
}

static enum outcome step_thread(struct world *world) {
    struct actor *me = &world->actor[0];
    switch (me->at) {
    case READ_BELL:
        me->r[SEEN] = load(world, 0, BELL);
        me->at = TICK;
        return STEPPED;
    case TICK: /* under the page heap's lock */
        if (!can_modify(world, 0, DIRTY)) {
            return WAITS;
        }
        world->cell[DIRTY] = 0;
        me->at = explore_mutant == SAYS_SO_LATER ? LOOK_AGAIN : SAY_ASLEEP;
        return STEPPED;
    case SAY_ASLEEP:
        store(world, 0, STATE, ASLEEP);
        me->at = explore_mutant == SAYS_SO_LATER ? WAIT : LOOK_AGAIN;
        return STEPPED;
    case LOOK_AGAIN: /* sequentially consistent: after the store was seen */
        if (explore_mutant != NOT_ORDERED && !can_modify(world, 0, STATE)) {
            return WAITS;
        }
        me->at = load(world, 0, DIRTY) > 0 ? SAY_AWAKE : WAIT;
        if (me->at == WAIT && explore_mutant == SAYS_SO_LATER) {
            me->at = SAY_ASLEEP;
        }
        if (explore_mutant == NO_SECOND_LOOK) {
            me->at = WAIT;
        }
        if (me->at == WAIT && explore_mutant == BELL_READ_LATE) {
            me->at = READ_BELL_LATE;
        }
        return STEPPED;
    case READ_BELL_LATE:
        me->r[SEEN] = load(world, 0, BELL);
        me->at = WAIT;
        return STEPPED;
    case WAIT:
        if (!can_modify(world, 0, BELL)) {
            return WAITS;
        }
        me->at = world->cell[BELL] == me->r[SEEN] ? SLEEPING : SAY_AWAKE;
        return STEPPED;
    case SAY_AWAKE:
        store(world, 0, STATE, AWAKE);
        me->at = READ_BELL;
        return STEPPED;
    default:
        return WAITS;
    }
}

static enum outcome step_giver(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    bool early = explore_mutant == LOOKS_BEFORE_IT_LEAVES;
    switch (me->at) {
    case LEAVE_PAGES: /* under the page heap's lock */
        if (!can_modify(world, a, DIRTY)) {
            return WAITS;
        }
        world->cell[DIRTY] = 1;
        me->at = !early ? LOOK_AT_STATE : me->r[SEEN] == ASLEEP ? RING : FINISHED;
        return STEPPED;
    case LOOK_AT_STATE:
        me->r[SEEN] = load(world, a, STATE);
        me->at = early ? LEAVE_PAGES : me->r[SEEN] == ASLEEP ? RING : FINISHED;
        return STEPPED;
    case RING:
        if (!can_modify(world, a, BELL)) {
            return WAITS;
        }
        world->cell[BELL] = (uint8_t)rung(world->cell[BELL]);
        me->at = WAKE;
        return STEPPED;
    case WAKE:
        if (world->actor[0].at == SLEEPING) {
            world->actor[0].at = SAY_AWAKE;
        }
        me->at = FINISHED;
        return STEPPED;
    default:
        return WAITS;
    }
}

static enum outcome step(struct world *world, unsigned a, unsigned choice) {
    if (choice > 0) {
        return NO_CHOICE;
    }
    return a == 0 ? step_thread(world) : step_giver(world, a);
}

static void at_end(const struct world *world) {
    bool nobody_sleeps_beside_work = world->cell[DIRTY] == 0;
    expect(nobody_sleeps_beside_work);
}

static const struct protocol background = {
    .name = "background thread", .actors = 3, .begin = begin, .step = step, .at_end = at_end};

TEST(background_thread_does_not_sleep_beside_work) {
    check_holds(&background, MEMORY_SC);
    check_holds(&background, MEMORY_TSO);
    check_holds(&background, MEMORY_WEAK);
}

TEST(background_thread_without_one_of_its_parts_sleeps_beside_work) {
    static const char text[] = "nobody_sleeps_beside_work";
    check_breaks(&background, MEMORY_SC, SAYS_SO_LATER, text);
    check_breaks(&background, MEMORY_TSO, NOT_ORDERED, text);
    check_breaks(&background, MEMORY_SC, LOOKS_BEFORE_IT_LEAVES, text);
    check_breaks(&background, MEMORY_SC, NO_SECOND_LOOK, text);
    check_breaks(&background, MEMORY_SC, BELL_READ_LATE, text);
}
