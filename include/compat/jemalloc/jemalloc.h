/* SPDX-License-Identifier: MIT
 *
 * jemalloc.h - jemalloc's public interface, served by tally.
 *
 * A program written for jemalloc 5.3 compiles against this header unchanged and links with -ltally.
 * The numbers below are compiled into programs, so they are jemalloc's own: a program that was
 * compiled against jemalloc's header runs under tally as well, preloaded.
 *
 *      cc -I<tally>/include/compat program.c -ltally
 *
 * Every function is there twice, mallctl as well as je_mallctl, and both are the same.  A library
 * built with -DTALLY_PREFIX=my_ has my_mallctl and no other; compile with the same definition.
 *
 * JEMALLOC_MANGLE        Plain names become those with the prefix, for programs that want tally
 *                        beside libc's malloc without changing their calls.
 * JEMALLOC_NO_DEMANGLE   je_ names work in any case, so this only matters with another prefix, to
 *                        which it leads them.
 *
 * What differs from jemalloc: docs/manual/jemalloc.md.
 */
#ifndef JEMALLOC_H_
#define JEMALLOC_H_

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <strings.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the interface. */
#define JEMALLOC_VERSION "5.3.1-0-g0000000000000000000000000000000000000000"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 1
#define JEMALLOC_VERSION_NREV 0
#define JEMALLOC_VERSION_GID "0000000000000000000000000000000000000000"
#define JEMALLOC_VERSION_GID_IDENT 0000000000000000000000000000000000000000

/* Words that programs written for jemalloc use in declarations of their own. */
#define JEMALLOC_ATTR(attributes) __attribute__((attributes))
#define JEMALLOC_EXPORT JEMALLOC_ATTR(visibility("default"))
#define JEMALLOC_ALIGNED(bytes) JEMALLOC_ATTR(aligned(bytes))
#define JEMALLOC_ALLOC_SIZE(which) JEMALLOC_ATTR(alloc_size(which))
#define JEMALLOC_ALLOC_SIZE2(which, other) JEMALLOC_ATTR(alloc_size(which, other))
#define JEMALLOC_NOINLINE JEMALLOC_ATTR(noinline)
#define JEMALLOC_NOTHROW JEMALLOC_ATTR(nothrow)
#define JEMALLOC_SECTION(name) JEMALLOC_ATTR(section(name))
#define JEMALLOC_RESTRICT_RETURN
#define JEMALLOC_ALLOCATOR
#define JEMALLOC_USABLE_SIZE_CONST

/* libc's headers declare some of these functions as well, and in C++ the two must agree. */
#if defined(__cplusplus) && __cplusplus >= 201103L
#define JEMALLOC_SYS_NOTHROW noexcept
#elif defined(__cplusplus)
#define JEMALLOC_SYS_NOTHROW throw()
#else
#define JEMALLOC_SYS_NOTHROW
#endif
#define JEMALLOC_CXX_THROW JEMALLOC_SYS_NOTHROW

/* ---------------------------------------------------------------- flags
 *
 *      bit 31........20 19...........8  7   6   5....0
 *          arena+1      tcache+2        -  ZERO lg_align       a field of 0: nothing was asked for
 */
#define MALLOCX_LG_ALIGN(lg_alignment) ((int)(lg_alignment))
#define MALLOCX_ALIGN(alignment) (__builtin_ffsll((long long)(alignment)) - 1)
#define MALLOCX_ZERO ((int)0x40)
#define MALLOCX_TCACHE(tcache) ((int)(((unsigned)(tcache) + 2u) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
#define MALLOCX_ARENA(arena) ((int)(((unsigned)(arena) + 1u) << 20))

/* In place of an arena's index, in names and mibs of mallctl only. */
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097

/* ---------------------------------------------------------------- extent hooks
 *
 * Where an arena gets its memory from; all that return bool return false on success.  Only alloc must
 * be there.  The struct is used where it stands, so it has to outlive the arena.
 */
typedef struct extent_hooks_s extent_hooks_t;

typedef void *(extent_alloc_t)(extent_hooks_t *hooks, void *new_address, size_t size,
                               size_t alignment, bool *zero, bool *commit, unsigned arena);
typedef bool(extent_dalloc_t)(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                              unsigned arena);
typedef void(extent_destroy_t)(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                               unsigned arena);
typedef bool(extent_commit_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                              size_t length, unsigned arena);
typedef bool(extent_decommit_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                                size_t length, unsigned arena);
typedef bool(extent_purge_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                             size_t length, unsigned arena);
typedef bool(extent_split_t)(extent_hooks_t *hooks, void *address, size_t size, size_t size_a,
                             size_t size_b, bool committed, unsigned arena);
typedef bool(extent_merge_t)(extent_hooks_t *hooks, void *address_a, size_t size_a, void *address_b,
                             size_t size_b, bool committed, unsigned arena);

