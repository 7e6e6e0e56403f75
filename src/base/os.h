/* SPDX-License-Identifier: MIT
 *
 * os.h - everything the library asks of the kernel, each call with its contract.
 *
 * Only os_linux.c implements these, with raw system calls: nothing here is a cancellation point,
 * touches errno unless its name says so, or can call back into malloc.  Tests replace single functions
 * at link time (-Wl,--wrap=os_commit) to make the kernel refuse.
 *
 * Threads     All functions may be called from any thread.
 */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "base/common.h"

/* Facts about the process, read by os_init(). */
struct os_facts {
    size_t page_bytes;   /* 4, 16 or 64 KiB */
    uint64_t random;     /* 64 bits the kernel chose for this process */
    bool secure;         /* set-uid and the like: the environment must not act */
    bool must_be_silent; /* descriptor 2 was closed at start: it may become any file */
    uint64_t error_device, error_inode; /* what it led to */
    bool confined;                      /* os_is_confined at start */
    bool no_new_privileges;             /* the mark of a sandbox, which may forbid system calls */
    uint32_t cpus;                      /* CPUs this process may run on, at least 1 */
    /* RLIMIT_AS is finite: reserve nothing ahead.  The one fact that may change: a limit that comes
     * later is noticed when the kernel refuses memory. */
    _Atomic bool address_space_limited;
};
extern struct os_facts os_facts HIDDEN;

/* Reads the facts.  Needs no file descriptor and no memory; may be called again. */
void os_init(void);

/* Is RLIMIT_AS finite now? */
bool os_address_space_is_limited(void);

/* The value of an environment variable, or NULL.  Works before libc has set up `environ`. */
const char *os_environment(const char *name);

/* Puts a copy of `name=value` into the environment of this program and of those it starts.  Nothing happens before
 * libc knows the environment, or without memory. */
void os_add_environment(const char *entry);

/* The text of a symbolic link, without an end, cut at `bytes`.  Its length, or -errno. */
int os_read_link(const char *path, char *text, size_t bytes);

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

/* Lets the kernel take the memory when it is short of some, or takes it at once where there is no
 * such offer.  What the addresses hold until they are written to is not known.  0 or -errno. */
int os_purge_lazily(void *start, size_t bytes);

/*
 * Moves the pages of `from` to `to`, in place of what is mapped there, without copying.  The source
 * keeps its addresses and reads as zeros.  Otherwise -errno, with the source as it was and anything
 * at the destination: -ENOTSUP where it can never work, -EPERM for memory the program has locked,
 * -EADDRNOTAVAIL when the addresses of the destination are lost: they may be somebody else's.
 */
int os_move(void *to, void *from, size_t bytes);

/* Puts new memory in place of what is mapped there, so that the kernel joins it with the mappings
 * beside it; it reads as zeros.  Otherwise -errno, with anything there, or -EADDRNOTAVAIL as above. */
int os_renew(void *start, size_t bytes);

/*
 * Calls that the program makes for itself, with its own arguments: what the kernel answers, where numbers
 * for which os_is_error holds are -errno.  The last is libc's, which keeps a copy of the end: the old end,
 * or -1 with errno set.
 */
enum { OS_REMAP_HAS_ADDRESS = 6, OS_REMAP_KEEPS_OLD = 4 }; /* among the flags */
struct os_map_call {
    void *start;
    size_t bytes;
    int protection, flags, fd;
    int64_t offset;
};
struct os_remap_call {
    void *old;
    size_t old_bytes, bytes;
    int flags;
    void *start; /* if the flags say that there is one */
};
intptr_t os_map_for_program(const struct os_map_call *call);
intptr_t os_remap_for_program(const struct os_remap_call *call);
void *os_break_for_program(intptr_t increment);

static inline bool os_is_error(intptr_t answer) {
    return (uintptr_t)answer > (uintptr_t)-4096;
}

/* Asks the kernel to use huge pages here, or not to.  Advice: nothing depends on it. */
void os_advise_huge(void *start, size_t bytes, bool huge);

/* From now on the pages read as zeros in the child of a fork.  0 or -errno. */
int os_wipe_on_fork(void *start, size_t bytes);

/* Sleeps while `*word == expected`; may wake for no reason.  os_wake() wakes one sleeper. */
void os_wait(_Atomic uint32_t *word, uint32_t expected);

