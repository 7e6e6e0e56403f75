/* SPDX-License-Identifier: MIT
 *
 * rack.h - where handlers leave samples for the writer: slots, taken and emptied in any order.
 *
 *      taken   1 1 1 0 0 ...    a handler takes the lowest that is free
 *      ready   0 1 0 0 0 ...    it has filled it; the writer empties it, and it is free again
 *
 * The order of samples does not matter, so this is no ring, and where few samples wait, few slots are ever
 * touched.
 *
 * Threads     rack_take and rack_give take no lock, never wait, and are for signal handlers.  rack_empty is the
 *             writer's.
 */
#pragma once

#include "stack/stack.h"

enum { RACK_DEPTH = 254, RACK_SLOTS = 2048 };

struct rack_slot {
    uint32_t number; /* its own */
    uint32_t thread; /* of threads.h; 0: by its id */
    uint32_t id;     /* the kernel's number of the thread; 0: it is known */
    uint32_t weight; /* samples that it stands for */
    uint32_t count;  /* addresses */
    bool met_unknown;
    uintptr_t addresses[RACK_DEPTH];
    struct code_room room;
};

/* Before any handler runs; false without memory. */
bool rack_make(void);

/* NULL when all are taken. */
struct rack_slot *rack_take(void);

/* It is filled.  True when enough slots are filled that the writer should come. */
bool rack_give(struct rack_slot *slot);

/* Calls a function for each filled slot, and returns how many there were. */
unsigned rack_empty(void (*visit)(struct rack_slot *slot));

/* It was not filled. */
void rack_put_back(struct rack_slot *slot);

/* While no handler runs: all are free. */
void rack_clear(void);
