/* SPDX-License-Identifier: MIT
 *
 * model_classmap.c - class bytes and chunk entries: written by one thread, read by others with no
 * lock.
 *
 * Three short stories.  *Publish*: a granule is carved and its byte published, while a careless
 * program frees an object in it that was never handed out; if the free sees the byte it must see
 * the secret. *Reuse*: a slab is withdrawn, its units go back and become a slab of another class,
 * whose first object is passed to a third thread; its free must not meet the byte of the old class.
 * *Enter*: a chunk is described and entered; who finds the entry finds it described.
 *
 * Loads are not reordered here.  On aarch64 the free of the first story may load word 1 before the
 * byte; what it can miss then is a bad free of that very moment, never a good one.
 */
#include "explore.h"

enum { FIRST_CLASS = 1, SECOND_CLASS = 2 };

enum cell { BYTE, SECRET_0, SECRET_1, UNITS_FREE, MAIL, BASE, UNITS, ENTRY };

enum mutant {
    NONE,
    BYTE_BEFORE_SECRET,
    BYTE_IS_RELAXED,
    CLEAR_LAST,
    CLEAR_IS_RELAXED,
    ENTER_FIRST,
    ENTER_IS_RELAXED
};

static void put(struct world *world, unsigned actor, unsigned cell, unsigned value, bool relaxed) {
    if (relaxed) {
        store(world, actor, cell, value);
    } else {
        store_release(world, actor, cell, value);
    }
}

/* One store of a list, in order; true when that was the last. */
struct write {
    unsigned cell, value;
    bool relaxed;
};

static enum outcome write_next(struct world *world, unsigned actor, const struct write *list,
                               unsigned count) {
    struct actor *me = &world->actor[actor];
    if (me->at >= count) {
        return WAITS;
    }
    const struct write *next = &list[me->at];
    put(world, actor, next->cell, next->value, next->relaxed);
    me->at++;
    return STEPPED;
}

static void begin(struct world *world) {
    (void)world;
}

static void at_end(const struct world *world) {
    (void)world;
}

/* ---------------------------------------------------------------- publish */

/* carve_to, then the first object is handed out. */
static enum outcome carve(struct world *world) {
    bool relaxed = explore_mutant == BYTE_IS_RELAXED;
    const struct write as_it_is[] = {{SECRET_0, 1, true},
                                     {SECRET_1, 1, true},
                                     {BYTE, FIRST_CLASS, relaxed},
                                     {SECRET_0, 0, true}};
    static const struct write byte_first[] = {
        {BYTE, FIRST_CLASS, false}, {SECRET_0, 1, true}, {SECRET_1, 1, true}, {SECRET_0, 0, true}};
    return write_next(world, 0, explore_mutant == BYTE_BEFORE_SECRET ? byte_first : as_it_is, 4);
}

/* The fast path of a bad free: byte, then word 1. */
static enum outcome free_uncarved(struct world *world) {
    struct actor *me = &world->actor[1];
    if (me->at == 0) {
        me->at = load(world, 1, BYTE) != 0 ? 1 : 2;
        return STEPPED;
    }
    if (me->at == 1) {
        bool a_bad_free_meets_the_secret = load(world, 1, SECRET_1);
        expect(a_bad_free_meets_the_secret);
        me->at = 2;
        return STEPPED;
    }
    return WAITS;
}

static enum outcome step_publish(struct world *world, unsigned actor, unsigned choice) {
    if (choice > 0) {
        return NO_CHOICE;
    }
    return actor == 0 ? carve(world) : free_uncarved(world);
}

static const struct protocol publish = {
    .name = "publish", .actors = 2, .begin = begin, .step = step_publish, .at_end = at_end};

/* ---------------------------------------------------------------- reuse */

static void begin_reuse(struct world *world) {
    world->cell[BYTE] = FIRST_CLASS;
}

/* slab_destroy, then pages_give_back, whose lock is released with release order. */
static enum outcome withdraw(struct world *world) {
    bool relaxed = explore_mutant == CLEAR_IS_RELAXED;
    const struct write as_it_is[] = {{BYTE, 0, relaxed}, {UNITS_FREE, 1, relaxed}};
    static const struct write clear_last[] = {{UNITS_FREE, 1, false}, {BYTE, 0, false}};
    return write_next(world, 0, explore_mutant == CLEAR_LAST ? clear_last : as_it_is, 2);
}

/* Another bin takes the units, carves, and an object is passed on before or after it is published.
 * */
