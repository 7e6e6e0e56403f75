/* SPDX-License-Identifier: MIT
 *
 * model_lock.c - the lock of base/lock.c: every interleaving of its takers, with a fork at every
 * step.
 *
 * Actor 0 begins alone, takes the lock the cheap way that is for single-threaded processes, then
 * makes the others; all contend.  At every step of actor 0, whatever the others are doing, it may
 * fork: by a call of its own when it is outside, and, as long as it is alone, by a signal handler
 * when it is in the middle of taking, holding or releasing the lock, which it then goes on with in
 * the child.  There it is alone with a word that somebody who is gone may have locked or waited at;
 * there, too, it makes a thread and both contend.  The generation lies in a page that reads as
 * zeros in a child until the fork is noticed (model_attention.c), and libc may or may not call the
 * child single-threaded.
 *
 * What must hold: never two inside; whoever finds the lock sound finds the data behind it whole (A
 * == B); a lock whose holder vanished says so; nobody sleeps for ever.  Sleepers wake only when
 * they are woken, because a wake for no reason would hide one that was lost.
 */
#include "explore.h"

enum cell { WORD, GENERATION, LAST_GENERATION, SINGLE, CHILD, INSIDE, A, B };

enum { LOCKED = 1, WAITERS = 2, ONE_GENERATION = 4 };

/* Registers. */
enum { SEEN, NOW, KEEP, ROUNDS, ABANDONED };

enum step {
    NOT_MADE,
    OUTSIDE,
    LOAD_GENERATION,
    CHEAP_LOAD,
    CHEAP_STORE,
    FAST_SWAP,
    SLOW_ENTRY,
    SLOW_LOAD,
    SLOW_SWAP,
    MARK_WAITERS,
    WAIT,
    SLEEPING,
    WOKEN,
    ENTER,
    REPAIR,
    WRITE_A,
    WRITE_B,
    LEAVE,
    LOAD_GENERATION_AGAIN,
    RELEASE,
    RELEASE_CHEAPLY,
    WAKE,
    FINISHED,
    GONE,
};

enum mutant {
    NONE,
    GENERATION_IS_IGNORED,
    FORK_KEEPS_GENERATION,
    TAKEOVER_IS_NOT_TOLD,
    MARK_IS_NOT_KEPT,
    RELEASE_FORGETS_MARK,
    WAIT_DOES_NOT_COMPARE,
    MARK_BY_STORE,
    NO_WAKE,
    CHEAP_WHEN_SHARED,
    RELEASE_IS_RELAXED,
};

static void begin(struct world *world) {
    world->cell[GENERATION] = world->cell[LAST_GENERATION] = 2 * ONE_GENERATION;
    world->cell[WORD] = ONE_GENERATION; /* free, of an old one */
    world->cell[SINGLE] = 1;
    world->actor[0].at = OUTSIDE;
    world->actor[0].r[ROUNDS] = 2;
}

/* pthread_create: the process stops being single-threaded before the new thread exists. */
static enum outcome make_threads(struct world *world, unsigned last) {
    if (!can_modify(world, 0, SINGLE)) {
        return WAITS; /* A system call waits for the stores before it. */
    }
    world->cell[SINGLE] = 0;
    for (unsigned i = 1; i <= last; i++) {
        world->actor[i].at = OUTSIDE;
        world->actor[i].r[ROUNDS] = 1;
    }
    return STEPPED;
}

/* See the last test. */
static bool handlers_fork_beside_threads;

/* The kernel empties the page with the generation.  A sleeper is woken by its own handler. */
static enum outcome become_child(struct world *world, bool single) {
    struct actor *me = &world->actor[0];
    bool inside = me->at > ENTER && me->at <= LEAVE;
    bool in_handler = me->at != OUTSIDE;
    bool alone = world->actor[1].at == NOT_MADE;
    if (world->cell[CHILD] || !can_modify(world, 0, WORD) ||
        (in_handler && !alone && !handlers_fork_beside_threads)) {
        return WAITS;
    }
    fork_child(world, 0, GONE);
    world->actor[1].at = NOT_MADE;
    world->cell[INSIDE] = inside;
    world->cell[CHILD] = 1;
    world->cell[SINGLE] = single;
    if (explore_mutant != FORK_KEEPS_GENERATION) {
        world->cell[GENERATION] = 0;
    }
    me->r[ROUNDS] = 2;
    if (me->at == SLEEPING) {
        me->at = WOKEN;
    }
    return STEPPED;
}

/* attention_notice_fork */
static void notice_fork(struct world *world) {
    if (world->cell[GENERATION] == 0) {
        world->cell[LAST_GENERATION] += ONE_GENERATION;
        world->cell[GENERATION] = world->cell[LAST_GENERATION];
    }
}

