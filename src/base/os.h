/* SPDX-License-Identifier: MIT
 *
 * os.h - everything the library asks of the kernel, each call with its contract.
 *
 * Only os_linux.c implements these, with raw system calls: nothing here is a cancellation point,
 * touches errno, or can call back into malloc.  Tests replace single functions at link time
 * (-Wl,--wrap=os_commit) to make the kernel refuse.
 *
 * Threads     All functions may be called from any thread.
 */
#pragma once

#include "base/common.h"

/* Facts about the process, fixed at os_init(). */
struct os_facts {
    size_t page_bytes;          /* 4, 16 or 64 KiB */
    uint64_t random;            /* 64 bits the kernel chose for this process */
    bool secure;                /* set-uid and the like: the environment must not act */
    bool address_space_limited; /* RLIMIT_AS is finite: do not reserve gigabytes */
    uint32_t cpus;              /* CPUs this process may run on, at least 1 */
};
extern struct os_facts os_facts HIDDEN;

/* Reads the facts.  Needs no file descriptor and no memory; may be called again. */
void os_init(void);

/* The value of an environment variable, or NULL.  Works before libc has set up `environ`. */
const char *os_environment(const char *name);

/* Zeroed, readable and writable memory, page aligned.  NULL when the kernel refuses. */
void *os_map(size_t bytes);

/* Addresses without memory behind them, near `hint` if that is free.  NULL when refused. */
void *os_reserve(void *hint, size_t bytes);

/* Readable zeros without memory behind them; os_commit() makes parts writable.  NULL: refused. */
void *os_reserve_readable(size_t bytes);

/* Makes reserved addresses usable.  0, or -errno with nothing changed. */
int os_commit(void *start, size_t bytes);

/* Gives addresses and memory back.  0 or -errno (then they stay as they were). */
int os_unmap(void *start, size_t bytes);

/* Gives the memory back and keeps the addresses; they read as zeros when this returns 0.  -errno
 * otherwise: always -ENOTSUP where a first try shows that the kernel only claims to do it. */
int os_purge(void *start, size_t bytes);

/* Sleeps while `*word == expected`; may wake for no reason.  os_wake() wakes one sleeper. */
void os_wait(_Atomic uint32_t *word, uint32_t expected);
void os_wake(_Atomic uint32_t *word);

/* Milliseconds since some point in the past; coarse, and never backwards. */
uint64_t os_now_ms(void);

/* The CPU this thread runs on now.  A hint: it may be stale or out of range at once. */
uint32_t os_current_cpu(void);

/* Writes all of `text` to a descriptor; errors are ignored, there is nobody to tell. */
void os_write(int fd, const char *text, size_t length);

/* Ends the process with SIGABRT, after the program's own handler if it has one. */
_Noreturn void os_abort(void);
