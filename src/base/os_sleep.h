/* SPDX-License-Identifier: MIT
 *
 * os_sleep.h - threads of this process that sleep in the kernel: which, where, and since when.
 *
 * Raw system calls as in os.h: nothing allocates, takes a lock of libc or touches errno.
 *
 * Threads     All functions may be called from any thread.
 */
#pragma once

#include "base/os.h"

/* A sleep of a thread.  Two looks that agree in all of this saw the same sleep: the thread has run
 * nothing in between. */
struct os_sleep {
    uint64_t switches; /* times the thread has left a processor until now */
    uint64_t call;     /* the system call it waits in */
    uintptr_t sp, pc;  /* where it will go on; its stack is in use from `sp` on */
};

/*
 * False unless the thread is seen to wait in a system call, and one whose caller alone uses its
 * thread-local data meanwhile, which is not so for vfork.  False also where the kernel does not
 * tell, or counts threads differently from us.
 */
bool os_look_at_sleep(uint32_t thread, struct os_sleep *sleep);

/* When this returns true, every thread of the process has either passed a memory barrier since the
 * call, or will before it runs again.  The first call of a process may take milliseconds. */
bool os_fence_threads(void);

/*
 * Has a signal handler been called between `sp` and the end of the stack, and not returned?  The
 * stack of a thread that sleeps ends at `end`, or where nothing can be read.  True also where that
 * is too far away to tell.
 */
bool os_stack_has_handler(uintptr_t sp, uintptr_t end);
