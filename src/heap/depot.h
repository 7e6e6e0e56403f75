/* SPDX-License-Identifier: MIT
 *
 * depot.h - free objects in waiting, in magazines, shared by all threads, one depot per class.
 *
 * A thread that frees what another allocates leaves full magazines here and the other takes them:
 * one short lock per magazine, no work per object.  The same serves a single thread whose bursts go
 * beyond its own magazines.
 *
 * Threads     One lock per class; all functions may be called from any thread.
 */
#pragma once

#include "heap/magazine.h"

struct verify;

void depot_init(void);

/* An empty magazine, or NULL without memory; and the way back. */
struct magazine *depot_new_magazine(void);
void depot_return_magazine(struct magazine *empty);

/*
 * Takes the objects in slots[0..count) of a magazine away, into the depot or, when the depots hold
 * enough, into the slabs.  Returns an empty magazine, which may be the same.
 */
struct magazine *depot_put(unsigned size_class, struct magazine *magazine, unsigned count);

/*
 * Adds up to `most` waiting objects, the last ones put first, to the `count` that stand in
 * slots[0..) of `*magazine`; an empty magazine may be exchanged.  Returns how many were added.
 */
unsigned depot_take(unsigned size_class, struct magazine **magazine, unsigned count, unsigned most);

/* Drains all depots into the slabs. */
void depot_drain_all(void);

/* The same if they hold more than their share of the heap.  Every object drained took a free to get
 * there, so frequent calls cost little. */
void depot_drain_surplus(void);

/* To be called now and then: drains what nobody needed since the last call, so that depots nobody
 * uses are empty after two of them.  True while something waits: call again later. */
bool depot_tick(void);
enum { DEPOT_TICK_MS = 100 };

/* Is this object waiting in the depot of the class? */
bool depot_holds(unsigned size_class, const void *object);

/* Checks every depot and the pool and, as the last of all caches, that no magazine is lost. */
void depot_verify(struct verify *walk);