/* Outside the lock: take it, or (actor 0) make threads. */
static enum outcome outside(struct world *world, unsigned a, unsigned choice) {
    struct actor *me = &world->actor[a];
    bool alone = world->actor[1].at == NOT_MADE;
    if (choice == 0) {
        if (me->r[ROUNDS] == 0) {
            if (a == 0 && alone) {
                return WAITS; /* Everybody gets a turn. */
            }
            me->at = FINISHED;
            return STEPPED;
        }
        me->r[ROUNDS]--;
        notice_fork(world); /* life_enter */
        me->at = LOAD_GENERATION;
        return STEPPED;
    }
    if (a != 0) {
        return NO_CHOICE;
    }
    if (choice == 1) {
        return alone ? make_threads(world, world->cell[CHILD] ? 1 : 2) : WAITS;
    }
    return NO_CHOICE;
}

/* Inside: never two, and what a sound lock guards is whole. */
static void enter(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    bool nobody_else_is_inside = world->cell[INSIDE] == 0;
    expect(nobody_else_is_inside);
    world->cell[INSIDE] = 1;
    bool sound_means_whole = me->r[ABANDONED] || load(world, a, A) == load(world, a, B);
    expect(sound_means_whole);
    me->at = me->r[ABANDONED] ? REPAIR : WRITE_A;
}

/* lock_acquire_slowly, after the word was read. */
static void decide(struct actor *me) {
    bool current = me->r[SEEN] / ONE_GENERATION == me->r[NOW] / ONE_GENERATION;
    if (explore_mutant == GENERATION_IS_IGNORED) {
        current = true;
    }
    if (!current || !(me->r[SEEN] & LOCKED)) {
        me->at = SLOW_SWAP;
    } else {
        me->at = me->r[SEEN] & WAITERS ? WAIT : MARK_WAITERS;
    }
}

static enum outcome slow_swap(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, WORD)) {
        return WAITS;
    }
    bool current = me->r[SEEN] / ONE_GENERATION == me->r[NOW] / ONE_GENERATION;
    unsigned taken = (current ? me->r[SEEN] : me->r[NOW]) | LOCKED | me->r[KEEP];
    if (!compare_and_swap(world, WORD, me->r[SEEN], taken)) {
        me->at = SLOW_LOAD;
        return STEPPED;
    }
    bool abandoned = !current && me->r[SEEN] & LOCKED;
    me->r[ABANDONED] = abandoned && explore_mutant != TAKEOVER_IS_NOT_TOLD;
    me->at = ENTER;
    return STEPPED;
}

static enum outcome mark_waiters(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, WORD)) {
        return WAITS;
    }
    unsigned marked = me->r[SEEN] | WAITERS;
    if (explore_mutant == MARK_BY_STORE) {
        world->cell[WORD] = (uint8_t)marked;
        me->at = WAIT;
    } else {
        me->at = compare_and_swap(world, WORD, me->r[SEEN], marked) ? WAIT : SLOW_LOAD;
    }
    return STEPPED;
}

static void wait_in_kernel(struct world *world, struct actor *me) {
    bool same = world->cell[WORD] == (me->r[SEEN] | WAITERS);
    me->at = same || explore_mutant == WAIT_DOES_NOT_COMPARE ? SLEEPING : WOKEN;
}

static enum outcome release(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    bool relaxed = explore_mutant == RELEASE_IS_RELAXED;
    if (relaxed ? !can_modify_relaxed(world, a, WORD) : !can_modify(world, a, WORD)) {
        return WAITS;
    }
    unsigned old = exchange(world, WORD, me->r[NOW]);
    bool wake = old & WAITERS && explore_mutant != RELEASE_FORGETS_MARK;
    me->at = wake ? WAKE : OUTSIDE;
    return STEPPED;
}

/* The kernel wakes one sleeper, whichever it likes; there may be none. */
static enum outcome wake_one(struct world *world, unsigned a, unsigned choice) {
    bool any = false;
    for (unsigned i = 0; i < ACTORS; i++) {
        any |= world->actor[i].at == SLEEPING;
    }
    if (choice >= ACTORS) {
        return NO_CHOICE;
    }
    if (any && explore_mutant != NO_WAKE) {
        if (world->actor[choice].at != SLEEPING) {
            return WAITS;
        }
        world->actor[choice].at = WOKEN;
    } else if (choice > 0) {
        return NO_CHOICE;
    }
    world->actor[a].at = OUTSIDE;
    return STEPPED;
}

static enum outcome take(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    bool cheap = world->cell[SINGLE] || explore_mutant == CHEAP_WHEN_SHARED;
    switch (me->at) {
    case LOAD_GENERATION:
        me->r[NOW] = load(world, a, GENERATION);
        me->r[KEEP] = me->r[ABANDONED] = me->r[SEEN] = 0;
        me->at = cheap ? CHEAP_LOAD : FAST_SWAP;
        break;
    case CHEAP_LOAD:
        me->at = load(world, a, WORD) == me->r[NOW] ? CHEAP_STORE : FAST_SWAP;
        break;
    case CHEAP_STORE:
        store(world, a, WORD, me->r[NOW] | LOCKED);
        me->at = ENTER;
        break;
    case FAST_SWAP:
        if (!can_modify(world, a, WORD)) {
            return WAITS;
        }
        me->at =
            compare_and_swap(world, WORD, me->r[NOW], me->r[NOW] | LOCKED) ? ENTER : SLOW_ENTRY;
        break;
    case SLOW_ENTRY:
        notice_fork(world);
        me->r[NOW] = load(world, a, GENERATION);
        me->at = SLOW_LOAD;
        break;
    case SLOW_LOAD:
        me->r[SEEN] = load(world, a, WORD);
        decide(me);
        break;
    case SLOW_SWAP:
        return slow_swap(world, a);
    case MARK_WAITERS:
        return mark_waiters(world, a);
    case WAIT:
        wait_in_kernel(world, me);
        break;
    case WOKEN:
        me->r[KEEP] = explore_mutant == MARK_IS_NOT_KEPT ? 0 : WAITERS;
        me->at = SLOW_LOAD;
        break;
    default:
        return WAITS;
    }
    return STEPPED;
}

