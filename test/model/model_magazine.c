/* SPDX-License-Identifier: MIT
 *
 * model_magazine.c - the fast paths of malloc and free, with a fork and with a signal at every
 * step.
 *
 * Fork.  One thread allocates and frees for ever; after each of its stores another thread might
 * fork, so after each the memory is looked at as a child would find it: what stands in the
 * magazines below the tops can be recovered there, and what the program held it holds still.  No
 * object may be both, or in two places; a recovered object must carry the secret; and the fast
 * paths lose at most one.
 *
 * Signals.  A handler may run between any two steps of a fast path and itself allocate or free,
 * which may take the slow path.  Where that corrupts is what the manual says about handlers, so the
 * table of windows below is compared with what the explorer finds:
 *
 *      malloc   load top | lower top | read slot | clear word 1
 *                        ^-----------^-- a handler that refills or relieves: until the slot is read
 *                        ^-- a handler that only pops: until the top is lowered
 *      free     load top | write secret | fill slot | raise top
 *                        ^--------------^-----------^-- a handler that pushes, or moves F
 *
 * A pop and a push do not disturb each other: they use different magazines.
 *
 * Slow paths.  A handler that interrupts one does not enter another, but its fast paths still work
 * on the same magazines.  So a slow pop lowers the top by compare and swap, and a slow push closes
 * F before it fills the slot.  To fill first and then claim the slot by compare and swap is not
 * enough: the handler may have filled that very slot since the top was loaded, and its object is
 * written over.
 */
#include "explore.h"

enum { SLOTS = 3, OBJECTS = 5, GIVE_MOST = 2, CLOSED = 15 };

/* Tops are counts here; the addresses in the real ones are looked at in model_search.c. */
enum cell {
    TAKE,
    GIVE,
    TAKE_SLOT,
    GIVE_SLOT = TAKE_SLOT + SLOTS,
    SECRET = GIVE_SLOT + SLOTS, /* by object, 1 .. OBJECTS */
    HELD = SECRET + OBJECTS + 1,
};

enum { TOP, OBJECT, COUNT, NEXT };

enum step {
    IDLE,
    POP_LOWER,
    POP_READ,
    POP_CLEAR,
    POP_RETURN,
    PUSH_CALLED,
    PUSH_SECRET,
    PUSH_FILL,
    PUSH_RAISE,
    CLOSE_GIVE,
    CLOSE_TAKE,
    COPY,
    OPEN_TAKE,
    OPEN_GIVE,
    FINISHED,
    /* slow paths, which a handler may interrupt and does not enter itself */
    SLOW_POP_LOAD,
    SLOW_POP_SWAP,
    SLOW_POP_READ,
    SLOW_POP_RETURN,
    SLOW_PUSH_LOAD,
    SLOW_PUSH_CLOSE,
    SLOW_PUSH_FILL,
    SLOW_PUSH_OPEN,
    SLOW_PUSH_SWAP, /* of a mutant */
};

enum mutant {
    NONE,
    POP_CLEARS_BEFORE_IT_LOWERS,
    POP_RETURNS_BEFORE_IT_LOWERS,
    PUSH_RAISES_BEFORE_IT_FILLS,
    PUSH_WRITES_SECRET_LAST,
    COPY_BEFORE_CLOSE,
    OPEN_BEFORE_COPY,
    SLOW_PUSH_FILLS_BEFORE_IT_CLAIMS,
};

/* ---------------------------------------------------------------- what a child would find */

struct found {
    unsigned places[OBJECTS + 1];
};

static struct found recover(const struct world *world) {
    struct found found = {{0}};
    for (unsigned i = 0; i < world->cell[TAKE]; i++) {
        found.places[world->cell[TAKE_SLOT + i]]++;
    }
    for (unsigned i = 0; world->cell[GIVE] != CLOSED && i < world->cell[GIVE]; i++) {
        found.places[world->cell[GIVE_SLOT + i]]++;
    }
    return found;
}

static void look(const struct world *world, unsigned objects, unsigned may_be_lost) {
    struct found found = recover(world);
    unsigned lost = 0;
    for (unsigned o = 1; o <= objects; o++) {
        bool held = world->cell[HELD + o] != 0;
        bool no_object_is_owned_twice = found.places[o] + held <= 1;
        expect(no_object_is_owned_twice);
        bool free_objects_carry_the_secret = found.places[o] == 0 || world->cell[SECRET + o];
        expect(free_objects_carry_the_secret);
        lost += found.places[o] == 0 && !held;
    }
    bool all_slots_were_filled = found.places[0] == 0;
    expect(all_slots_were_filled);
    bool at_most_that_is_lost = lost <= may_be_lost;
    expect(at_most_that_is_lost);
}

