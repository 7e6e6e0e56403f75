/* SPDX-License-Identifier: MIT
 *
 * model_attention.c - the threads of a forked child find out, at the same time, that they are in
 * one.
 *
 * The kernel has emptied the attention page (base/attention.c).  Whoever finds the word 0 draws a new
 * generation, which makes the locks of vanished threads void, proposes it, and then proposes the
 * word; of several, the first to propose wins.  All must use one generation, and a new one: with two
 * in use, a lock that one thread holds would be void to another.
 *
 * Then the bits: handlers and threads raise them, and one who finds a bit takes it and does the
 * work.  No work is left undone, also when a bit is raised while others still notice the fork.
 */
#include "explore.h"

/* PAGE_... is what the kernel emptied; DRAWN is kept; FIRST_USED only says what was used so far. */
enum cell { PAGE_WORD, PAGE_GENERATION, DRAWN, FIRST_USED, WORK_LIST, DONE };

enum { CALM = 1, FORKED = 2, WORK = 4 };
enum { GENERATION_OF_PARENT = 1 };
enum { NOTICERS = 3, WORKERS = 2 }; /* one has no work to add */

enum step {
    LOAD,
    DRAW_GENERATION,
    PROPOSE_GENERATION,
    PROPOSE_WORD,
    USE,
    ADD_WORK,
    LOOK_AT_BIT,
    SET_BIT,
    ATTEND,
    TAKE_BIT,
    DO_WORK,
    FINISHED
};

enum mutant {
    NONE,
    GENERATION_IS_NOT_NEW,
    GENERATION_BY_STORE,
    WORD_BY_STORE,
    WORD_BEFORE_GENERATION,
    WORK_BEFORE_TAKING
};

static void begin(struct world *world) {
    world->cell[DRAWN] = GENERATION_OF_PARENT;
}

static enum outcome draw_generation(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, DRAWN)) {
        return WAITS;
    }
    world->cell[DRAWN] += explore_mutant != GENERATION_IS_NOT_NEW;
    me->r[0] = world->cell[DRAWN];
    me->at = explore_mutant == WORD_BEFORE_GENERATION ? PROPOSE_WORD : PROPOSE_GENERATION;
    return STEPPED;
}

static enum outcome propose_generation(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, PAGE_GENERATION)) {
        return WAITS;
    }
    if (explore_mutant == GENERATION_BY_STORE) {
        world->cell[PAGE_GENERATION] = me->r[0];
    } else {
        compare_and_swap(world, PAGE_GENERATION, 0, me->r[0]);
    }
    me->at = explore_mutant == WORD_BEFORE_GENERATION ? USE : PROPOSE_WORD;
    return STEPPED;
}

static enum outcome propose_word(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, PAGE_WORD)) {
        return WAITS;
    }
    if (explore_mutant == WORD_BY_STORE) {
        world->cell[PAGE_WORD] = CALM | FORKED;
    } else {
        compare_and_swap(world, PAGE_WORD, 0, CALM | FORKED);
    }
    me->at = explore_mutant == WORD_BEFORE_GENERATION ? PROPOSE_GENERATION : USE;
    return STEPPED;
}

static void use_locks(struct world *world, unsigned a) {
    uint8_t generation = load(world, a, PAGE_GENERATION);
    bool the_generation_is_new = generation > GENERATION_OF_PARENT;
    expect(the_generation_is_new);
    if (world->cell[FIRST_USED] == 0) {
        world->cell[FIRST_USED] = generation;
    }
    bool all_use_one_generation = world->cell[FIRST_USED] == generation;
    expect(all_use_one_generation);
    world->actor[a].at = a < WORKERS ? ADD_WORK : ATTEND;
}

/* attention_raise: the bit is set only where it is not. */
static enum outcome set_bit(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, PAGE_WORD)) {
        return WAITS;
    }
    world->cell[PAGE_WORD] |= WORK;
    me->at = ATTEND;
    return STEPPED;
}

/* At the end of its own slow call each looks whether something was left to do. */
static enum outcome take_bit(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, PAGE_WORD)) {
        return WAITS;
    }
    world->cell[PAGE_WORD] &= (uint8_t)~WORK;
    me->at = explore_mutant == WORK_BEFORE_TAKING ? FINISHED : DO_WORK;
    return STEPPED;
}

static enum outcome do_work(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, WORK_LIST)) {
        return WAITS;
    }
    world->cell[DONE] += exchange(world, WORK_LIST, 0);
    me->at = explore_mutant == WORK_BEFORE_TAKING ? TAKE_BIT : FINISHED;
    return STEPPED;
}

static enum outcome step(struct world *world, unsigned a, unsigned choice) {
    struct actor *me = &world->actor[a];
    if (choice > 0) {
        return NO_CHOICE;
    }
    switch (me->at) {
    case LOAD:
        me->at = load(world, a, PAGE_WORD) == 0 ? DRAW_GENERATION : USE;
        return STEPPED;
    case DRAW_GENERATION:
        return draw_generation(world, a);
    case PROPOSE_GENERATION:
        return propose_generation(world, a);
    case PROPOSE_WORD:
        return propose_word(world, a);
    case USE:
        use_locks(world, a);
        return STEPPED;
    case ADD_WORK: /* the push of model_deferred.c */
        if (!can_modify(world, a, WORK_LIST)) {
            return WAITS;
        }
        world->cell[WORK_LIST]++;
        me->at = LOOK_AT_BIT;
        return STEPPED;
    case LOOK_AT_BIT:
        me->at = load(world, a, PAGE_WORD) & WORK ? ATTEND : SET_BIT;
        return STEPPED;
    case SET_BIT:
        return set_bit(world, a);
    case ATTEND: {
        bool left = load(world, a, PAGE_WORD) & WORK;
        me->at = !left ? FINISHED : explore_mutant == WORK_BEFORE_TAKING ? DO_WORK : TAKE_BIT;
        return STEPPED;
    }
    case TAKE_BIT:
        return take_bit(world, a);
    case DO_WORK:
        return do_work(world, a);
    default:
        return WAITS;
    }
}

static void at_end(const struct world *world) {
    for (unsigned a = 0; a < NOTICERS; a++) {
        bool nobody_waits_for_ever = world->actor[a].at == FINISHED;
        expect(nobody_waits_for_ever);
    }
    bool no_work_is_left = world->cell[DONE] == WORKERS && world->cell[WORK_LIST] == 0;
    expect(no_work_is_left);
}

static const struct protocol attention = {
    .name = "attention", .actors = NOTICERS, .begin = begin, .step = step, .at_end = at_end};

TEST(all_use_one_new_generation_and_no_work_is_left) {
    check_holds(&attention, MEMORY_SC);
    check_holds(&attention, MEMORY_TSO);
    check_holds(&attention, MEMORY_WEAK);
}

TEST(attention_without_one_of_its_parts_breaks) {
    check_breaks(&attention, MEMORY_SC, GENERATION_IS_NOT_NEW, "the_generation_is_new");
    check_breaks(&attention, MEMORY_SC, GENERATION_BY_STORE, "all_use_one_generation");
    check_breaks(&attention, MEMORY_SC, WORD_BY_STORE, "no_work_is_left");
    check_breaks(&attention, MEMORY_SC, WORD_BEFORE_GENERATION, "the_generation_is_new");
    check_breaks(&attention, MEMORY_SC, WORK_BEFORE_TAKING, "no_work_is_left");
}
