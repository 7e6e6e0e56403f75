/* SPDX-License-Identifier: MIT
 *
 * malloc.c - the malloc family; the fast path starts and ends here.
 *
 * A hit costs 14 instructions in malloc and 22 in free, with every free validated: is the address
 * ours (class byte), is it the start of an object (one multiplication), is it not free already (the
 * secret in word 1)?  Whatever does not fit (first call, empty or full magazine, large, foreign,
 * suspicious) finds a record of zeros or a top at its limit and falls into the slow path, which
 * judges the address exactly.  There is no other test on the fast path, and no counter.
 *
 * Errors      errno is set here and nowhere below.
 * Threads     The fast path writes the caller's own heap only.
 * Read next   heap/fast.h for the records, heap/heap.c for the slow half, tools/fast_path.py for
 *             the count.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <tally/tally.h>

#include "api/life.h"
#include "api/names.h"
#include "api/slow.h"
#include "base/log.h"
#include "base/os.h"
#include "guard/guard.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "prof/prof.h"

/* The two hot functions start at a cache line, so that their speed does not depend on what happens
 * to precede them. */
#define CACHE_LINE_START __attribute__((aligned(CACHE_LINE)))

/* A request without alignment or place. */
static const struct place_request plain = {.alignment = 1, .place = {PLACE_OWN, PLACE_OWN}};

/* ---------------------------------------------------------------- malloc */

static COLD void *fail(const char *function, int error) {
    guard_fail(function, error);
    errno = error;
    return NULL;
}

/* Any size, from whatever there is. */
static __attribute__((noinline)) void *malloc_slow(size_t size) {
    sample_keep_frame();
    bool zeroed;
    void *object = slow_alloc(size, &plain, &zeroed);
    return LIKELY(object != NULL) ? object : fail("malloc", ENOMEM);
}

/* The magazine is empty; class 0 says that there is no heap. */
static __attribute__((noinline)) void *malloc_empty(size_t size, size_t class4) {
    void *object = NULL;
    if (LIKELY(class4 != 0 && life_enter_again())) {
        object = heap_alloc_cached((unsigned)class4 / 4);
        life_leave_again(true);
    }
    return LIKELY(object != NULL) ? object : malloc_slow(size);
}

/* Inside, since an interrupted pop outside would be one more place where a handler does harm.  A
 * record of zeros says that there is no heap. */
void *slow_take_cached(size_t size, size_t alignment) {
    size_t class4 = size_class_aligned(size, alignment) * 4;
    if (UNLIKELY(thread_record(tls.hot, &class4)->limit == 0 || !life_enter_again())) {
        return NULL;
    }
    void *object = magazine_pop_slowly(&thread_record(tls.hot, &class4)->take);
    if (LIKELY(object != NULL)) {
        slab_set_word1(object, 0);
    } else {
        object = heap_alloc_cached((unsigned)class4 / 4);
    }
    life_leave_again(true);
    return object;
}

EXPORT CACHE_LINE_START void *tally_malloc(size_t size) {
    if (UNLIKELY(size > SMALL_MAX)) {
        return malloc_slow(size);
    }
    struct hot *hot = tls.hot;
    size_t class4 = hot->tab[((uint32_t)size + 15) / 16];
    uintptr_t take = thread_record(hot, &class4)->take;
    if (UNLIKELY(magazine_take_is_empty(take))) {
        return malloc_empty(size, class4);
    }
    void *object = magazine_pop(&thread_record(hot, &class4)->take, take);
    if (CHECKED) {
        slab_set_word1(object, 0);
    }
    return object;
}

/* ---------------------------------------------------------------- looking */

/* As heap_find, with less to read for what the fast path of free would accept. */
static inline struct heap_found find_fast(const void *pointer) {
    unsigned size_class = classmap_get((uintptr_t)pointer) / 4;
    const struct size_class *sc = &size_classes[size_class];
    uint32_t product = ((uint32_t)(uintptr_t)pointer & sc->slab_mask) * sc->mult;
    bool is_live = product < sc->limit && slab_word1(pointer) != slab_secret;
    return LIKELY(is_live) ? (struct heap_found){sc->size, size_class} : heap_find(pointer);
}

static __attribute__((noinline)) size_t usable_size_slow(const void *pointer) {
    return pointer != NULL ? slow_look_live(pointer, "malloc_usable_size").size : 0;
}