/* ---------------------------------------------------------------- fork */

enum { FORK_OBJECTS = 3 };

static void begin_fork(struct world *world) {
    for (unsigned o = 1; o <= FORK_OBJECTS; o++) {
        world->cell[TAKE_SLOT + o - 1] = (uint8_t)o;
        world->cell[SECRET + o] = 1;
    }
    world->cell[TAKE] = FORK_OBJECTS;
}

/* Frees the object of that number, or allocates. */
static enum outcome choose(struct world *world, unsigned choice) {
    struct actor *me = &world->actor[0];
    if (choice > FORK_OBJECTS) {
        return NO_CHOICE;
    }
    if (choice > 0) {
        if (!load(world, 0, HELD + choice)) {
            return WAITS;
        }
        me->r[OBJECT] = (uint8_t)choice;
        me->at = load(world, 0, GIVE) < GIVE_MOST ? PUSH_CALLED : CLOSE_GIVE;
        return STEPPED;
    }
    me->r[TOP] = load(world, 0, TAKE);
    if (me->r[TOP] > 0) {
        me->at = POP_LOWER;
        if (explore_mutant == POP_CLEARS_BEFORE_IT_LOWERS ||
            explore_mutant == POP_RETURNS_BEFORE_IT_LOWERS) {
            me->at = POP_READ;
        }
        return STEPPED;
    }
    if (load(world, 0, GIVE) == 0) {
        return WAITS;
    }
    me->at = CLOSE_GIVE;
    return STEPPED;
}

/* The step that follows, for the code as it is and for the mutants that change the order. */
static unsigned after(unsigned at) {
    switch (explore_mutant) {
    case POP_CLEARS_BEFORE_IT_LOWERS:
        if (at == POP_CLEAR) {
            return POP_LOWER;
        }
        if (at == POP_LOWER) {
            return POP_RETURN;
        }
        break;
    case POP_RETURNS_BEFORE_IT_LOWERS:
        if (at == POP_RETURN) {
            return POP_LOWER;
        }
        if (at == POP_LOWER) {
            return IDLE;
        }
        break;
    case PUSH_RAISES_BEFORE_IT_FILLS:
        if (at == PUSH_SECRET) {
            return PUSH_RAISE;
        }
        if (at == PUSH_RAISE) {
            return PUSH_FILL;
        }
        if (at == PUSH_FILL) {
            return IDLE;
        }
        break;
    case PUSH_WRITES_SECRET_LAST:
        if (at == PUSH_CALLED) {
            return PUSH_FILL;
        }
        if (at == PUSH_RAISE) {
            return PUSH_SECRET;
        }
        if (at == PUSH_SECRET) {
            return IDLE;
        }
        break;
    default:
        break;
    }
    return at == POP_RETURN || at == PUSH_RAISE ? IDLE : at + 1;
}

/* One instruction on memory, whatever the register says that was loaded before. */
static void lower(struct world *world, unsigned a) {
    unsigned top = load(world, a, TAKE);
    bool the_top_stays_in_its_magazine = top > 0;
    expect(the_top_stays_in_its_magazine);
    store(world, a, TAKE, top > 0 ? top - 1 : 0);
}

/* One step of a fast path. */
static void fast(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    switch (me->at) {
    case POP_LOWER:
        lower(world, a);
        break;
    case POP_READ:
        me->r[OBJECT] = load(world, a, TAKE_SLOT + me->r[TOP] - 1u);
        break;
    case POP_CLEAR:
        store(world, a, SECRET + me->r[OBJECT], 0);
        break;
    case POP_RETURN:
        store(world, a, HELD + me->r[OBJECT], 1);
        break;
    case PUSH_CALLED:
        store(world, a, HELD + me->r[OBJECT], 0);
        me->r[TOP] = load(world, a, GIVE);
        break;
    case PUSH_SECRET:
        store(world, a, SECRET + me->r[OBJECT], 1);
        break;
    case PUSH_FILL:
        store(world, a, GIVE_SLOT + me->r[TOP], me->r[OBJECT]);
        break;
    case PUSH_RAISE:
        store(world, a, GIVE, load(world, a, GIVE) + 1u);
        break;
    default:
        break;
    }
    me->at = (uint8_t)after(me->at);
}

