/* SPDX-License-Identifier: MIT
 *
 * own.h - the threads that the library has made for itself, and how they are kept from working; its memory
 * that looks like the program's.
 *
 * They block all signals, so they cannot be stopped as the program's are (leak/stop.h).  Instead each works
 * between own_begin and own_end only, where it may hold locks and change the heap, and waits there while the
 * gate is closed.
 *
 * Threads     own_close and own_open by one thread at a time; the rest by the threads of the library.
 */
#pragma once

#include "base/common.h"

/* The caller is one of ours from now on, or until it ends. */
void own_enroll(void);
void own_leave(void);

/* Around whatever touches the heap.  A thread that is not enrolled may call them, too. */
void own_begin(void);
void own_end(void);

/* Closes the gate and waits, for at most this number of milliseconds, until nobody but perhaps the caller works.
 * False, with the gate open, when somebody still does. */
bool own_close(uint64_t most_ms);
void own_open(void);

/* In the child of a fork, where none of them exists. */
void own_forked(void);

/* Is this thread one of ours?  Then what it has left on its stack begins at `*sp`. */
bool own_find(uint32_t thread, uintptr_t *sp, uintptr_t *pointer);

/* Memory of ours that is never unmapped and holds copies of the program's words.  A leak check must not take these
 * copies for pointers that keep objects alive. */
void own_memory(const void *start, size_t bytes);
void own_walk_memory(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);
