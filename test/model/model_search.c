/* SPDX-License-Identifier: MIT
 *
 * model_search.c - a search of another thread's magazines while their owner works on them.
 *
 * thread_any_holds (heap/thread.c) decides whether a free is a double free, and a positive answer
 * must be sure.  So here the searcher owns object X, which nobody frees; every slot that the owner
 * has not written yet still holds X from earlier, the worst that can be; and the owner pops,
 * pushes, closes its class, moves F onto A (by copying, or whole magazines change places), fetches
 * more and opens F for another number of objects.  Whatever the owner does meanwhile, the searcher
 * must not find X.
 *
 * Addresses are as in magazine.h, with three slots to a magazine: the tops say which magazine and
 * how full, slot 0 is the header, a giving top at the end of its magazine is full.
 *
 *      address   3      4 5    6      7 8    9
 *              [header | | ] [header | | ]
 *
 * The limit of what the code promises: read_given() reads top, room, top.  Should the owner open
 * the class twice between those loads and fill F to the same top, the room is of another opening
 * than the top, and slots that were not filled are looked at.  That takes two refills between two
 * neighbouring loads and a live object that carries the secret by accident; test 3 keeps it known.
 */
#include "explore.h"

enum { MAGAZINE = 3, MOST = MAGAZINE - 1, FIRST_MAGAZINE = MAGAZINE };
enum { X = 1, OTHER = 2 };

/* A slot's cell is SLOT plus its address. */
enum cell { TAKE, GIVE, CAP, OPENED, LOOKING, SLOT };

/* Registers of the owner between close and open, and of the searcher. */
enum { TAKE_BASE, GIVE_BASE, NTAKE, NGIVE, FROM, NEXT };
enum { TOP, AT, FIRST, ROOM };

enum step {
    IDLE,
    PUSH_FILL,
    PUSH_RAISE,
    CLOSE_GIVE,
    CLOSE_TAKE,
    MOVE,
    COPY,
    FETCH,
    OPEN_CAP,
    OPEN_TAKE,
    OPEN_GIVE,
    /* the searcher */
    READ_TAKE,
    SEARCH_TAKE,
    READ_GIVE,
    READ_CAP,
    READ_GIVE_AGAIN,
    SEARCH_GIVE,
    FINISHED,
};

enum mutant {
    NONE,
    PUSH_RAISES_BEFORE_IT_FILLS,
    OPEN_TAKE_BEFORE_COPY,
    CAP_AFTER_GIVE,
    TOP_READ_ONCE,
    PUSH_IS_RELAXED,
    OPEN_IS_RELAXED,
};

/* How often the owner may open the class while the searcher is between its loads of the top. */
static unsigned most_openings;

static void begin(struct world *world) {
    world->cell[TAKE] = FIRST_MAGAZINE;
    world->cell[GIVE] = FIRST_MAGAZINE + MAGAZINE + MAGAZINE - 1; /* open for one object */
    world->cell[CAP] = 1;
    memset(world->cell + SLOT + FIRST_MAGAZINE, X, 2u * MAGAZINE);
    world->actor[1].at = READ_TAKE;
}

static unsigned base_of(unsigned top) {
    return top / MAGAZINE * MAGAZINE;
}

/* ---------------------------------------------------------------- the owner */

static void publish(struct world *world, unsigned cell, unsigned value) {
    if (explore_mutant == OPEN_IS_RELAXED) {
        store(world, 0, cell, value);
    } else {
        store_release(world, 0, cell, value);
    }
}