/* close_class, give_to_take, open_class: F goes on top of A. */
static void move(struct world *world) {
    struct actor *me = &world->actor[0];
    unsigned on_top = me->r[TOP] + me->r[NEXT];
    switch (me->at) {
    case CLOSE_GIVE:
        me->r[TOP] = load(world, 0, TAKE);
        me->r[COUNT] = load(world, 0, GIVE);
        me->r[NEXT] = 0;
        if (explore_mutant != COPY_BEFORE_CLOSE) {
            store_release(world, 0, GIVE, CLOSED);
        }
        me->at = CLOSE_TAKE;
        break;
    case CLOSE_TAKE:
        store_release(world, 0, TAKE, 0);
        me->at = explore_mutant == OPEN_BEFORE_COPY ? OPEN_TAKE : COPY;
        break;
    case COPY:
        store(world, 0, TAKE_SLOT + on_top, load(world, 0, GIVE_SLOT + me->r[NEXT]));
        me->r[NEXT]++;
        if (me->r[NEXT] == me->r[COUNT]) {
            me->at = explore_mutant == OPEN_BEFORE_COPY ? OPEN_GIVE : OPEN_TAKE;
        }
        break;
    case OPEN_TAKE:
        store_release(world, 0, TAKE, me->r[TOP] + me->r[COUNT]);
        me->at = explore_mutant == OPEN_BEFORE_COPY ? COPY : OPEN_GIVE;
        break;
    default:
        store_release(world, 0, GIVE, 0);
        memset(me->r, 0, sizeof me->r);
        me->at = IDLE;
    }
}

static enum outcome step_fork(struct world *world, unsigned a, unsigned choice) {
    struct actor *me = &world->actor[a];
    if (me->at == IDLE) {
        return choose(world, choice);
    }
    if (choice > 0) {
        return NO_CHOICE;
    }
    if (me->at >= CLOSE_GIVE) {
        move(world);
    } else {
        fast(world, a);
    }
    return STEPPED;
}

/* A class caught in the middle of a move may lose all it held. */
static void always_fork(const struct world *world) {
    bool moving = world->cell[GIVE] == CLOSED || world->actor[0].at >= CLOSE_GIVE;
    bool idle = world->actor[0].at == IDLE && world->actor[0].nqueued == 0;
    look(world, FORK_OBJECTS, moving ? FORK_OBJECTS : idle ? 0 : 1);
}

static void never(const struct world *world) {
    (void)world;
    expect(!"a thread that allocates and frees goes on for ever");
}

static const struct protocol forked = {.name = "fast paths, fork",
                                       .actors = 1,
                                       .begin = begin_fork,
                                       .step = step_fork,
                                       .always = always_fork,
                                       .at_end = never};

TEST(fork_during_a_fast_path_loses_one_object_and_doubles_none) {
    check_holds(&forked, MEMORY_SC);
    check_holds(&forked, MEMORY_TSO);
}

TEST(fast_path_in_another_order_doubles_objects_at_fork) {
    check_breaks(&forked, MEMORY_SC, POP_CLEARS_BEFORE_IT_LOWERS, "free_objects_carry_the_secret");
    check_breaks(&forked, MEMORY_SC, POP_RETURNS_BEFORE_IT_LOWERS, "free_objects_carry_the_secret");
    check_breaks(&forked, MEMORY_SC, PUSH_RAISES_BEFORE_IT_FILLS, "all_slots_were_filled");
    check_breaks(&forked, MEMORY_SC, PUSH_WRITES_SECRET_LAST, "free_objects_carry_the_secret");
    check_breaks(&forked, MEMORY_SC, COPY_BEFORE_CLOSE, "no_object_is_owned_twice");
    check_breaks(&forked, MEMORY_SC, OPEN_BEFORE_COPY, "no_object_is_owned_twice");
}

/* ---------------------------------------------------------------- signals */

enum handler { POPS, PUSHES, REFILLS, RELIEVES, HANDLERS };

/* Objects 1 to 3 are free, 4 is the main program's, 5 the handler's. */
enum { MAIN_OBJECT = 4, HANDLER_OBJECT = 5 };

/* One experiment: what is interrupted, before which step, by what, and how full A and F are. */
static struct {
    unsigned first; /* the step to begin with */
    unsigned mutant;
    unsigned arrives; /* the handler runs before this step */
    enum handler handler;
    unsigned taken, given;
} x;