static enum outcome take_over(struct world *world, unsigned choice) {
    static const struct write published[] = {{BYTE, SECOND_CLASS, false}, {MAIL, 1, false}};
    static const struct write early[] = {{MAIL, 1, false}, {BYTE, SECOND_CLASS, false}};
    struct actor *me = &world->actor[1];
    if (choice > (me->r[1] == 0)) {
        return NO_CHOICE;
    }
    if (!me->r[0]) {
        if (!load(world, 1, UNITS_FREE)) {
            return WAITS;
        }
        me->r[0] = 1;
        me->r[1] = (uint8_t)(choice + 1);
        return STEPPED;
    }
    return choice > 0 ? WAITS : write_next(world, 1, me->r[1] == 1 ? published : early, 2);
}

static enum outcome free_passed(struct world *world) {
    struct actor *me = &world->actor[2];
    if (me->at == 0) {
        if (!load(world, 2, MAIL)) {
            return WAITS;
        }
        me->at = 1;
        return STEPPED;
    }
    if (me->at == 1) {
        bool a_live_object_has_no_old_class = load(world, 2, BYTE) != FIRST_CLASS;
        expect(a_live_object_has_no_old_class);
        me->at = 2;
        return STEPPED;
    }
    return WAITS;
}

static enum outcome step_reuse(struct world *world, unsigned actor, unsigned choice) {
    if (actor == 1) {
        return take_over(world, choice);
    }
    if (choice > 0) {
        return NO_CHOICE;
    }
    return actor == 0 ? withdraw(world) : free_passed(world);
}

static void end_reuse(const struct world *world) {
    bool the_object_was_freed = world->actor[2].at == 2;
    expect(the_object_was_freed);
    bool the_byte_is_the_new_one = world->cell[BYTE] == SECOND_CLASS;
    expect(the_byte_is_the_new_one);
}

static const struct protocol reuse = {
    .name = "reuse", .actors = 3, .begin = begin_reuse, .step = step_reuse, .at_end = end_reuse};

/* ---------------------------------------------------------------- enter */

static enum outcome enter_chunk(struct world *world) {
    bool relaxed = explore_mutant == ENTER_IS_RELAXED;
    const struct write as_it_is[] = {{BASE, 1, true}, {UNITS, 1, true}, {ENTRY, 1, relaxed}};
    static const struct write enter_first[] = {
        {ENTRY, 1, false}, {BASE, 1, true}, {UNITS, 1, true}};
    return write_next(world, 0, explore_mutant == ENTER_FIRST ? enter_first : as_it_is, 3);
}

/* classmap_chunk, which compares the base, then the span's units. */
static enum outcome look_up(struct world *world) {
    struct actor *me = &world->actor[1];
    switch (me->at) {
    case 0:
        me->at = load(world, 1, ENTRY) ? 1 : 3;
        return STEPPED;
    case 1:
    case 2: {
        bool a_chunk_that_is_found_is_described = load(world, 1, me->at == 1 ? BASE : UNITS);
        expect(a_chunk_that_is_found_is_described);
        me->at++;
        return STEPPED;
    }
    default:
        return WAITS;
    }
}

static enum outcome step_enter(struct world *world, unsigned actor, unsigned choice) {
    if (choice > 0) {
        return NO_CHOICE;
    }
    return actor == 0 ? enter_chunk(world) : look_up(world);
}

static const struct protocol enter = {
    .name = "enter", .actors = 2, .begin = begin, .step = step_enter, .at_end = at_end};

/* ---------------------------------------------------------------- tests */

static void check_holds_everywhere(const struct protocol *protocol) {
    check_holds(protocol, MEMORY_SC);
    check_holds(protocol, MEMORY_TSO);
    check_holds(protocol, MEMORY_WEAK);
}

TEST(bad_free_that_sees_the_class_byte_sees_the_secret) {
    check_holds_everywhere(&publish);
    check_breaks(&publish, MEMORY_SC, BYTE_BEFORE_SECRET, "a_bad_free_meets_the_secret");
    check_breaks(&publish, MEMORY_WEAK, BYTE_IS_RELAXED, "a_bad_free_meets_the_secret");
}

TEST(object_is_never_judged_by_the_class_its_memory_had_before) {
    check_holds_everywhere(&reuse);
    check_breaks(&reuse, MEMORY_SC, CLEAR_LAST, "a_live_object_has_no_old_class");
    check_breaks(&reuse, MEMORY_WEAK, CLEAR_IS_RELAXED, "a_live_object_has_no_old_class");
}

TEST(chunk_that_is_found_is_described) {
    check_holds_everywhere(&enter);
    check_breaks(&enter, MEMORY_SC, ENTER_FIRST, "a_chunk_that_is_found_is_described");
    check_breaks(&enter, MEMORY_WEAK, ENTER_IS_RELAXED, "a_chunk_that_is_found_is_described");
}