static enum outcome choose(struct world *world, unsigned choice) {
    struct actor *me = &world->actor[0];
    unsigned take = load(world, 0, TAKE);
    unsigned give = load(world, 0, GIVE);
    switch (choice) {
    case 0: /* malloc: the top goes down, nobody else sees what happens to the slot */
        if (take % MAGAZINE == 0) {
            return WAITS;
        }
        store(world, 0, TAKE, take - 1);
        return STEPPED;
    case 1: /* free */
        if (give % MAGAZINE == 0) {
            return WAITS;
        }
        me->at = explore_mutant == PUSH_RAISES_BEFORE_IT_FILLS ? PUSH_RAISE : PUSH_FILL;
        me->r[FROM] = (uint8_t)give;
        return STEPPED;
    case 2: /* refill, relieve */
        me->at = CLOSE_GIVE;
        return STEPPED;
    default:
        return NO_CHOICE;
    }
}

/* close_class */
static void close_give(struct world *world) {
    struct actor *me = &world->actor[0];
    unsigned take = load(world, 0, TAKE);
    unsigned give = load(world, 0, GIVE);
    me->r[TAKE_BASE] = (uint8_t)base_of(take);
    me->r[GIVE_BASE] = (uint8_t)base_of(give - 1);
    me->r[NTAKE] = (uint8_t)(take % MAGAZINE);
    me->r[FROM] = (uint8_t)(me->r[GIVE_BASE] + MAGAZINE - load(world, 0, CAP));
    me->r[NGIVE] = (uint8_t)(give - me->r[FROM]);
    me->r[NEXT] = 0;
    publish(world, GIVE, 0);
    me->at = CLOSE_TAKE;
}

/* give_to_take: whole magazines change places, or slots are copied; if they do not fit, A left for
 * the depot first. */
static void move(struct actor *me) {
    if (me->r[NTAKE] + me->r[NGIVE] > MOST) {
        me->r[NTAKE] = 0;
    }
    if (me->r[NTAKE] == 0 && me->r[FROM] == me->r[GIVE_BASE] + 1) {
        uint8_t emptied = me->r[TAKE_BASE];
        me->r[TAKE_BASE] = me->r[GIVE_BASE];
        me->r[GIVE_BASE] = emptied;
        me->r[NTAKE] = me->r[NGIVE];
        me->at = FETCH;
    } else {
        me->at = me->r[NGIVE] > 0 ? COPY : FETCH;
    }
}

static void copy_slot(struct world *world) {
    struct actor *me = &world->actor[0];
    unsigned from = SLOT + me->r[FROM] + me->r[NEXT];
    store(world, 0, SLOT + me->r[TAKE_BASE] + 1 + me->r[NTAKE] + me->r[NEXT], load(world, 0, from));
    me->r[NEXT]++;
    if (me->r[NEXT] == me->r[NGIVE]) {
        me->r[NTAKE] = (uint8_t)(me->r[NTAKE] + me->r[NGIVE]);
        me->at = FETCH;
    }
}

/* From depot or bin, one at a time, or not. */
static enum outcome fetch(struct world *world, unsigned choice) {
    struct actor *me = &world->actor[0];
    if (choice > 1) {
        return NO_CHOICE;
    }
    if (choice == 1) {
        if (me->r[NTAKE] == MOST) {
            return WAITS;
        }
        store(world, 0, SLOT + me->r[TAKE_BASE] + 1 + me->r[NTAKE], OTHER);
        me->r[NTAKE]++;
        return STEPPED;
    }
    me->at = explore_mutant == CAP_AFTER_GIVE ? OPEN_TAKE : OPEN_CAP;
    return STEPPED;
}

/* open_class for any number of objects: room is a matter of budgets. */
static enum outcome open_cap(struct world *world, unsigned choice) {
    struct actor *me = &world->actor[0];
    if (choice >= MOST) {
        return NO_CHOICE;
    }
    if (world->cell[LOOKING] && world->cell[OPENED] >= most_openings) {
        return WAITS;
    }
    world->cell[OPENED] = (uint8_t)(world->cell[OPENED] + world->cell[LOOKING]);
    store_release(world, 0, CAP, choice + 1);
    me->r[NEXT] = (uint8_t)(choice + 1);
    if (explore_mutant == CAP_AFTER_GIVE) {
        memset(me->r, 0, sizeof me->r);
        me->at = IDLE;
    } else {
        me->at = OPEN_TAKE;
    }
    return STEPPED;
}