static void begin_signal(struct world *world) {
    for (unsigned i = 0; i < x.taken + x.given; i++) {
        world->cell[i < x.taken ? TAKE_SLOT + i : GIVE_SLOT + i - x.taken] = (uint8_t)(i + 1);
        world->cell[SECRET + i + 1] = 1;
    }
    world->cell[TAKE] = (uint8_t)x.taken;
    world->cell[GIVE] = (uint8_t)x.given;
    for (unsigned o = x.taken + x.given + 1; o <= OBJECTS; o++) {
        world->cell[HELD + o] = 1;
    }
    world->actor[0].at = (uint8_t)x.first;
    world->actor[0].r[TOP] = (uint8_t)x.taken;
    world->actor[0].r[OBJECT] = MAIN_OBJECT;
}

static void handler_moves(struct world *world) {
    uint8_t *cell = world->cell;
    for (unsigned i = 0; i < cell[GIVE] && cell[TAKE] + i < SLOTS; i++) {
        cell[TAKE_SLOT + cell[TAKE] + i] = cell[GIVE_SLOT + i];
    }
    cell[TAKE] = (uint8_t)(cell[TAKE] + cell[GIVE]);
    cell[GIVE] = 0;
}

/* Nothing of the thread runs while its handler does, so the handler is one step. */
static void handle(struct world *world) {
    uint8_t *cell = world->cell;
    if (x.handler == REFILLS || x.handler == RELIEVES) {
        handler_moves(world);
    }
    if (x.handler == POPS || x.handler == REFILLS) {
        uint8_t object = cell[TAKE_SLOT + --cell[TAKE]];
        cell[SECRET + object] = 0;
        cell[HELD + object] = 1;
    } else {
        cell[HELD + HANDLER_OBJECT] = 0;
        cell[SECRET + HANDLER_OBJECT] = 1;
        cell[GIVE_SLOT + cell[GIVE]++] = HANDLER_OBJECT;
    }
}

/* Does this handler do what it is there for?  It pops when A has something, refills when it is
 * empty and F is not, and so on. */
static bool can_handle(const struct world *world) {
    unsigned taken = world->cell[TAKE], given = world->cell[GIVE];
    switch (x.handler) {
    case POPS:
        return taken > 0;
    case PUSHES:
        return given < GIVE_MOST;
    case REFILLS:
        return taken == 0 && given > 0;
    default:
        return given == GIVE_MOST && taken + given <= SLOTS;
    }
}

/* magazine_pop_slowly, and a push that closes F first. */
static void slow(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    uint8_t *cell = world->cell;
    bool fills_first = explore_mutant == SLOW_PUSH_FILLS_BEFORE_IT_CLAIMS;
    switch (me->at) {
    case SLOW_POP_LOAD:
        me->r[TOP] = cell[TAKE];
        me->at = me->r[TOP] > 0 ? SLOW_POP_SWAP : FINISHED;
        break;
    case SLOW_POP_SWAP:
        me->at = compare_and_swap(world, TAKE, me->r[TOP], me->r[TOP] - 1u) ? SLOW_POP_READ
                                                                            : SLOW_POP_LOAD;
        break;
    case SLOW_POP_READ:
        me->r[OBJECT] = cell[TAKE_SLOT + me->r[TOP] - 1];
        me->at = SLOW_POP_RETURN;
        break;
    case SLOW_POP_RETURN:
        cell[SECRET + me->r[OBJECT]] = 0;
        cell[HELD + me->r[OBJECT]] = 1;
        me->at = FINISHED;
        break;
    case SLOW_PUSH_LOAD: /* a full F would be relieved, which is another story */
        cell[HELD + me->r[OBJECT]] = 0;
        cell[SECRET + me->r[OBJECT]] = 1;
        me->r[TOP] = cell[GIVE];
        me->at = fills_first ? SLOW_PUSH_FILL : SLOW_PUSH_CLOSE;
        break;
    case SLOW_PUSH_CLOSE:
        me->at =
            compare_and_swap(world, GIVE, me->r[TOP], CLOSED) ? SLOW_PUSH_FILL : SLOW_PUSH_LOAD;
        break;
    case SLOW_PUSH_FILL:
        cell[GIVE_SLOT + me->r[TOP]] = me->r[OBJECT];
        me->at = fills_first ? SLOW_PUSH_SWAP : SLOW_PUSH_OPEN;
        break;
    case SLOW_PUSH_OPEN:
        cell[GIVE] = (uint8_t)(me->r[TOP] + 1);
        me->at = FINISHED;
        break;
    default:
        me->at = FINISHED;
        if (!compare_and_swap(world, GIVE, me->r[TOP], me->r[TOP] + 1u)) {
            me->r[TOP] = cell[GIVE];
            me->at = SLOW_PUSH_FILL;
        }
    }
}