struct extent_hooks_s {
    extent_alloc_t *alloc;
    extent_dalloc_t *dalloc;
    extent_destroy_t *destroy;
    extent_commit_t *commit;
    extent_decommit_t *decommit;
    extent_purge_t *purge_lazy;
    extent_purge_t *purge_forced;
    extent_split_t *split;
    extent_merge_t *merge;
};

/* ---------------------------------------------------------------- the malloc family */

void *malloc(size_t size) JEMALLOC_SYS_NOTHROW __attribute__((malloc, alloc_size(1)));
void *calloc(size_t count, size_t size) JEMALLOC_SYS_NOTHROW
    __attribute__((malloc, alloc_size(1, 2)));
void *realloc(void *pointer, size_t size) JEMALLOC_SYS_NOTHROW __attribute__((alloc_size(2)));
void free(void *pointer) JEMALLOC_SYS_NOTHROW;
void free_sized(void *pointer, size_t size) JEMALLOC_SYS_NOTHROW;
void free_aligned_sized(void *pointer, size_t alignment, size_t size) JEMALLOC_SYS_NOTHROW;
int posix_memalign(void **result, size_t alignment, size_t size) JEMALLOC_SYS_NOTHROW
    __attribute__((nonnull(1)));
void *aligned_alloc(size_t alignment, size_t size) JEMALLOC_SYS_NOTHROW
    __attribute__((malloc, alloc_size(2)));
void *memalign(size_t alignment, size_t size) JEMALLOC_SYS_NOTHROW
    __attribute__((malloc, alloc_size(2)));
void *valloc(size_t size) JEMALLOC_SYS_NOTHROW __attribute__((malloc, alloc_size(1)));
void *pvalloc(size_t size) JEMALLOC_SYS_NOTHROW __attribute__((malloc));
size_t malloc_usable_size(void *pointer) JEMALLOC_SYS_NOTHROW;

/* ---------------------------------------------------------------- with flags
 *
 * A request that cannot be served gives NULL; nallocx then gives 0 where it never could be.  An
 * object allocated with an alignment is freed by sdallocx with the same.
 */
void *mallocx(size_t size, int flags) __attribute__((nothrow, malloc, alloc_size(1)));

/* The object with its new size, perhaps elsewhere; NULL, with the object as it was, on failure. */
void *rallocx(void *pointer, size_t size, int flags) __attribute__((nothrow, alloc_size(2)));

/* The usable bytes after trying to have `size + extra`, or at least `size`, where it stands. */
size_t xallocx(void *pointer, size_t size, size_t extra, int flags) __attribute__((nothrow));

size_t sallocx(const void *pointer, int flags) __attribute__((nothrow, pure));
void dallocx(void *pointer, int flags) __attribute__((nothrow));
void sdallocx(void *pointer, size_t size, int flags) __attribute__((nothrow));
size_t nallocx(size_t size, int flags) __attribute__((nothrow, pure));

/* ---------------------------------------------------------------- control and statistics */

int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen)
    __attribute__((nothrow));
int mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp) __attribute__((nothrow));
int mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp,
                 size_t newlen) __attribute__((nothrow));

/* Statistics as text, or as JSON with J among the letters.  Without `write` they go to
 * malloc_message, or to standard error. */
void malloc_stats_print(void (*write)(void *opaque, const char *text), void *opaque,
                        const char *letters);

/* ---------------------------------------------------------------- variables of the program */

/* Gets all that the library has to say, while it is not NULL; must not allocate. */
extern void (*malloc_message)(void *opaque, const char *text);

/* Options; a program defines the one it wants, with an initialiser.  The environment wins over the
 * first and the second over the environment. */
extern const char *malloc_conf;
extern const char *malloc_conf_2_conf_harder;

/* ---------------------------------------------------------------- the same with the prefix */

#ifndef TALLY_PREFIX
#define TALLY_PREFIX je_
#endif
#define JEMALLOC_PASTED(prefix, name) prefix##name
#define JEMALLOC_PASTED_EXPANDED(prefix, name) JEMALLOC_PASTED(prefix, name)
#define JEMALLOC_PREFIXED(name) JEMALLOC_PASTED_EXPANDED(TALLY_PREFIX, name)
#define JEMALLOC_DECLARE_LIKE(name) extern __typeof__(name) JEMALLOC_PREFIXED(name)

