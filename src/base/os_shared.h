/* SPDX-License-Identifier: MIT
 *
 * os_shared.h - memory with a name that other processes of the user can read, and nobody can change.
 *
 * It is a memfd.  Others find it under /proc/PID/fd, where the kernel asks of them what it asks of a
 * debugger that only looks.  Its descriptor has a high number, is closed on exec and never used again
 * after the start: a program that closes it, or puts another file in its place, takes the memory away
 * from readers and from nobody else.
 *
 * Threads     All functions may be called from any thread.
 */
#pragma once

#include "base/common.h"

struct os_shared {
    void *start; /* NULL: there is none */
    size_t bytes;
    int fd;
    uint64_t device, inode; /* by which the descriptor is known */
};

/* Zeroed memory of this name and size, mapped for writing, then sealed: from now on nobody can make it
 * shorter or longer, write to it or map it for writing (the last two from Linux 5.1 on).  0, or -errno
 * with nothing left behind. */
int os_shared_make(struct os_shared *made, const char *name, size_t bytes);

/* Unmaps the memory and closes the descriptor, if that still leads to it. */
void os_shared_leave(struct os_shared *shared);

/* Moves a descriptor to a number that programs hardly use: 512 or more, or less where the limit demands
 * it, but never below 3.  The new number, or -errno with the descriptor closed; a copy leaves it open. */
int os_copy_high(int fd);
int os_move_high(int fd);

/* What a descriptor leads to; false where it is not open. */
bool os_inode_of(int fd, uint64_t *device, uint64_t *inode);