EXPORT size_t tally_usable_size(void *pointer) {
    size_t usable = find_fast(pointer).usable;
    return LIKELY(usable != 0) ? usable : usable_size_slow(pointer);
}

/* ---------------------------------------------------------------- free */

/* Anything but a full magazine. */
static __attribute__((noinline)) void free_slow(void *pointer) {
    if (pointer != NULL) {
        slow_free(pointer, PLACE_OWN, "free");
    }
}

/* The arguments are in the order in which the fast path has them in registers. */
static __attribute__((noinline)) void free_full(void *pointer, size_t class4) {
    if (UNLIKELY(!life_enter_again())) {
        slow_free(pointer, PLACE_OWN, "free");
        return;
    }
    heap_free_cached((unsigned)class4 / 4, pointer);
    life_leave_again(false);
}

/* What became of a pointer on the fast path. */
enum fate {
    KEPT,    /* in the caller's magazine */
    NO_ROOM, /* valid, but the magazine is full */
    UNSURE,  /* not a published small object, or not a valid one: nothing was done */
};

/*
 * Keeps `pointer` in the caller's magazine if all checks pass and there is room.  The address is
 * looked up whatever it is: the class map answers 0 for everything but published small objects, and
 * record 0 has limit 0.
 */
static inline enum fate free_fast(void *pointer, struct hot *hot, size_t *class4) {
    uint32_t offset = (uint32_t)(uintptr_t)pointer & thread_record(hot, class4)->mask;
    uint32_t product = offset * thread_record(hot, class4)->mult;
    uint32_t limit = thread_record(hot, class4)->limit;
    if (UNLIKELY(CHECKED ? product >= limit : limit == 0)) {
        return UNSURE;
    }
    uint64_t secret = hot->secret;
    if (UNLIKELY(CHECKED && slab_word1(pointer) == secret)) {
        return UNSURE;
    }
    uintptr_t give = thread_record(hot, class4)->give;
    if (UNLIKELY(magazine_give_is_full(give))) {
        return NO_ROOM;
    }
    if (CHECKED) {
        slab_set_word1(pointer, secret);
    }
    magazine_push(&thread_record(hot, class4)->give, give, pointer);
    return KEPT;
}

EXPORT CACHE_LINE_START void tally_free(void *pointer) {
    size_t class4 = classmap_get((uintptr_t)pointer);
    enum fate fate = free_fast(pointer, tls.hot, &class4);
    if (UNLIKELY(fate == NO_ROOM)) {
        free_full(pointer, class4);
    } else if (UNLIKELY(fate == UNSURE)) {
        free_slow(pointer);
    }
}

static __attribute__((noinline)) void free_sized_slow(void *pointer, size_t size) {
    if (pointer != NULL) {
        slow_free_sized(pointer, size, &plain, "free_sized");
    }
}

/* Would free accept this pointer as a small object of this class? */
static inline bool is_sure(const void *pointer, unsigned size_class) {
    return size_class != 0 && find_fast(pointer).size_class == size_class;
}

EXPORT void tally_free_sized(void *pointer, size_t size) {
    struct hot *hot = tls.hot;
    if (UNLIKELY(size > SMALL_MAX)) {
        free_sized_slow(pointer, size);
        return;
    }
    size_t class4 = classmap_get((uintptr_t)pointer);
    bool fits = hot->tab[((uint32_t)size + 15) / 16] == class4;
    enum fate fate = LIKELY(fits) ? free_fast(pointer, hot, &class4) : UNSURE;
    if (UNLIKELY(fate == NO_ROOM)) {
        free_full(pointer, class4);
    } else if (UNLIKELY(fate == UNSURE)) {
        free_sized_slow(pointer, size);
    }
}

EXPORT void tally_free_aligned_sized(void *pointer, size_t alignment, size_t size) {
    if (LIKELY(is_sure(pointer, size_class_aligned(size, alignment)))) {
        tally_free(pointer);
    } else if (pointer != NULL) {
        struct place_request request = {.alignment = alignment, .place = plain.place};
        slow_free_sized(pointer, size, &request, "free_aligned_sized");
    }
}

/* ---------------------------------------------------------------- calloc, realloc */

