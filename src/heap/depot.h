/* SPDX-License-Identifier: MIT
 *
 * depot.h - free objects in waiting, in magazines: one depot for each class of an automatic arena.
 *
 * Objects wait in the depot of the arena that their slab belongs to, so threads of different arenas
 * get no objects of one cache line.  A thread that frees what another allocates leaves many at a
 * time here and the other takes them: one short lock for all.  The same serves a single thread
 * whose bursts go beyond its own magazines.
 *
 * Threads     One lock per arena and class; all functions may be called from any thread.
 */
#pragma once

#include "heap/magazine.h"

struct verify;

/*
 * Takes `count` objects away, into the depots of the arenas they belong to or, where these hold
 * enough, into the slabs.  It costs least where most of them are of `arena`, that of the caller.
 */
void depot_put(unsigned arena, unsigned size_class, void **slots, unsigned count);

/* Moves up to `most` waiting objects of the arena, the last ones put first, to slots[0..), and
 * returns how many. */
unsigned depot_take(unsigned arena, unsigned size_class, void **slots, unsigned most);

/* Drains all depots into the slabs. */
void depot_drain_all(void);

/* The same for those of one arena, if they hold more than their share of the heap.  Every object
 * drained took a free to get there, so frequent calls cost little. */
void depot_drain_surplus(unsigned arena);

/* To be called now and then: drains what nobody needed since the last call, so that depots nobody
 * uses are empty after two of them.  True while something waits: call again later. */
bool depot_tick(void);
enum { DEPOT_TICK_MS = 100 };

/* Is this object waiting in a depot of the class? */
bool depot_holds(unsigned size_class, const void *object);

/* Checks every depot. */
void depot_verify(struct verify *walk);