JEMALLOC_DECLARE_LIKE(malloc);
JEMALLOC_DECLARE_LIKE(calloc);
JEMALLOC_DECLARE_LIKE(realloc);
JEMALLOC_DECLARE_LIKE(free);
JEMALLOC_DECLARE_LIKE(free_sized);
JEMALLOC_DECLARE_LIKE(free_aligned_sized);
JEMALLOC_DECLARE_LIKE(posix_memalign);
JEMALLOC_DECLARE_LIKE(aligned_alloc);
JEMALLOC_DECLARE_LIKE(memalign);
JEMALLOC_DECLARE_LIKE(valloc);
JEMALLOC_DECLARE_LIKE(pvalloc);
JEMALLOC_DECLARE_LIKE(malloc_usable_size);
JEMALLOC_DECLARE_LIKE(mallocx);
JEMALLOC_DECLARE_LIKE(rallocx);
JEMALLOC_DECLARE_LIKE(xallocx);
JEMALLOC_DECLARE_LIKE(sallocx);
JEMALLOC_DECLARE_LIKE(dallocx);
JEMALLOC_DECLARE_LIKE(sdallocx);
JEMALLOC_DECLARE_LIKE(nallocx);
JEMALLOC_DECLARE_LIKE(mallctl);
JEMALLOC_DECLARE_LIKE(mallctlnametomib);
JEMALLOC_DECLARE_LIKE(mallctlbymib);
JEMALLOC_DECLARE_LIKE(malloc_stats_print);
JEMALLOC_DECLARE_LIKE(malloc_message);
JEMALLOC_DECLARE_LIKE(malloc_conf);
JEMALLOC_DECLARE_LIKE(malloc_conf_2_conf_harder);

#if defined(JEMALLOC_MANGLE)
#define malloc JEMALLOC_PREFIXED(malloc)
#define calloc JEMALLOC_PREFIXED(calloc)
#define realloc JEMALLOC_PREFIXED(realloc)
#define free JEMALLOC_PREFIXED(free)
#define free_sized JEMALLOC_PREFIXED(free_sized)
#define free_aligned_sized JEMALLOC_PREFIXED(free_aligned_sized)
#define posix_memalign JEMALLOC_PREFIXED(posix_memalign)
#define aligned_alloc JEMALLOC_PREFIXED(aligned_alloc)
#define memalign JEMALLOC_PREFIXED(memalign)
#define valloc JEMALLOC_PREFIXED(valloc)
#define pvalloc JEMALLOC_PREFIXED(pvalloc)
#define malloc_usable_size JEMALLOC_PREFIXED(malloc_usable_size)
#define mallocx JEMALLOC_PREFIXED(mallocx)
#define rallocx JEMALLOC_PREFIXED(rallocx)
#define xallocx JEMALLOC_PREFIXED(xallocx)
#define sallocx JEMALLOC_PREFIXED(sallocx)
#define dallocx JEMALLOC_PREFIXED(dallocx)
#define sdallocx JEMALLOC_PREFIXED(sdallocx)
#define nallocx JEMALLOC_PREFIXED(nallocx)
#define mallctl JEMALLOC_PREFIXED(mallctl)
#define mallctlnametomib JEMALLOC_PREFIXED(mallctlnametomib)
#define mallctlbymib JEMALLOC_PREFIXED(mallctlbymib)
#define malloc_stats_print JEMALLOC_PREFIXED(malloc_stats_print)
#define malloc_message JEMALLOC_PREFIXED(malloc_message)
#define malloc_conf JEMALLOC_PREFIXED(malloc_conf)
#define malloc_conf_2_conf_harder JEMALLOC_PREFIXED(malloc_conf_2_conf_harder)
#elif defined(JEMALLOC_NO_DEMANGLE)
#define je_malloc JEMALLOC_PREFIXED(malloc)
#define je_calloc JEMALLOC_PREFIXED(calloc)
#define je_realloc JEMALLOC_PREFIXED(realloc)
#define je_free JEMALLOC_PREFIXED(free)
#define je_free_sized JEMALLOC_PREFIXED(free_sized)
#define je_free_aligned_sized JEMALLOC_PREFIXED(free_aligned_sized)
#define je_posix_memalign JEMALLOC_PREFIXED(posix_memalign)
#define je_aligned_alloc JEMALLOC_PREFIXED(aligned_alloc)
#define je_memalign JEMALLOC_PREFIXED(memalign)
#define je_valloc JEMALLOC_PREFIXED(valloc)
#define je_pvalloc JEMALLOC_PREFIXED(pvalloc)
#define je_malloc_usable_size JEMALLOC_PREFIXED(malloc_usable_size)
#define je_mallocx JEMALLOC_PREFIXED(mallocx)
#define je_rallocx JEMALLOC_PREFIXED(rallocx)
#define je_xallocx JEMALLOC_PREFIXED(xallocx)
#define je_sallocx JEMALLOC_PREFIXED(sallocx)
#define je_dallocx JEMALLOC_PREFIXED(dallocx)
#define je_sdallocx JEMALLOC_PREFIXED(sdallocx)
#define je_nallocx JEMALLOC_PREFIXED(nallocx)
#define je_mallctl JEMALLOC_PREFIXED(mallctl)
#define je_mallctlnametomib JEMALLOC_PREFIXED(mallctlnametomib)
#define je_mallctlbymib JEMALLOC_PREFIXED(mallctlbymib)
#define je_malloc_stats_print JEMALLOC_PREFIXED(malloc_stats_print)
#define je_malloc_message JEMALLOC_PREFIXED(malloc_message)
#define je_malloc_conf JEMALLOC_PREFIXED(malloc_conf)
#define je_malloc_conf_2_conf_harder JEMALLOC_PREFIXED(malloc_conf_2_conf_harder)
#endif

#ifdef __cplusplus
}
#endif

#endif
