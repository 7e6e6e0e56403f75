/* SPDX-License-Identifier: MIT
 *
 * explore.c - breadth first through all worlds of a protocol.
 *
 * Worlds are kept in the order in which they were met, each with the one it came from, so the array
 * is the queue of the search, the memory of what was seen and the way back.  A hash table of
 * indices finds a world again; whole worlds are compared, so nothing is taken for seen that was
 * not.
 */
#include "explore.h"

#include <stdlib.h>

enum { MOST_WORLDS = 1 << 22, NO_WORLD = -1, FLUSH = 100 };

struct met {
    struct world world;
    int32_t from;
    uint8_t actor, choice;
};

static struct {
    const struct protocol *protocol;
    enum memory memory;
    struct met *met;
    size_t count, room, steps;
    int32_t *table; /* index + 1, or 0 */
    size_t table_size;
    const char *violation;
} g;

unsigned explore_mutant;

void explore_violation(const char *text) {
    if (g.violation == NULL) {
        g.violation = text;
    }
}

/* ---------------------------------------------------------------- memory */

uint8_t load(const struct world *world, unsigned actor, unsigned cell) {
    const struct actor *a = &world->actor[actor];
    for (unsigned i = a->nqueued; i > 0; i--) {
        if (a->queued[i - 1].cell == cell) {
            return a->queued[i - 1].value;
        }
    }
    return world->cell[cell];
}

static void put(struct world *world, unsigned actor, unsigned cell, unsigned value, bool release) {
    struct actor *a = &world->actor[actor];
    check(cell < CELLS && value < 256);
    if (g.memory == MEMORY_SC) {
        world->cell[cell] = (uint8_t)value;
        return;
    }
    check(a->nqueued < QUEUE); /* One store a step, and no step with a full queue. */
    a->queued[a->nqueued++] = (struct queued){(uint8_t)cell, (uint8_t)value, release};
}

void store(struct world *world, unsigned actor, unsigned cell, unsigned value) {
    put(world, actor, cell, value, false);
}

void store_release(struct world *world, unsigned actor, unsigned cell, unsigned value) {
    put(world, actor, cell, value, true);
}

bool can_modify(const struct world *world, unsigned actor, unsigned cell) {
    (void)cell;
    return world->actor[actor].nqueued == 0;
}

static bool has_queued(const struct actor *a, unsigned before, unsigned cell) {
    for (unsigned i = 0; i < before; i++) {
        if (a->queued[i].cell == cell) {
            return true;
        }
    }
    return false;
}

bool can_modify_relaxed(const struct world *world, unsigned actor, unsigned cell) {
    const struct actor *a = &world->actor[actor];
    return g.memory == MEMORY_WEAK ? !has_queued(a, a->nqueued, cell) : a->nqueued == 0;
}

bool compare_and_swap(struct world *world, unsigned cell, unsigned expected, unsigned desired) {
    if (world->cell[cell] != expected) {
        return false;
    }
    world->cell[cell] = (uint8_t)desired;
    return true;
}

uint8_t exchange(struct world *world, unsigned cell, unsigned value) {
    uint8_t old = world->cell[cell];
    world->cell[cell] = (uint8_t)value;
    return old;
}

static void clear_queue(struct actor *a) {
    memset(a->queued, 0, sizeof a->queued);
    a->nqueued = 0;
}

void fork_child(struct world *world, unsigned survivor, unsigned gone) {
    for (unsigned i = 0; i < ACTORS; i++) {
        if (i != survivor) {
            clear_queue(&world->actor[i]);
            memset(world->actor[i].r, 0, sizeof world->actor[i].r);
            world->actor[i].at = (uint8_t)gone;
        }
    }
}

/* Lets the i-th queued store of an actor reach memory, if it may be the next. */
static bool flush(struct world *world, unsigned actor, unsigned i) {
    struct actor *a = &world->actor[actor];
    struct queued q = a->queued[i];
    if (i > 0 && (g.memory != MEMORY_WEAK || q.release || has_queued(a, i, q.cell))) {
        return false;
    }
    world->cell[q.cell] = q.value;
    memmove(a->queued + i, a->queued + i + 1, (a->nqueued - i - 1u) * sizeof(struct queued));
    a->nqueued--;
    a->queued[a->nqueued] = (struct queued){0, 0, 0}; /* Equal worlds agree in all bytes. */
    return true;
}

/* ---------------------------------------------------------------- worlds that were met */

static uint64_t hash(const struct world *world) {
    const unsigned char *bytes = (const unsigned char *)world;
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof *world; i++) {
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3) + (sum >> 47);
    }
    return sum ^ sum >> 29;
}

static void table_insert(int32_t index) {
    size_t at = hash(&g.met[index].world) & (g.table_size - 1);
    while (g.table[at] != 0) {
        at = (at + 1) & (g.table_size - 1);
    }
    g.table[at] = index + 1;
}

static void grow(void) {
    g.room = g.room == 0 ? 1 << 12 : g.room * 2;
    check(g.room <= MOST_WORLDS); /* A model that large wants to be two. */
    g.met = realloc(g.met, g.room * sizeof *g.met);
    free(g.table);
    g.table_size = g.room * 2;
    g.table = calloc(g.table_size, sizeof *g.table);
    check(g.met != NULL && g.table != NULL);
    for (size_t i = 0; i < g.count; i++) {
        table_insert((int32_t)i);
    }
}