static enum outcome go_on(struct world *world, unsigned a, unsigned choice) {
    struct actor *me = &world->actor[a];
    if (me->at == OUTSIDE) {
        return outside(world, a, choice);
    }
    if (me->at == WAKE) {
        return wake_one(world, a, choice);
    }
    if (choice > 0) {
        return NO_CHOICE;
    }
    switch (me->at) {
    case ENTER:
        enter(world, a);
        return STEPPED;
    case REPAIR:
        store(world, a, B, load(world, a, A));
        me->at = WRITE_A;
        return STEPPED;
    case WRITE_A:
        store(world, a, A, !load(world, a, A));
        me->at = WRITE_B;
        return STEPPED;
    case WRITE_B:
        store(world, a, B, load(world, a, A));
        me->at = LEAVE;
        return STEPPED;
    case LEAVE:
        world->cell[INSIDE] = 0;
        me->at = LOAD_GENERATION_AGAIN;
        return STEPPED;
    case LOAD_GENERATION_AGAIN:
        me->r[NOW] = load(world, a, GENERATION);
        me->at = world->cell[SINGLE] ? RELEASE_CHEAPLY : RELEASE;
        return STEPPED;
    case RELEASE_CHEAPLY:
        store_release(world, a, WORD, me->r[NOW]);
        me->at = OUTSIDE;
        return STEPPED;
    case RELEASE:
        return release(world, a);
    default:
        return take(world, a);
    }
}

/* Actor 0 may fork at each of its steps: two more choices, for what libc may say in the child. */
static enum outcome step(struct world *world, unsigned a, unsigned choice) {
    enum { FORK = ACTORS };
    if (a == 0 && choice >= FORK) {
        bool finished = world->actor[0].at == FINISHED;
        return choice >= FORK + 2 ? NO_CHOICE
               : finished         ? WAITS
                                  : become_child(world, choice > FORK);
    }
    enum outcome outcome = go_on(world, a, choice);
    return a == 0 && outcome == NO_CHOICE ? WAITS : outcome;
}

static void at_end(const struct world *world) {
    for (unsigned i = 0; i < ACTORS; i++) {
        bool nobody_waits_for_ever = world->actor[i].at == FINISHED || world->actor[i].at == GONE ||
                                     world->actor[i].at == NOT_MADE;
        expect(nobody_waits_for_ever);
    }
}

static const struct protocol lock = {
    .name = "lock", .actors = 3, .begin = begin, .step = step, .at_end = at_end};

TEST(lock_excludes_hands_over_and_survives_fork) {
    check_holds(&lock, MEMORY_SC);
    check_holds(&lock, MEMORY_TSO);
    check_holds(&lock, MEMORY_WEAK);
}

TEST(lock_without_one_of_its_parts_breaks) {
    check_breaks(&lock, MEMORY_SC, GENERATION_IS_IGNORED, "nobody_waits_for_ever");
    check_breaks(&lock, MEMORY_SC, FORK_KEEPS_GENERATION, "nobody_waits_for_ever");
    check_breaks(&lock, MEMORY_SC, TAKEOVER_IS_NOT_TOLD, "sound_means_whole");
    check_breaks(&lock, MEMORY_SC, MARK_IS_NOT_KEPT, "nobody_waits_for_ever");
    check_breaks(&lock, MEMORY_SC, RELEASE_FORGETS_MARK, "nobody_waits_for_ever");
    check_breaks(&lock, MEMORY_SC, WAIT_DOES_NOT_COMPARE, "nobody_waits_for_ever");
    check_breaks(&lock, MEMORY_SC, MARK_BY_STORE, "nobody_waits_for_ever");
    check_breaks(&lock, MEMORY_SC, NO_WAKE, "nobody_waits_for_ever");
    check_breaks(&lock, MEMORY_SC, CHEAP_WHEN_SHARED, "nobody_else_is_inside");
    check_breaks(&lock, MEMORY_WEAK, RELEASE_IS_RELAXED, "sound_means_whole");
}

/*
 * What is not promised.  A handler forks in a process that has other threads, and in the child it
 * returns into a call that was about to wait for one of them: nobody is left to wake it.
 */
TEST(fork_in_a_handler_beside_threads_is_the_known_limit) {
    handlers_fork_beside_threads = true;
    check_breaks(&lock, MEMORY_SC, NONE, "nobody_waits_for_ever");
}
