/* SPDX-License-Identifier: MIT
 *
 * guard.h - the front door of guard/, the room for everything that deals with misuse.
 *
 * The fast path tests an address and the heap judges it (heap_look).  Whatever else is done about
 * misuse belongs here:
 *
 *      report.c    what went wrong, in one sentence, before the process ends
 *      fill.c      bytes that are written over new and freed memory, so that a wrong read shows
 *
 * So would redzones, a quarantine of freed objects, and modes that switch several measures on: each
 * a file of its own, with the functions that api/slow.h calls declared here.  A measure must cost a
 * program that does not ask for it no more than one test in a slow call.
 *
 * Threads     No function takes a lock or allocates.
 */
#pragma once

#include "heap/heap.h"
#include "opt/opt.h"

/* Says in one sentence what is wrong with an address passed to `function`, and ends the process. */
_Noreturn void guard_refuse(const char *function, const void *address,
                            const struct heap_object *object);

/* The same for a live object freed with the size of another. */
_Noreturn void guard_refuse_size(const char *function, const void *address,
                                 const struct heap_object *object, size_t size, size_t expected);

/* The same for an explicit cache that does not exist. */
_Noreturn void guard_refuse_cache(unsigned number);

/* Before a call returns an error: ends the process if the option xmalloc says so. */
void guard_fail(const char *function, int error);

/*
 * The options junk and zero fill memory when it is allocated or freed.  Both park all threads
 * (opt_sources.c), so only slow calls come here, and without the options each costs one comparison.
 * The whole usable size is filled.  What a signal handler allocates while it interrupts the allocator
 * is not filled.
 */
void fill_new_bytes(void *object, size_t from, bool *zeroed);
void fill_freed_bytes(const struct heap_object *object);

/* Fills a new object, or what a resized one has beyond its first `from` bytes.  The object may be
 * NULL.  `*zeroed` says, before and after, whether all of it reads as zeros. */
static inline void fill_new(void *object, size_t from, bool *zeroed) {
    if (UNLIKELY((opt.junk | opt.zero) != 0)) {
        fill_new_bytes(object, from, zeroed);
    }
}

/* Makes a new object, which nobody but fill_new has written to, read as zeros. */
void fill_zeros(void *object, size_t bytes);

/* Fills an object that is about to be freed, if heap_look found a live one. */
static inline void fill_freed(const struct heap_object *object) {
    if (UNLIKELY(opt.junk != JUNK_FALSE)) {
        fill_freed_bytes(object);
    }
}