EXPORT void *tally_calloc(size_t count, size_t size) {
    sample_keep_frame();
    size_t bytes;
    if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes))) {
        return fail("calloc", ENOMEM);
    }
    if (bytes <= SMALL_MAX) {
        void *object = tally_malloc(bytes);
        return LIKELY(object != NULL) ? memset(object, 0, bytes) : NULL;
    }
    bool zeroed;
    void *object = slow_alloc(bytes, &plain, &zeroed);
    if (object == NULL) {
        return fail("calloc", ENOMEM);
    }
    if (!zeroed) {
        fill_zeros(object, bytes);
    }
    return object;
}

/* realloc(pointer, 0), as the option zero_realloc wants it; false: go on. */
static bool free_by_realloc(void *pointer) {
    atomic_fetch_add_explicit(&heap_zero_reallocs, 1, memory_order_relaxed);
    if (opt.zero_realloc == ZERO_REALLOC_ABORT) {
        fatal("realloc(%p, 0): zero_realloc:abort ends the program", pointer);
    }
    if (opt.zero_realloc == ZERO_REALLOC_ALLOC) {
        return false;
    }
    slow_free(pointer, PLACE_OWN, "realloc");
    return true;
}

/* Another object in place of a live one, with its contents. */
static __attribute__((noinline)) void *realloc_elsewhere(void *pointer, size_t size,
                                                         size_t usable) {
    sample_keep_frame();
    void *moved = tally_malloc(size);
    if (UNLIKELY(moved == NULL)) {
        return NULL;
    }
    memcpy(moved, pointer, min_size(size, usable));
    if (LIKELY(find_fast(pointer).usable != 0)) {
        tally_free(pointer);
    } else {
        slow_free(pointer, PLACE_OWN, "realloc");
    }
    return moved;
}

/* Of size 0, large, or in doubt. */
static __attribute__((noinline)) void *realloc_slow(void *pointer, size_t size) {
    sample_keep_frame();
    if (pointer == NULL) {
        return tally_malloc(size);
    }
    struct heap_object object = slow_look_live(pointer, "realloc");
    if (size == 0) {
        if (free_by_realloc(pointer)) {
            return NULL;
        }
        size = 1;
    }
    if (UNLIKELY(size > PTRDIFF_MAX)) {
        return fail("realloc", ENOMEM);
    }
    void *resized = slow_resize(&object, size, &plain);
    return resized != NULL ? resized : realloc_elsewhere(pointer, size, object.size);
}

EXPORT void *tally_realloc(void *pointer, size_t size) {
    struct heap_found found = find_fast(pointer);
    unsigned wanted = size_class_aligned(size, 1);
    if (UNLIKELY(found.usable == 0 || size == 0 || size > PTRDIFF_MAX)) {
        return realloc_slow(pointer, size);
    }
    if (LIKELY((wanted | found.size_class) != 0)) {
        if (UNLIKELY(wanted != found.size_class)) {
            return realloc_elsewhere(pointer, size, found.usable);
        }
    } else if (heap_size_for(size, 1) != found.usable) {
        return realloc_slow(pointer, size);
    }
    thread_note_kept(found.usable);
    return pointer;
}

EXPORT void *tally_reallocarray(void *pointer, size_t count, size_t size) {
    size_t bytes;
    if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes))) {
        return fail("reallocarray", ENOMEM);
    }
    return tally_realloc(pointer, bytes);
}

/* ---------------------------------------------------------------- aligned requests */

static void *alloc_aligned(size_t alignment, size_t size) {
    sample_keep_frame();
    void *object = slow_take_cached(size, alignment);
    if (LIKELY(object != NULL)) {
        return object;
    }
    struct place_request request = {.alignment = alignment, .place = plain.place};
    bool zeroed;
    return slow_alloc(size, &request, &zeroed);
}

EXPORT int tally_posix_memalign(void **result, size_t alignment, size_t size) {
    sample_keep_frame();
    if (!is_power_of_two(alignment) || alignment < sizeof(void *)) {
        guard_fail("posix_memalign", EINVAL);
        return EINVAL;
    }
    void *object = alloc_aligned(alignment, size);
    if (object == NULL) {
        guard_fail("posix_memalign", ENOMEM);
        return ENOMEM;
    }
    *result = object;
    return 0;
}

EXPORT void *tally_aligned_alloc(size_t alignment, size_t size) {
    sample_keep_frame();
    if (!is_power_of_two(alignment)) {
        return fail("aligned_alloc", EINVAL);
    }
    void *object = alloc_aligned(alignment, size);
    return object != NULL ? object : fail("aligned_alloc", ENOMEM);
}