/* The same for at most this number of milliseconds. */
void os_wait_ms(_Atomic uint32_t *word, uint32_t expected, uint64_t ms);
void os_wake(_Atomic uint32_t *word);

/* Milliseconds since some point in the past; coarse, and never backwards. */
uint64_t os_now_ms(void);

/* Nanoseconds since the same point, exactly. */
uint64_t os_now_ns(void);

/* Nanoseconds since 1970 by the clock on the wall. */
uint64_t os_wall_ns(void);

uint32_t os_process_id(void);

/* True in the first thread of a process: the one that main runs in, or the one that forked. */
bool os_is_first_thread(void);

/* The name the kernel knows this thread by. */
void os_thread_name(char name[16]);

/* Can 8 bytes be read there?  A system call, which answers for any address. */
bool os_is_readable(uintptr_t address);

/* Where the program headers of the program itself are; 0 when the kernel does not tell. */
uintptr_t os_program_headers(void);

/* Where the first thread's stack ends, as far as libc tells; or 0. */
uintptr_t os_first_stack_end(void);

/* The CPU this thread runs on now.  A hint: it may be stale or out of range at once. */
uint32_t os_current_cpu(void);

/* libc's errno of this thread, for code that calls functions of the program and must restore errno after
 * that. */
int os_error(void);
void os_set_error(int error);

/* Writes all of `text` to a descriptor; errors are ignored, there is nobody to tell. */
void os_write(int fd, const char *text, size_t length);

/*
 * Files.  Descriptors are closed on exec, have high numbers where the limit allows, and never 0, 1 or 2, so
 * that what the program prints after it has closed one of those goes into no file of ours.  All give -errno when
 * they fail.
 */

/* A descriptor to read from, or one of a new file of mode 0600: -EEXIST for whatever has that name,
 * a link without a target included. */
int os_open(const char *path);
int os_open_at_once(
    const char *path); /* a pipe's other end is not waited for, also when it is read */
int os_create(const char *path);

/* A descriptor that writes at the end of an existing file; links are not followed. */
int os_append(const char *path);

/*
 * A descriptor that writes to what a program has named: a file of this user, itself and not a link, that has no
 * other name; the null device; or, for /dev/fd/N and its synonyms, a copy of the process's own descriptor N, which
 * must be open for writing (-EBADF).  -ENOENT where there is nothing, -EEXIST for anything else that is there.
 * Nothing is changed yet; a file may be cut to 0 bytes, the others may not.
 */
int os_open_given(const char *path, bool *is_file);

/* Which file it is, whatever its name; cuts it to this number of bytes. */
struct os_identity {
    uint64_t device, inode, bytes;
};
int os_identify(int fd, struct os_identity *identity);
int os_truncate(int fd, uint64_t bytes);

/* Would a tenth of the disk stay free if this number of bytes were written?  0, or -OS_LITTLE_ROOM: no call on a
 * file gives this code.  0 also for what is on no disk, and where the kernel does not tell. */
enum { OS_LITTLE_ROOM = 63 };
int os_check_room(int fd, uint64_t bytes);
int os_close(int fd);

/* Bytes read, 0 at the end of the file; the second from an offset, which is an address where the
 * file is /proc/self/mem. */
ssize_t os_read(int fd, void *bytes, size_t capacity);
ssize_t os_read_at(int fd, void *bytes, size_t capacity, uint64_t offset);

/* Writes all; raises no signal, not for a broken pipe either. */
int os_write_all(int fd, const void *bytes, size_t length);

/* Gives a file another name that must be free; removes a name. */
int os_rename(const char *from, const char *to);
int os_remove(const char *path);

/* The same, replacing a file that has the name. */
int os_replace(const char *from, const char *to);

/* Is it a file of this user, itself and not a link, that has no other name? */
bool os_is_own_file(const char *path);

/* Does anything have this name, even a link to nothing? */
bool os_exists(const char *path);

/* The beginning of a file as a string of up to `capacity` - 1 characters; its length or -errno. */
int os_read_file(const char *path, char *text, size_t capacity);

/* Ends the process at once: no handlers, no destructors. */
_Noreturn void os_exit(int status);

/* Ends the process with SIGABRT, after the program's own handler if it has one. */
_Noreturn void os_abort(void);
