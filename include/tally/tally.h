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

/* Free with the size (and alignment) the object was requested with; a wrong one ends the process. */
void tally_free_sized(void *pointer, size_t size);
void tally_free_aligned_sized(void *pointer, size_t alignment, size_t size);

/* Bytes that may be used behind the pointer; constant for the life of the object.  0 for NULL. */
size_t tally_usable_size(void *pointer);

/* Gives what the heap does not need back to the kernel.  Returns the bytes that went. */
size_t tally_purge(void);

/*
 * Where the heap's bytes are.  Every field is in bytes; live + cached + slab_free + large_rest is
 * what spans occupy, and with free_pages_kept and what was given back it makes up mapped.
 */
struct tally_totals {
    size_t live;            /* held by the program, at usable size */
    size_t cached;          /* free objects in threads' magazines and in depots */
    size_t slab_free;       /* free space inside slabs */
    size_t large_rest;      /* unused ends of large objects; addresses, hardly memory */
    size_t free_pages_kept; /* free pages that may still be resident */
    size_t mapped;          /* addresses the heap has made usable */
    size_t metadata;        /* tally's own descriptors */
};
void tally_totals(struct tally_totals *totals);

/* Bytes the heap holds: what spans occupy, free_pages_kept and metadata.  Limits are compared with
 * this. */
size_t tally_held(void);

/*
 * Limits on tally_held(), in bytes; 0 means none.  They replace those of the options limit_soft and
 * limit_hard.
 * - A request that would bring the heap above `hard` fails with ENOMEM, after everything that can be
 *   given back was.  It may succeed again after frees.
 * - When the heap grows above `soft`, this thread's caches, the shared ones and the free pages are
 *   given back at once, and the callback of tally_on_soft_limit is called.  Until the heap has
 *   fallen to 15/16 of the limit, pages that become free are given back at once.
 */
void tally_set_limits(size_t soft, size_t hard);

/*
 * Has `callback` called each time the heap grows above the soft limit, with the bytes it still holds
 * after giving back.  The call comes at the end of an allocation or a free, in the thread that made
 * it, with no lock of tally held: the callback may allocate and free, and must return.  The heap has
 * to fall to 15/16 of the limit before it is called again.  NULL for nobody, as at the start.
 */
void tally_on_soft_limit(void (*callback)(size_t held, void *context), void *context);

/*
 * The heap profiler.  It can be switched on at any time in any process; the functions return 0 or an
 * errno value.  docs/manual/profiling.md has the rest, and how profiles are read.
 *
 * tally_profile_start records one allocation in about every `rate` bytes, rounded to a power of two: 1
 * records all of them, 0 means what the option lg_prof_sample says, 512 KiB if nothing.  Where sampling
 * is on already with another rate, what was recorded is forgotten.  EBUSY in a signal handler that
 * interrupts the allocator, as for all of these functions.
 */
int tally_profile_start(size_t rate);

/* Records no more.  What was recorded is kept, and the frees of recorded objects are still seen. */
int tally_profile_stop(void);

/* Forgets what was recorded. */
int tally_profile_reset(void);

/*
 * Writes a profile to a new file of mode 0600, completely or not at all.  Its format is profile.proto,
 * unless the name ends in .heap (jemalloc's text), .gperf or .hprof (gperftools' text).  NULL: the next automatic name.  ENOENT when the profiler was never
 * started, EEXIST when there is such a file, EPERM in set-uid programs, and what the kernel says.
 */
int tally_profile_dump(const char *path);

/* The same of the moment when most bytes were recorded and alive, since the start or the last reset.  The
 * path is not NULL: EINVAL. */
int tally_profile_dump_peak(const char *path);

enum tally_profile_format {
    TALLY_PROFILE_PROTO,
    TALLY_PROFILE_JEMALLOC,
    TALLY_PROFILE_GPERFTOOLS,
};

/* The same to a descriptor that is open for writing, a pipe or a socket also; it stays open. */
int tally_profile_dump_fd(int fd, enum tally_profile_format format);

/*
 * Leaks: objects that the program holds and nothing in it leads to any more.  docs/manual/leaks.md has the
 * rest, and checks that need no call.
 *
 * tally_leak_check holds other threads up for a moment, looks for them and tells how many there are: definite
 * ones, those that only definite ones lead to, those to which only pointers into their middle lead, and what
 * is reachable.  Bytes are as asked for where allocations are recorded (tally_profile_start(1), or the option
 * leak_check), otherwise rounded up to size classes.  What rules suppress is not among them.
 *
 * `since` is 0, or a moment of tally_leak_mark: then leaks are only what was allocated and recorded after it.
 * `report` is NULL, or the name of the check in a report on standard error.
 *
 * 0 or an errno value: EBUSY in a signal handler that interrupts the allocator, EAGAIN where the check could
 * not be made now; nothing is counted then, and one line says why if there is to be a report.
 */
struct tally_leaks {
    size_t definite_objects, definite_bytes;
    size_t indirect_objects, indirect_bytes;
    size_t possible_objects, possible_bytes;
    size_t reachable_objects, reachable_bytes;
    size_t suppressed_objects, suppressed_bytes;
    unsigned long long pause_ns; /* for which other threads were held up */
};
unsigned long long tally_leak_mark(void);
int tally_leak_check(struct tally_leaks *leaks, unsigned long long since, const char *report);

/*
 * What the calling thread allocates in between is no leak, nor is what only that leads to.  They nest.
 */
void tally_leak_disable(void);
void tally_leak_enable(void);

/*
 * The live object that the pointer leads to or into is no leak, nor is what it leads to; or is one again.
 * EINVAL where there is no such object, or where it was ignored already, or was not.
 */
int tally_leak_ignore(const void *pointer);
int tally_leak_unignore(const void *pointer);

/* Memory of the program's own that is to be searched for pointers, until it is removed by the same start and
 * size.  ENOMEM, and EINVAL where there is no such region. */
int tally_leak_add_root(const void *start, size_t bytes);
int tally_leak_remove_root(const void *start, size_t bytes);

/*
 * The control socket, on which the user of the process, and root, may look in and steer with the command
 * `tally`; docs/manual/control.md has the rest.  It is opened by the option control, or by this call: to
 * look only, or also to change something.  0 or an errno value: EPERM in set-uid programs, where the option
 * control:off forbids it, and where no directory is the user's alone; EALREADY when it is open.
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
