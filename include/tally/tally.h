/* SPDX-License-Identifier: MIT
 *
 * tally.h - the public interface of tally, a memory allocator that tells the truth about memory.
 *
 * Programs need no header to use tally: preload libtally.so, or link with -ltally, and malloc and
 * its family come from here.  This header declares the same functions under names of their own, for
 * programs that want tally beside libc's malloc, and a few questions only tally answers.  Programs
 * written for jemalloc have <jemalloc/jemalloc.h> in include/compat.
 *
 * All functions may be called from any thread.
 */
#ifndef TALLY_TALLY_H
#define TALLY_TALLY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TALLY_VERSION "0.1.0"

/*
 * The malloc family.  Each behaves as its namesake in ISO C, POSIX and glibc's manual:
 * - memory is aligned to at least 16 bytes, whatever the size;
 * - a request that cannot be served gives NULL and sets errno to ENOMEM, one above PTRDIFF_MAX too;
 * - success, and tally_free always, leave errno as it was;
 * - tally_realloc(p, 0) frees p and returns NULL.
 * A pointer that is not the start of a live object ends the process with one sentence that says so.
 */
void *tally_malloc(size_t size) __attribute__((malloc, alloc_size(1)));
void tally_free(void *pointer);
void *tally_calloc(size_t count, size_t size) __attribute__((malloc, alloc_size(1, 2)));
void *tally_realloc(void *pointer, size_t size) __attribute__((alloc_size(2)));
void *tally_reallocarray(void *pointer, size_t count, size_t size)
    __attribute__((alloc_size(2, 3)));
int tally_posix_memalign(void **result, size_t alignment, size_t size);
void *tally_aligned_alloc(size_t alignment, size_t size) __attribute__((malloc, alloc_size(2)));
void *tally_memalign(size_t alignment, size_t size) __attribute__((malloc, alloc_size(2)));
void *tally_valloc(size_t size) __attribute__((malloc, alloc_size(1)));
void *tally_pvalloc(size_t size) __attribute__((malloc));

/* Free with the size (and alignment) that was requested; a wrong one ends the process. */
void tally_free_sized(void *pointer, size_t size);
void tally_free_aligned_sized(void *pointer, size_t alignment, size_t size);

/* Usable bytes of the object; constant for its life.  0 for NULL. */
size_t tally_usable_size(void *pointer);

/* Gives memory that the heap does not need back to the kernel; returns the number of bytes. */
size_t tally_purge(void);

/*
 * Where the heap's bytes are.  Every field is in bytes; live + cached + slab_free + large_rest is
 * what spans occupy; together with free_pages_kept and the pages that were given back it is mapped.
 */
struct tally_totals {
    size_t live;            /* held by the program, at usable size */
    size_t cached;          /* free objects in threads' magazines and in depots */
    size_t slab_free;       /* free space inside slabs */
    size_t large_rest;      /* unused ends of large objects: mostly addresses without memory */
    size_t free_pages_kept; /* free pages that may still be resident */
    size_t mapped;          /* addresses the heap has made usable */
    size_t metadata;        /* tally's own descriptors */
};
void tally_totals(struct tally_totals *totals);

/* Bytes the heap holds, which limits are compared with: what spans occupy, free_pages_kept and
 * metadata. */
size_t tally_held(void);

/*
 * Limits on tally_held(), in bytes; 0 means none.  They replace those of the options limit_soft and
 * limit_hard.
 * - A request that would bring the heap above `hard` fails with ENOMEM, after everything that can
 *   be given back was.  It may succeed again after frees.
 * - When the heap grows above `soft`, this thread's caches, the shared ones and the free pages are
 *   given back at once, and the callback of tally_on_soft_limit is called.  Until the heap has
 *   fallen to 15/16 of the limit, pages that become free are given back at once.
 */
void tally_set_limits(size_t soft, size_t hard);

/*
 * Sets the function that is called each time the heap has grown above the soft limit, with the
 * bytes that the heap still holds after giving back.  It is called at the end of an allocation, in
 * the thread that allocates, with no lock of tally held: it may allocate and free, and must return.
 * It is called again only after the heap has fallen to 15/16 of the limit.  NULL, the default, for
 * none.
 */
void tally_on_soft_limit(void (*callback)(size_t held, void *context), void *context);

/*
 * The heap profiler.  It can be switched on at any time in any process; the functions return 0 or
 * an errno value.  docs/manual/profiling.md has the rest, and how profiles are read.
 *
 * tally_profile_start records on average one allocation in `rate` bytes, rounded to a power of two:
 * 1 records all allocations, 0 stands for the option lg_prof_sample, by default 512 KiB.  If
 * allocations were recorded at another rate before, those records are forgotten.  Like all of these
 * functions it returns EBUSY in a signal handler that interrupts the allocator.
 */