static enum outcome open_give(struct world *world, unsigned choice) {
    struct actor *me = &world->actor[0];
    unsigned cap = me->r[NEXT];
    if (explore_mutant == CAP_AFTER_GIVE) {
        if (choice >= MOST) {
            return NO_CHOICE;
        }
        publish(world, GIVE, me->r[GIVE_BASE] + MAGAZINE - choice - 1u);
        me->at = OPEN_CAP;
        return STEPPED;
    }
    if (choice > 0) {
        return NO_CHOICE;
    }
    publish(world, GIVE, me->r[GIVE_BASE] + MAGAZINE - cap);
    memset(me->r, 0, sizeof me->r);
    me->at = IDLE;
    return STEPPED;
}

static void push(struct world *world) {
    struct actor *me = &world->actor[0];
    bool first = me->at == (explore_mutant == PUSH_RAISES_BEFORE_IT_FILLS ? PUSH_RAISE : PUSH_FILL);
    if (me->at == PUSH_FILL) {
        store(world, 0, SLOT + me->r[FROM], OTHER);
    } else if (explore_mutant == PUSH_IS_RELAXED) {
        store(world, 0, GIVE, me->r[FROM] + 1u);
    } else {
        store_release(world, 0, GIVE, me->r[FROM] + 1u);
    }
    if (first) {
        me->at = me->at == PUSH_FILL ? PUSH_RAISE : PUSH_FILL;
    } else {
        me->at = IDLE;
        me->r[FROM] = 0;
    }
}

static enum outcome step_owner(struct world *world, unsigned choice) {
    struct actor *me = &world->actor[0];
    switch (me->at) {
    case IDLE:
        return choose(world, choice);
    case FETCH:
        return fetch(world, choice);
    case OPEN_CAP:
        return open_cap(world, choice);
    case OPEN_GIVE:
        return open_give(world, choice);
    default:
        break;
    }
    if (choice > 0) {
        return NO_CHOICE;
    }
    switch (me->at) {
    case PUSH_FILL:
    case PUSH_RAISE:
        push(world);
        break;
    case CLOSE_GIVE:
        close_give(world);
        break;
    case CLOSE_TAKE:
        publish(world, TAKE,
                explore_mutant == OPEN_TAKE_BEFORE_COPY
                    ? me->r[TAKE_BASE] + me->r[NTAKE] +
                          (me->r[NTAKE] + me->r[NGIVE] <= MOST ? me->r[NGIVE] : 0u)
                    : me->r[TAKE_BASE]);
        me->at = MOVE;
        break;
    case MOVE:
        move(me);
        break;
    case COPY:
        copy_slot(world);
        break;
    case OPEN_TAKE:
        publish(world, TAKE, me->r[TAKE_BASE] + me->r[NTAKE]);
        me->at = OPEN_GIVE;
        break;
    default:
        return WAITS;
    }
    return STEPPED;
}

/* ---------------------------------------------------------------- the searcher */

/* Looks at the next slot; true when that was the last one. */
static bool search_slot(struct world *world) {
    struct actor *me = &world->actor[1];
    bool nothing_is_found_that_is_not_there = load(world, 1, SLOT + me->r[AT]) != X;
    expect(nothing_is_found_that_is_not_there);
    me->r[AT]++;
    return me->r[AT] >= me->r[TOP];
}

static void finish(struct world *world) {
    memset(world->actor[1].r, 0, sizeof world->actor[1].r);
    world->cell[LOOKING] = world->cell[OPENED] = 0;
    world->actor[1].at = FINISHED;
}

static void read_take(struct world *world) {
    struct actor *me = &world->actor[1];
    unsigned take = load(world, 1, TAKE);
    me->r[AT] = (uint8_t)(base_of(take) + 1);
    me->r[TOP] = (uint8_t)(take + 1);
    me->at = take % MAGAZINE > 0 ? SEARCH_TAKE : READ_GIVE;
}