/* An alignment that is no power of two is rounded up, as glibc does. */
EXPORT void *tally_memalign(size_t alignment, size_t size) {
    sample_keep_frame();
    if (alignment > (size_t)1 << 63) {
        return fail("memalign", EINVAL);
    }
    size_t rounded = SMALLEST;
    while (rounded < alignment) {
        rounded *= 2;
    }
    void *object = alloc_aligned(rounded, size);
    return object != NULL ? object : fail("memalign", ENOMEM);
}

/* The page size, even in the first call of all. */
static size_t page_bytes(void) {
    if (UNLIKELY(os_facts.page_bytes == 0)) {
        (void)life_ready();
    }
    return os_facts.page_bytes;
}

EXPORT void *tally_valloc(size_t size) {
    return tally_memalign(page_bytes(), size);
}

EXPORT void *tally_pvalloc(size_t size) {
    if (size > PTRDIFF_MAX) {
        return fail("pvalloc", ENOMEM);
    }
    return tally_memalign(page_bytes(), align_up(max_size(size, 1), page_bytes()));
}

/* ---------------------------------------------------------------- libc's names */

#if TALLY_OVERRIDE
extern void *malloc(size_t) SAME_AS(tally_malloc);
extern void free(void *) SAME_AS(tally_free);
extern void cfree(void *) SAME_AS(tally_free);
extern void *calloc(size_t, size_t) SAME_AS(tally_calloc);
extern void *realloc(void *, size_t) SAME_AS(tally_realloc);
extern void *reallocarray(void *, size_t, size_t) SAME_AS(tally_reallocarray);
extern int posix_memalign(void **, size_t, size_t) SAME_AS(tally_posix_memalign);
extern void *aligned_alloc(size_t, size_t) SAME_AS(tally_aligned_alloc);
extern void *memalign(size_t, size_t) SAME_AS(tally_memalign);
extern void *valloc(size_t) SAME_AS(tally_valloc);
extern void *pvalloc(size_t) SAME_AS(tally_pvalloc);
extern size_t malloc_usable_size(void *) SAME_AS(tally_usable_size);
extern void free_sized(void *, size_t) SAME_AS(tally_free_sized);
extern void free_aligned_sized(void *, size_t, size_t) SAME_AS(tally_free_aligned_sized);
/* Names that static links and old binaries ask for. */
extern void *__libc_malloc(size_t) SAME_AS(tally_malloc);
extern void __libc_free(void *) SAME_AS(tally_free);
extern void __libc_cfree(void *) SAME_AS(tally_free);
extern void *__libc_calloc(size_t, size_t) SAME_AS(tally_calloc);
extern void *__libc_realloc(void *, size_t) SAME_AS(tally_realloc);
extern void *__libc_memalign(size_t, size_t) SAME_AS(tally_memalign);
extern void *__libc_valloc(size_t) SAME_AS(tally_valloc);
extern void *__libc_pvalloc(size_t) SAME_AS(tally_pvalloc);
extern int __posix_memalign(void **, size_t, size_t) SAME_AS(tally_posix_memalign);
#endif

/* ---------------------------------------------------------------- jemalloc's names */

extern void *PREFIXED(malloc)(size_t) SAME_AS(tally_malloc);
extern void PREFIXED(free)(void *) SAME_AS(tally_free);
extern void *PREFIXED(calloc)(size_t, size_t) SAME_AS(tally_calloc);
extern void *PREFIXED(realloc)(void *, size_t) SAME_AS(tally_realloc);
extern int PREFIXED(posix_memalign)(void **, size_t, size_t) SAME_AS(tally_posix_memalign);
extern void *PREFIXED(aligned_alloc)(size_t, size_t) SAME_AS(tally_aligned_alloc);
extern void *PREFIXED(memalign)(size_t, size_t) SAME_AS(tally_memalign);
extern void *PREFIXED(valloc)(size_t) SAME_AS(tally_valloc);
extern void *PREFIXED(pvalloc)(size_t) SAME_AS(tally_pvalloc);
extern size_t PREFIXED(malloc_usable_size)(void *) SAME_AS(tally_usable_size);
extern void PREFIXED(free_sized)(void *, size_t) SAME_AS(tally_free_sized);
extern void PREFIXED(free_aligned_sized)(void *, size_t, size_t) SAME_AS(tally_free_aligned_sized);
