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

/* Walks the heap and checks it; ends the process with a message when something is broken.  No other
 * thread may allocate or free meanwhile. */
void tally_verify(void);

/* "0.1.0" */
const char *tally_version(void);

#ifdef __cplusplus
}
#endif

#endif