/* Openings that are under way count: their stores may reach memory after this load. */
static enum outcome read_give(struct world *world) {
    const struct actor *owner = &world->actor[0];
    struct actor *me = &world->actor[1];
    unsigned openings = 0;
    for (unsigned i = 0; i < owner->nqueued; i++) {
        openings += owner->queued[i].cell == CAP;
    }
    if (openings > most_openings) {
        return WAITS;
    }
    me->r[AT] = 0;
    me->r[TOP] = load(world, 1, GIVE);
    world->cell[LOOKING] = 1;
    world->cell[OPENED] = (uint8_t)openings;
    me->at = READ_CAP;
    return STEPPED;
}

/* The top was the same before and after the room was read, or there is no answer. */
static void read_give_again(struct world *world) {
    struct actor *me = &world->actor[1];
    unsigned again = load(world, 1, GIVE);
    if (me->r[TOP] == 0 || (again != me->r[TOP] && explore_mutant != TOP_READ_ONCE)) {
        finish(world);
        return;
    }
    me->r[AT] = (uint8_t)(base_of(me->r[TOP] - 1u) + MAGAZINE - me->r[ROOM]);
    if (me->r[TOP] > me->r[AT]) {
        me->at = SEARCH_GIVE;
    } else {
        finish(world);
    }
}

static enum outcome step_searcher(struct world *world) {
    struct actor *me = &world->actor[1];
    switch (me->at) {
    case READ_TAKE:
        read_take(world);
        break;
    case SEARCH_TAKE:
        if (search_slot(world)) {
            me->at = READ_GIVE;
        }
        break;
    case READ_GIVE:
        return read_give(world);
    case READ_CAP:
        me->r[ROOM] = load(world, 1, CAP);
        me->at = READ_GIVE_AGAIN;
        break;
    case READ_GIVE_AGAIN:
        read_give_again(world);
        break;
    case SEARCH_GIVE:
        if (search_slot(world)) {
            finish(world);
        }
        break;
    default:
        return WAITS;
    }
    return STEPPED;
}

static enum outcome step(struct world *world, unsigned a, unsigned choice) {
    if (world->actor[1].at == FINISHED) {
        return choice > 0 ? NO_CHOICE : WAITS;
    }
    if (a == 0) {
        return step_owner(world, choice);
    }
    return choice > 0 ? NO_CHOICE : step_searcher(world);
}

static void at_end(const struct world *world) {
    bool every_search_ends = world->actor[1].at == FINISHED;
    expect(every_search_ends);
}

static const struct protocol search = {
    .name = "search", .actors = 2, .begin = begin, .step = step, .at_end = at_end};

TEST(search_finds_nothing_that_is_not_there) {
    most_openings = 1;
    check_holds(&search, MEMORY_SC);
    check_holds(&search, MEMORY_TSO);
    check_holds(&search, MEMORY_WEAK);
}

TEST(search_or_owner_in_another_order_finds_what_is_not_there) {
    static const char text[] = "nothing_is_found_that_is_not_there";
    most_openings = 1;
    check_breaks(&search, MEMORY_SC, PUSH_RAISES_BEFORE_IT_FILLS, text);
    check_breaks(&search, MEMORY_SC, OPEN_TAKE_BEFORE_COPY, text);
    check_breaks(&search, MEMORY_SC, CAP_AFTER_GIVE, text);
    check_breaks(&search, MEMORY_SC, TOP_READ_ONCE, text);
    check_breaks(&search, MEMORY_WEAK, PUSH_IS_RELAXED, text);
    check_breaks(&search, MEMORY_WEAK, OPEN_IS_RELAXED, text);
}

TEST(search_between_two_openings_of_a_class_is_the_known_limit) {
    most_openings = 2;
    check_breaks(&search, MEMORY_SC, NONE, "nothing_is_found_that_is_not_there");
}
