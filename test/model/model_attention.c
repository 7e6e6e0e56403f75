/* SPDX-License-Identifier: MIT
 *
 * model_attention.c - the threads of a forked child find out, at the same time, that they are in
 * one.
 *
 * The kernel has emptied the attention word (base/attention.c).  Whoever finds it 0 first makes the
 * locks of vanished threads void by raising the generation, and then writes the word; whoever else
 * finds it 0, or finds that work going on, waits for it.  The generation must be raised once, and
 * nobody may take a lock while it has the old generation in hand, because a lock that a vanished
 * thread held would then be waited for, or a repaired one be repaired again.
 *
 * Then the bits: handlers and threads raise them, and one who finds a bit takes it and does the
 * work.  No work is left undone.
 */
#include "explore.h"

enum cell { WORD, GENERATION, TODO_LIST, DONE };

enum { CALM = 1, FORKED = 2, WORK = 4, NOTICING = 254 };

enum step {
    LOAD,
    NOTICE,
    RAISE_GENERATION,
    WRITE_WORD,
    WAIT,
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
    NOTICED_BY_STORE,
    NO_WAITING,
    WORD_BEFORE_GENERATION,
    WORD_IS_RELAXED,
    WORK_BEFORE_TAKING
};

static void begin(struct world *world) {
    (void)world;
}

static enum outcome notice(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, WORD)) {
        return WAITS;
    }
    if (explore_mutant == NOTICED_BY_STORE) {
        world->cell[WORD] = NOTICING;
        me->at = RAISE_GENERATION;
    } else {
        me->at = compare_and_swap(world, WORD, 0, NOTICING) ? RAISE_GENERATION : WAIT;
    }
    if (me->at == RAISE_GENERATION && explore_mutant == WORD_BEFORE_GENERATION) {
        me->at = WRITE_WORD;
    }
    return STEPPED;
}

static void write_word(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (explore_mutant == WORD_IS_RELAXED) {
        store(world, a, WORD, CALM | FORKED);
    } else {
        store_release(world, a, WORD, CALM | FORKED);
    }
    me->at = explore_mutant == WORD_BEFORE_GENERATION ? RAISE_GENERATION : WAIT;
}

static enum outcome wait_for_it(struct world *world, unsigned a) {
    if (load(world, a, WORD) == NOTICING && explore_mutant != NO_WAITING) {
        return WAITS;
    }
    world->actor[a].at = USE;
    return STEPPED;
}

static void use_locks(struct world *world, unsigned a) {
    bool the_generation_was_raised_once = load(world, a, GENERATION) == 1;
    expect(the_generation_was_raised_once);
    world->actor[a].at = ADD_WORK;
}

/* attention_raise: the bit is set only where it is not. */
static enum outcome set_bit(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, WORD)) {
        return WAITS;
    }
    world->cell[WORD] |= WORK;
    me->at = ATTEND;
    return STEPPED;
}

/* At the end of its own slow call each looks whether something was left to do. */
static enum outcome take_bit(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, WORD)) {
        return WAITS;
    }
    world->cell[WORD] &= (uint8_t)~WORK;
    me->at = explore_mutant == WORK_BEFORE_TAKING ? FINISHED : DO_WORK;
    return STEPPED;
}

static enum outcome do_work(struct world *world, unsigned a) {
    struct actor *me = &world->actor[a];
    if (!can_modify(world, a, TODO_LIST)) {
        return WAITS;
    }
    world->cell[DONE] += exchange(world, TODO_LIST, 0);
    me->at = explore_mutant == WORK_BEFORE_TAKING ? TAKE_BIT : FINISHED;
    return STEPPED;
}

static enum outcome step(struct world *world, unsigned a, unsigned choice) {
    struct actor *me = &world->actor[a];
    if (choice > 0) {
        return NO_CHOICE;
    }
    switch (me->at) {
    case LOAD: {
        unsigned word = load(world, a, WORD);
        me->at = word == 0 ? NOTICE : word == NOTICING ? WAIT : USE;
        return STEPPED;
    }
    case NOTICE:
        return notice(world, a);
    case RAISE_GENERATION:
        store(world, a, GENERATION, load(world, a, GENERATION) + 1u);
        me->at = explore_mutant == WORD_BEFORE_GENERATION ? WAIT : WRITE_WORD;
        return STEPPED;
    case WRITE_WORD:
        write_word(world, a);
        return STEPPED;
    case WAIT:
        return wait_for_it(world, a);
    case USE:
        use_locks(world, a);
        return STEPPED;
    case ADD_WORK: /* the push of model_deferred.c */
        if (!can_modify(world, a, TODO_LIST)) {
            return WAITS;
        }
        world->cell[TODO_LIST]++;
        me->at = LOOK_AT_BIT;
        return STEPPED;
    case LOOK_AT_BIT:
        me->at = load(world, a, WORD) & WORK ? ATTEND : SET_BIT;
        return STEPPED;
    case SET_BIT:
        return set_bit(world, a);
    case ATTEND: {
        bool left = load(world, a, WORD) & WORK;
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
    for (unsigned a = 0; a < 3; a++) {
        bool nobody_waits_for_ever = world->actor[a].at == FINISHED;
        expect(nobody_waits_for_ever);
    }
    bool no_work_is_left = world->cell[DONE] == 3 && world->cell[TODO_LIST] == 0;
    expect(no_work_is_left);
}

static const struct protocol attention = {
    .name = "attention", .actors = 3, .begin = begin, .step = step, .at_end = at_end};

TEST(fork_is_noticed_once_and_no_work_is_left) {
    check_holds(&attention, MEMORY_SC);
    check_holds(&attention, MEMORY_TSO);
    check_holds(&attention, MEMORY_WEAK);
}

TEST(attention_without_one_of_its_parts_breaks) {
    static const char once[] = "the_generation_was_raised_once";
    check_breaks(&attention, MEMORY_SC, NOTICED_BY_STORE, once);
    check_breaks(&attention, MEMORY_SC, NO_WAITING, once);
    check_breaks(&attention, MEMORY_SC, WORD_BEFORE_GENERATION, once);
    check_breaks(&attention, MEMORY_WEAK, WORD_IS_RELAXED, once);
    check_breaks(&attention, MEMORY_SC, WORK_BEFORE_TAKING, "no_work_is_left");
}
