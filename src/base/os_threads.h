/* SPDX-License-Identifier: MIT
 *
 * os_threads.h - the other threads of this process, and a copy of it.
 *
 * Raw system calls as in os.h: nothing allocates, takes a lock of libc or touches errno.
 *
 * Threads     All functions may be called from any thread.
 */
#pragma once

#include "base/os.h"

/* The kernel's number of this thread.  In handlers, too. */
uint32_t os_thread_id(void);

/* The thread pointer, by which libc finds this thread's own data; it also identifies the thread in memory. */
uintptr_t os_thread_pointer(void);

/* Where libc keeps the addresses of a thread's data by module: an object of the heap, or none; 0: unknown. */
uintptr_t os_thread_vector(uintptr_t pointer);

/* How far behind that pointer libc keeps the number of a thread, 0 once it has ended: 0 where that is not known. */
size_t os_thread_number_offset(void);

/* The stack for signal handlers of this thread, of which the kernel alone may know; 0: none. */
uintptr_t os_alternate_stack(void);

/* Calls `visit` with the number of each thread that /proc lists, the caller's among them, until it answers
 * false.  0 or -errno. */
int os_walk_threads(bool (*visit)(uint32_t thread, void *context), void *context);

struct os_thread_look {
    bool is_gone;        /* it has ended, or ends */
    bool is_unknown;     /* the kernel does not tell, for want of memory or descriptors */
    bool has_run;        /* it has been off a processor before: it is not new */
    bool blocks_signals; /* this one, to be exact */
    bool is_asleep;
};
struct os_thread_look os_look_at_thread(uint32_t thread, int signal);

/* Sends a signal with a number to a thread of this process.  0 or -errno: -ESRCH when it is gone. */
int os_signal_thread(uint32_t thread, int signal, uint64_t number);

/* That number, where the signal came from os_signal_thread in this process. */
bool os_signal_number(const void *info, uint64_t *number);

/* What a handler of signals can tell about the code that it interrupts. */
struct os_interrupted {
    uintptr_t sp; /* its stack was in use from here on, what lies below it for leaves included */
    uintptr_t frame, end; /* where the kernel has put all registers, on that stack or another */
};
struct os_interrupted os_interrupted(const void *context);

/* Blocks all signals that can be blocked in this thread; and restores them. */
void os_block_signals(uint64_t *before);
void os_restore_signals(const uint64_t *before);

void os_sleep_ns(uint64_t ns);

/* As os_wake, for all sleepers. */
void os_wake_all(_Atomic uint32_t *word);

/* Memory that a copy of the process writes to and this process reads.  NULL when the kernel refuses. */
void *os_map_shared(size_t bytes);

/*
 * A copy of this process with this thread alone, which the program does not notice: its end raises no
 * signal, and waits for children do not find it.  0 in the copy, its number here, or -errno.  The copy ends
 * with the thread that made it, and may make system calls only.  It has no descriptors and no real-time priority,
 * and is the first to be killed when memory runs out.
 */
int os_copy_process(void);

/* In the copy: from now on it leaves no core file, and may not open files of its own in /proc. */
void os_forbid_core(void);

/* Has the copy ended?  Then `*status` is as of waitpid, or -1 where somebody else was told. */
bool os_copy_has_ended(int copy, int *status);
void os_kill_copy(int copy);