int tally_profile_start(size_t rate);

/* Stops recording allocations.  Records are kept, and frees of recorded objects are still noted. */
int tally_profile_stop(void);

/* Forgets all records. */
int tally_profile_reset(void);

/*
 * Writes a profile to a new file of mode 0600, completely or not at all; or over a file that is
 * there, if it belongs to the user of the process and has no other name: it keeps its mode, and is
 * empty after an error in the middle.  /dev/null and /dev/fd/N are written to as well.  The format
 * is profile.proto, unless the name ends in .heap (jemalloc's text), .gperf or .hprof (gperftools'
 * text).  If `path` is NULL, the file gets the next automatic name.  Errors: ENOENT if the profiler
 * was never started, EEXIST if the name is a link, a directory or anything else, EBADF if
 * descriptor N is not open for writing, EPERM in set-uid programs, and any error of the kernel.
 */
int tally_profile_dump(const char *path);

/* The same for the moment when the recorded live objects had the most bytes, since the start or the
 * last reset.  EINVAL if `path` is NULL. */
int tally_profile_dump_peak(const char *path);

enum tally_profile_format {
    TALLY_PROFILE_PROTO,
    TALLY_PROFILE_JEMALLOC,
    TALLY_PROFILE_GPERFTOOLS,
};

/* Writes a profile to a descriptor, which may be a pipe or a socket and stays open. */
int tally_profile_dump_fd(int fd, enum tally_profile_format format);

/*
 * Leaks: objects that were not freed and that no pointer in the program leads to any more.
 * docs/manual/leaks.md has the rest, including checks that need no call.
 *
 * tally_leak_check stops the other threads for a moment, searches for leaks and counts them:
 * definite ones, indirect ones, to which only definite ones lead, and possible ones, to which only
 * pointers into their middle lead; also the objects that are reachable.  Bytes are as requested
 * where allocations are recorded (tally_profile_start(1), or the option leak_check), otherwise
 * rounded up to size classes.  Suppressed leaks are counted apart.
 *
 * `since` is 0, or a moment that tally_leak_mark returned: then only objects allocated and recorded
 * after it count as leaks.  `report` is NULL, or the name of the check in a report on standard
 * error.
 *
 * Returns 0 or an errno value: EBUSY in a signal handler that interrupts the allocator, EAGAIN if
 * the check could not be made now.  Nothing is counted then; if a report was asked for, one line
 * says why.
 */
struct tally_leaks {
    size_t definite_objects, definite_bytes;
    size_t indirect_objects, indirect_bytes;
    size_t possible_objects, possible_bytes;
    size_t reachable_objects, reachable_bytes;
    size_t suppressed_objects, suppressed_bytes;
    unsigned long long pause_ns; /* for which the other threads were stopped */
};
unsigned long long tally_leak_mark(void);
int tally_leak_check(struct tally_leaks *leaks, unsigned long long since, const char *report);

/*
 * What the calling thread allocates between the two calls is no leak, nor is what only such objects
 * lead to.  The calls nest.
 */
void tally_leak_disable(void);
void tally_leak_enable(void);

/*
 * tally_leak_ignore: the live object at or around `pointer` is no leak, nor is anything it leads
 * to.  tally_leak_unignore takes that back.  EINVAL if there is no such object, if it is already
 * ignored, or if it is not ignored, respectively.
 */
int tally_leak_ignore(const void *pointer);
int tally_leak_unignore(const void *pointer);

/* Adds a region of memory to search for pointers, or removes it, by the same start and size.
 * ENOMEM; EINVAL for an empty region, or one that was not added. */
int tally_leak_add_root(const void *start, size_t bytes);
int tally_leak_remove_root(const void *start, size_t bytes);

/*
 * The control socket, through which the user of the process, and root, may inspect and steer it
 * with the command `tally`; docs/manual/control.md has the rest.  The option control opens it, or
 * this call: for reading only, or also for making changes.  Returns 0 or an errno value: EPERM in
 * set-uid programs, where the option control:off forbids it, and where no directory is the user's
 * alone; EALREADY if the socket is open.
 */
enum tally_control { TALLY_CONTROL_READ = 1, TALLY_CONTROL_WRITE = 2 };
int tally_control_start(enum tally_control rights);
int tally_control_stop(void);

/* Walks the heap and checks it; ends the process with a message when something is broken.  No other
 * thread may allocate or free meanwhile. */
void tally_verify(void);

/* "0.1.0" */
const char *tally_version(void);

#ifdef __cplusplus
}
#endif

#endif
