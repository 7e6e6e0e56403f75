/* SPDX-License-Identifier: MIT
 *
 * explore.h - tries every interleaving of a small protocol and tells which one breaks it.
 *
 * A protocol is written as a step function close to the real code: a few cells of shared memory, a
 * few actors (threads, or a signal handler of one), each with a program counter and registers.  One
 * step is one access of shared memory.  The explorer starts at begin(), takes every possible step
 * of every actor from every world it meets, and meets each world once, so the search is exhaustive
 * and ends.  A world in which expect() fails is a violation; the shortest way there is printed.  In
 * a world where nobody can step, at_end() says whether everybody was meant to have finished.
 *
 * Memory.  Under MEMORY_SC a store is seen by all at once.  Under MEMORY_TSO (x86-64) each actor
 * has a queue of stores which only it sees and which reach memory later, in order.  Under
 * MEMORY_WEAK they leave the queue in any order, but for stores to one cell, and but for release
 * stores, which wait for all before them: that covers the reordering of stores on aarch64, and not
 * that of loads.
 *
 * Fork.  The child is a copy of memory in which the other actors are gone: a step with a choice,
 * the world goes on as the parent or as the child, and both are explored.  Queued stores of the
 * others are dropped, which is the same as if they had not been executed.
 *
 * Mutants.  explore_mutant is 0 for the protocol as it is; other values make a step function leave
 * something out or do it in another order.  A checker that finds nothing wrong with a mutant would
 * find nothing wrong with the code either, so each mutant is a test that must end in a violation.
 *
 * Threads     None: the program that explores is single-threaded.
 * Cost        About a million steps a second and 200 bytes a world.
 */
#ifndef TALLY_TEST_EXPLORE_H
#define TALLY_TEST_EXPLORE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "test.h"

enum { CELLS = 32, ACTORS = 4, REGISTERS = 8, QUEUE = 4 };

/* A store that other actors do not see yet. */
struct queued {
    uint8_t cell, value, release;
};

struct actor {
    uint8_t at; /* the step to take next */
    uint8_t r[REGISTERS];
    uint8_t nqueued;
    struct queued queued[QUEUE];
};

/* Everything there is; worlds that agree in all bytes are the same. */
struct world {
    uint8_t cell[CELLS];
    struct actor actor[ACTORS];
};

enum outcome {
    STEPPED,
    WAITS,     /* cannot step in this world; the world is unchanged */
    NO_CHOICE, /* this step has fewer choices than that */
};

enum memory { MEMORY_SC, MEMORY_TSO, MEMORY_WEAK };

struct protocol {
    const char *name;
    unsigned actors;
    void (*begin)(struct world *world); /* from all zeros */
    /* Takes the step of an actor; a step with several outcomes has choices 0, 1, 2 ... */
    enum outcome (*step)(struct world *world, unsigned actor, unsigned choice);
    void (*always)(const struct world *world); /* or NULL */
    void (*at_end)(const struct world *world);
};

extern unsigned explore_mutant; /* 0: none */

/* What a protocol says about a world; the first sentence that is not true ends the search. */
#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            explore_violation(#condition);                                                         \
        }                                                                                          \
    } while (0)
void explore_violation(const char *text);

/* Explores a mutant, or with 0 the protocol as it is.  The violation found first, or NULL. */
const char *explore(const struct protocol *protocol, enum memory memory, unsigned mutant);

/* Explores the protocol as it is; fails the test, and prints the way, when there is a violation. */
void check_holds(const struct protocol *protocol, enum memory memory);

/* Explores a mutant; fails the test unless `violation` is what is found. */
void check_breaks(const struct protocol *protocol, enum memory memory, unsigned mutant,
                  const char *violation);

/* ---------------------------------------------------------------- what steps are made of */

uint8_t load(const struct world *world, unsigned actor, unsigned cell);
void store(struct world *world, unsigned actor, unsigned cell, unsigned value);
void store_release(struct world *world, unsigned actor, unsigned cell, unsigned value);

/* A read-modify-write of a cell can only be done when this says so; else the step WAITS, until the
 * queue has drained.  A relaxed one waits for stores to its own cell alone, where memory is weak.
 * */
bool can_modify(const struct world *world, unsigned actor, unsigned cell);
bool can_modify_relaxed(const struct world *world, unsigned actor, unsigned cell);
bool compare_and_swap(struct world *world, unsigned cell, unsigned expected, unsigned desired);
uint8_t exchange(struct world *world, unsigned cell, unsigned value);

/* The child of a fork by `survivor`: all others are where `gone` says, their queues dropped. */
void fork_child(struct world *world, unsigned survivor, unsigned gone);

#endif
