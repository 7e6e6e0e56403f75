/* SPDX-License-Identifier: MIT
 *
 * os_socket.h - a socket in a directory that is the user's alone, and what comes through it.
 *
 * Messages are whole (SOCK_SEQPACKET).  Descriptors are closed on exec, do not block, and have high
 * numbers (os_shared.h).  All functions give -errno when they fail, and raise no signal.
 *
 * Threads     All functions may be called from any thread.
 */
#pragma once

#include <sys/types.h>

#include "base/common.h"

/* The effective user, and whether the process may tell the user what is in its memory: it has no rights
 * that its user does not have, and may be dumped. */
uint32_t os_user(void);
bool os_may_tell_user(void);

/*
 * A descriptor of a directory that belongs to the effective user and that nobody else may enter; the second
 * makes it if there is nothing of this name.  -EPERM for any other, -ENOTDIR for a link; nothing is
 * repaired.
 */
int os_open_private(const char *path);
int os_make_private(const char *path);

/* A socket of this name in that directory, mode 0600, that listens; -EADDRINUSE when there is something of
 * this name.  `*device` and `*inode` are what the name leads to. */
int os_listen(int directory, const char *name, uint64_t *device, uint64_t *inode);

/* Does a socket of this name that is the user's refuse connections?  Then nobody listens to it. */
bool os_is_stale(int directory, const char *name);

/* Removes a name; the second only if it still leads to that file. */
int os_remove_in(int directory, const char *name);
int os_remove_same(int directory, const char *name, uint64_t device, uint64_t inode);

/* The next connection, or -EAGAIN; and who is at the other end, false when the kernel does not tell. */
int os_accept(int fd);
bool os_peer(int fd, uint32_t *pid, uint32_t *user);

/*
 * The next message, cut to `capacity` bytes, and the descriptor that came with it, or -1.  Its length, 0 at
 * the end.  -EMSGSIZE for a message that was cut, -EBADMSG when more than one descriptor came or one could
 * not be had: all of them are closed then.
 */
ssize_t os_receive(int fd, void *bytes, size_t capacity, int *passed);
int os_send(int fd, const void *bytes, size_t length);

/* Ends connecting and waiting: wakes whoever waits for the socket. */
void os_shut(int fd);

/* Is this a regular file or a pipe that may be written to?  0 or -errno. */
int os_check_output(int fd);

/* Writes all before a moment of os_now_ms(); -ETIMEDOUT when a pipe stays full. */
int os_write_before(int fd, const void *bytes, size_t length, uint64_t end_ms);

/* Waits until one of them can be read, or has ended, at most this number of milliseconds; -1: for ever.  Sets
 * what each is.  0, also when a signal came before, or -errno at once. */
struct os_waited {
    int fd; /* -1: none */
    bool is_ready;
    bool has_ended; /* nothing comes any more but what is there */
};
enum { OS_MOST_WAITED = 8 };
int os_wait_for_input(struct os_waited *waited, unsigned count, int ms);
