/* SPDX-License-Identifier: MIT
 *
 * model_large_free.c - two threads free the same large object while a third waits for its pages.
 *
 * large_claim (heap/large.c) changes the kind of the span from LARGE to NONE by compare and swap;
 * who wins gives the pages back, who loses is told.  The third thread takes the pages as soon as
 * they are free, makes a large object of its own there, and frees that.  If the second of the bad
 * frees comes that late it takes the new object with it, which no allocator can see; but also then
 * each time the pages were taken they are given back once, and one of the three frees is told.
 */
#include "explore.h"

enum cell { KIND, USED, BYTES, TAKEN, GIVEN, TOLD };

enum { SPAN_NONE, SPAN_LARGE };

enum step {
    TAKE,
    SET_BYTES,
    SET_KIND,
    LOOK,
    SWAP,
    STORE_NONE,
    ACCOUNT,
    GIVE_BACK,
    LATE_SWAP,
    FINISHED
};

enum mutant { NONE, LOOK_AND_STORE, GIVE_BACK_BEFORE_SWAP, KIND_BEFORE_TAKE };

static void begin(struct world *world) {
    world->cell[KIND] = SPAN_LARGE;
    world->cell[USED] = world->cell[BYTES] = world->cell[TAKEN] = 1;
    world->actor[0].at = world->actor[1].at = LOOK;
    world->actor[2].at = explore_mutant == KIND_BEFORE_TAKE ? SET_KIND : TAKE;
}

/* pages_take, under the page heap's lock. */
static enum outcome take(struct world *world, unsigned a) {
    if (world->cell[USED]) {
        return WAITS;
    }
    world->cell[USED] = 1;
    world->cell[TAKEN]++;
    world->actor[a].at = SET_BYTES;
    return STEPPED;
}

static void give_back(struct world *world, unsigned a) {
    bool pages_are_given_back_once = world->cell[USED] == 1;
    expect(pages_are_given_back_once);
    world->cell[USED] = 0;
    world->cell[GIVEN]++;
    world->actor[a].at = explore_mutant == GIVE_BACK_BEFORE_SWAP ? LATE_SWAP : FINISHED;
}

static void tell(struct world *world, unsigned a) {
    world->cell[TOLD]++;
    world->actor[a].at = FINISHED;
}

/* heap_look */
static void look(struct world *world, unsigned a) {
    if (load(world, a, KIND) == SPAN_NONE) {
        tell(world, a);
    } else if (explore_mutant == LOOK_AND_STORE) {
        world->actor[a].at = STORE_NONE;
    } else {
        world->actor[a].at = explore_mutant == GIVE_BACK_BEFORE_SWAP ? GIVE_BACK : SWAP;
    }
}

static enum outcome swap(struct world *world, unsigned a) {
    if (!can_modify(world, a, KIND)) {
        return WAITS;
    }
    bool won = compare_and_swap(world, KIND, SPAN_LARGE, SPAN_NONE);
    if (world->actor[a].at == LATE_SWAP) {
        world->actor[a].at = FINISHED;
    } else if (won) {
        world->actor[a].at = ACCOUNT;
    } else {
        tell(world, a);
    }
    return STEPPED;
}

static enum outcome step(struct world *world, unsigned a, unsigned choice) {
    struct actor *me = &world->actor[a];
    if (choice > 0) {
        return NO_CHOICE;
    }
    switch (me->at) {
    case TAKE:
        return take(world, a);
    case SET_BYTES:
        store(world, a, BYTES, 1);
        me->at = explore_mutant == KIND_BEFORE_TAKE ? LOOK : SET_KIND;
        return STEPPED;
    case SET_KIND:
        store_release(world, a, KIND, SPAN_LARGE);
        me->at = explore_mutant == KIND_BEFORE_TAKE ? TAKE : LOOK;
        return STEPPED;
    case LOOK:
        look(world, a);
        return STEPPED;
    case SWAP:
    case LATE_SWAP:
        return swap(world, a);
    case STORE_NONE:
        store(world, a, KIND, SPAN_NONE);
        me->at = ACCOUNT;
        return STEPPED;
    case ACCOUNT: {
        bool the_size_is_the_span_s = load(world, a, BYTES) == 1;
        expect(the_size_is_the_span_s);
        me->at = GIVE_BACK;
        return STEPPED;
    }
    case GIVE_BACK:
        if (!can_modify(world, a, USED)) {
            return WAITS; /* It takes a lock. */
        }
        give_back(world, a);
        return STEPPED;
    default:
        return WAITS;
    }
}

static void at_end(const struct world *world) {
    bool what_was_taken_was_given_back = world->cell[TAKEN] == 2 && world->cell[GIVEN] == 2;
    expect(what_was_taken_was_given_back);
    bool one_free_is_told = world->cell[TOLD] == 1;
    expect(one_free_is_told);
}

static const struct protocol large_free = {
    .name = "large free", .actors = 3, .begin = begin, .step = step, .at_end = at_end};

TEST(racing_frees_of_a_large_object_give_its_pages_back_once) {
    check_holds(&large_free, MEMORY_SC);
    check_holds(&large_free, MEMORY_TSO);
    check_holds(&large_free, MEMORY_WEAK);
}

TEST(large_free_without_one_of_its_parts_breaks) {
    check_breaks(&large_free, MEMORY_SC, LOOK_AND_STORE, "pages_are_given_back_once");
    check_breaks(&large_free, MEMORY_SC, GIVE_BACK_BEFORE_SWAP, "pages_are_given_back_once");
    check_breaks(&large_free, MEMORY_SC, KIND_BEFORE_TAKE, "pages_are_given_back_once");
}