static bool was_met(const struct world *world) {
    size_t at = hash(world) & (g.table_size - 1);
    for (; g.table[at] != 0; at = (at + 1) & (g.table_size - 1)) {
        if (memcmp(&g.met[g.table[at] - 1].world, world, sizeof *world) == 0) {
            return true;
        }
    }
    return false;
}

static void meet(const struct world *world, int32_t from, unsigned actor, unsigned choice) {
    if (g.count == g.room) {
        grow();
    }
    if (from != NO_WORLD) {
        g.steps++;
    }
    if (g.violation == NULL && was_met(world)) {
        return;
    }
    g.met[g.count] = (struct met){*world, from, (uint8_t)actor, (uint8_t)choice};
    table_insert((int32_t)g.count);
    g.count++;
    if (g.violation == NULL && g.protocol->always != NULL) {
        g.protocol->always(world);
    }
}

/* ---------------------------------------------------------------- the search */

/* All steps of one actor; false when there was none. */
static bool step_actor(int32_t from, unsigned actor) {
    bool any = false;
    for (unsigned i = 0; i < g.met[from].world.actor[actor].nqueued && g.violation == NULL; i++) {
        struct world next = g.met[from].world;
        if (flush(&next, actor, i)) {
            any = true;
            meet(&next, from, actor, FLUSH + i);
        }
    }
    if (g.met[from].world.actor[actor].nqueued == QUEUE) {
        return any;
    }
    for (unsigned choice = 0; g.violation == NULL; choice++) {
        struct world next = g.met[from].world;
        enum outcome outcome = g.protocol->step(&next, actor, choice);
        if (outcome == NO_CHOICE) {
            break;
        }
        if (outcome == STEPPED) {
            any = true;
            meet(&next, from, actor, choice);
        }
    }
    return any;
}

const char *explore(const struct protocol *protocol, enum memory memory, unsigned mutant) {
    struct world world;
    g.protocol = protocol;
    g.memory = memory;
    g.count = g.steps = 0;
    g.violation = NULL;
    explore_mutant = mutant;
    if (g.room == 0) {
        grow();
    }
    memset(g.table, 0, g.table_size * sizeof *g.table);
    memset(&world, 0, sizeof world);
    protocol->begin(&world);
    meet(&world, NO_WORLD, 0, 0);
    for (size_t i = 0; i < g.count && g.violation == NULL; i++) {
        bool any = false;
        for (unsigned a = 0; a < protocol->actors; a++) {
            any |= step_actor((int32_t)i, a);
        }
        if (!any && g.violation == NULL) {
            struct met last = g.met[i];
            protocol->at_end(&last.world);
            if (g.violation != NULL) { /* The way ends here. */
                meet(&last.world, last.from, last.actor, last.choice);
            }
        }
    }
    return g.violation;
}

/* ---------------------------------------------------------------- telling */

static const char *const memory_names[] = {"sequential", "x86 store queues", "weak stores"};

/* One line: who stepped, how, and what the cells are now. */
static void say_step(const struct met *met) {
    char line[4 * CELLS + 1];
    char number[4][24];
    size_t used = 0;
    for (unsigned i = 0; i < CELLS; i++) {
        test_decimal(number[0], met->world.cell[i]);
        size_t length = strlen(number[0]);
        line[used++] = ' ';
        memcpy(line + used, number[0], length);
        used += length;
    }
    line[used] = '\0';
    bool flushed = met->choice >= FLUSH;
    test_say("      actor ", test_decimal(number[1], met->actor), flushed ? " flush " : " choice ",
             test_decimal(number[2], flushed ? met->choice - FLUSH : met->choice), ", now at ",
             test_decimal(number[3], met->world.actor[met->actor].at), ":", line, "\n", NULL);
}

static void say_way(void) {
    int32_t way[1024];
    unsigned length = 0;
    for (int32_t i = (int32_t)g.count - 1; i != NO_WORLD && length < 1024; i = g.met[i].from) {
        way[length++] = i;
    }
    while (length > 0) {
        say_step(&g.met[way[--length]]);
    }
}

static void say_result(const char *what) {
    char number[3][24];
    test_say("    ", g.protocol->name, ", ", memory_names[g.memory],
             explore_mutant != 0 ? ", mutant " : "",
             explore_mutant != 0 ? test_decimal(number[2], explore_mutant) : "", ": ", what, " (",
             test_decimal(number[0], (long long)g.count), " worlds, ",
             test_decimal(number[1], (long long)g.steps), " steps)\n", NULL);
}

void check_holds(const struct protocol *protocol, enum memory memory) {
    if (explore(protocol, memory, 0) != NULL) {
        say_way();
        say_result(g.violation);
        test_fail(__FILE__, __LINE__, "the protocol is broken");
    }
    say_result("holds");
}

void check_breaks(const struct protocol *protocol, enum memory memory, unsigned mutant,
                  const char *violation) {
    if (explore(protocol, memory, mutant) == NULL) {
        say_result("nothing found");
        test_fail(__FILE__, __LINE__, "a mutant lives");
    }
    if (strcmp(g.violation, violation) != 0) {
        say_way();
    }
    check_str(g.violation, violation);
    say_result(violation);
}