static enum outcome step_signal(struct world *world, unsigned a, unsigned choice) {
    struct actor *me = &world->actor[a];
    if (choice > 0 || me->at == FINISHED) {
        return choice > 0 ? NO_CHOICE : WAITS;
    }
    if (me->at == x.arrives && !me->r[COUNT]) {
        if (!can_handle(world)) {
            me->at = FINISHED;
            me->r[NEXT] = 1; /* Not an experiment. */
            return STEPPED;
        }
        handle(world);
        me->r[COUNT] = 1;
        return STEPPED;
    }
    if (me->at > FINISHED) {
        slow(world, a);
        return STEPPED;
    }
    fast(world, a);
    if (me->at == IDLE) {
        me->at = FINISHED;
    }
    return STEPPED;
}

static bool happened;

static void end_signal(const struct world *world) {
    if (!world->actor[0].r[NEXT]) {
        happened = true;
        look(world, OBJECTS, 0);
    }
}

static const struct protocol interrupted = {.name = "fast paths, signal",
                                            .actors = 1,
                                            .begin = begin_signal,
                                            .step = step_signal,
                                            .at_end = end_signal};

/* What a handler of this kind before this step does, over all fillings of A and F: '!' corrupts for
 * some, '.' for none, '-' cannot come about. */
static char effect(unsigned first, unsigned arrives, enum handler handler) {
    bool found = false;
    bool pops = first == POP_LOWER || first == SLOW_POP_LOAD;
    unsigned given_most = pops ? GIVE_MOST : GIVE_MOST - 1;
    happened = false;
    for (unsigned taken = pops; taken <= 2; taken++) {
        for (unsigned given = 0; given <= given_most && taken + given <= 3; given++) {
            x.first = first;
            x.arrives = arrives;
            x.handler = handler;
            x.taken = taken;
            x.given = given;
            found |= explore(&interrupted, MEMORY_SC, x.mutant) != NULL;
        }
    }
    return found ? '!' : happened ? '.' : '-';
}

static const char *windows(unsigned first, unsigned last, enum handler handler) {
    static char line[16];
    unsigned n = 0;
    for (unsigned at = first; at <= last; at++) {
        line[n++] = effect(first, at, handler);
    }
    line[n] = '\0';
    return line;
}

/* In front of: lower top, read slot, clear word 1, return.  The top is in a register throughout. */
TEST(signal_windows_of_malloc_are_the_documented_ones) {
    check_str(windows(POP_LOWER, POP_RETURN, POPS), "!...");
    check_str(windows(POP_LOWER, POP_RETURN, PUSHES), "....");
    check_str(windows(POP_LOWER, POP_RETURN, REFILLS), "-!..");
    check_str(windows(POP_LOWER, POP_RETURN, RELIEVES), "!!..");
}

/* In front of: the call, write secret, fill slot, raise top.  The call loads the top; F has room,
 * so that no handler but one that pushed before relieves it. */
TEST(signal_windows_of_free_are_the_documented_ones) {
    check_str(windows(PUSH_CALLED, PUSH_RAISE, POPS), "....");
    check_str(windows(PUSH_CALLED, PUSH_RAISE, PUSHES), ".!!!");
    check_str(windows(PUSH_CALLED, PUSH_RAISE, REFILLS), ".!!!");
    check_str(windows(PUSH_CALLED, PUSH_RAISE, RELIEVES), "----");
}

/* In front of each step; a push that is interrupted when F is closed leaves the handler's for
 * later.  F has room for both, or the push would be one that relieves it. */
TEST(signal_in_a_slow_path_corrupts_nothing) {
    check_str(windows(SLOW_POP_LOAD, SLOW_POP_RETURN, POPS), "....");
    check_str(windows(SLOW_POP_LOAD, SLOW_POP_RETURN, PUSHES), "....");
    check_str(windows(SLOW_PUSH_LOAD, SLOW_PUSH_OPEN, POPS), "....");
    check_str(windows(SLOW_PUSH_LOAD, SLOW_PUSH_OPEN, PUSHES), "..--");
}

TEST(slow_push_that_fills_before_it_claims_the_slot_corrupts) {
    x.mutant = SLOW_PUSH_FILLS_BEFORE_IT_CLAIMS;
    check_eq(effect(SLOW_PUSH_LOAD, SLOW_PUSH_LOAD, PUSHES), '.');
    check_eq(effect(SLOW_PUSH_LOAD, SLOW_PUSH_FILL, PUSHES), '!');
    check_eq(effect(SLOW_PUSH_LOAD, SLOW_PUSH_SWAP, PUSHES), '.');
}
