/* SPDX-License-Identifier: MIT
 *
 * snapshot.h - one copy of every counter, which mallctl's epoch and the statistics renew.
 *
 * Threads     A refresh takes no lock while it counts and a short one while it copies.  What the
 *             pointers lead to stays mapped; it changes when another thread refreshes meanwhile.
 */
#pragma once

#include "control/control.h"
#include "heap/counts.h"

/* Indices that stand for several arenas. */
enum { SNAPSHOT_ALL = 4096, SNAPSHOT_DESTROYED = 4097 };

/* Locks other than those of arenas, by jemalloc's names; of these tally has the one called ctl. */
enum { SNAPSHOT_LOCKS = 9 };
extern const char *const snapshot_lock_names[SNAPSHOT_LOCKS] HIDDEN;
extern const char *const snapshot_arena_lock_names[ARENA_MUTEXES] HIDDEN;

/* Reads all counters anew.  False without memory: then some are older than others. */
bool snapshot_refresh(void);

/* The same, unless it was done before. */
bool snapshot_start(void);

/* Number of refreshes. */
uint64_t snapshot_epoch(void);

/* One more than the largest arena index that was ever in use. */
unsigned snapshot_arenas(void);

const struct total_counts *snapshot_totals(void);
struct control_background snapshot_background(void);
const struct mutex_counts *snapshot_lock(unsigned lock);

/* The counters of an arena, of all together (SNAPSHOT_ALL, or the index snapshot_arenas()), or of
 * those destroyed.  NULL if there was no such arena at the last refresh. */
const struct arena_counts *snapshot_arena(size_t arena);

/* Copies `size` bytes from within one of the structs above while nobody refreshes it. */
void snapshot_copy(void *to, const void *from, size_t size);

/* An arena was made or destroyed: the number of arenas changes at once, its counters at the next
 * refresh. */
void snapshot_note_made(unsigned arena);
void snapshot_note_destroyed(unsigned arena);

/* Resets the counters of locks. */
void snapshot_reset_locks(void);
