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

#include "api/fill.h"
#include "api/life.h"
#include "api/names.h"
#include "base/log.h"
#include "base/os.h"
#include "guard/guard.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "prof/prof.h"

/* The two hot functions start at a cache line, so that their speed does not depend on what happens to
 * stand before them. */
#define CACHE_LINE_START __attribute__((aligned(CACHE_LINE)))

static const struct place own_place = {PLACE_OWN, PLACE_OWN};

/* Part of its callers, so that a sample's walk begins one frame further out. */
static inline __attribute__((always_inline)) void *slow_alloc(size_t size, bool *zeroed) {
    sample_keep_frame();
    *zeroed = false;
    if (UNLIKELY(size > PTRDIFF_MAX)) {
        return NULL;
    }
    if (UNLIKELY(!life_enter())) {
        return emergency_alloc(size, SMALLEST);
    }
    void *object = sample_alloc(own_place, size, 1, zeroed);
    if (LIKELY(object == NULL)) {
        object = heap_alloc(size, zeroed);
    }
    fill_new(object, 0, zeroed);
    life_leave_alloc();
    life_greet_thread();
    return object;
}

/* ---------------------------------------------------------------- malloc */

static COLD void *fail(const char *function, int error) {
    guard_fail(function, error);
    errno = error;
    return NULL;
}

/* Anything but an empty magazine of a thread that has a heap. */
static __attribute__((noinline)) void *malloc_slow(size_t size) {
    sample_keep_frame();
    bool zeroed;
    void *object = slow_alloc(size, &zeroed);
    return LIKELY(object != NULL) ? object : fail("malloc", ENOMEM);
}

/* The magazine is empty; class 0 says that there is no heap. */
static __attribute__((noinline)) void *malloc_empty(size_t size, size_t class4) {
    void *object = NULL;
    if (LIKELY(class4 != 0 && life_enter_again())) {
        object = heap_alloc_cached((unsigned)class4 / 4);
        life_leave_alloc();
    }
    return LIKELY(object != NULL) ? object : malloc_slow(size);
}

EXPORT CACHE_LINE_START void *tally_malloc(size_t size) {
    if (UNLIKELY(size > TABLE_MAX)) {
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

/* ---------------------------------------------------------------- free */

/* A handler that interrupts us: no lock may be taken, so less is proved. */
static COLD void free_interrupting(void *pointer, const char *function) {
    struct heap_object object = heap_locate(pointer);
    if (object.verdict != HEAP_LIVE || !heap_free_later(&object)) {
        guard_refuse(function, pointer, &object);
    }
}

/* One that was freed a moment ago may be another's by now, and is not to be freed whatever it looks like. */
static void free_looked_at(void *pointer, const char *function, bool is_late) {
    struct heap_object object = heap_look(pointer);
    if (UNLIKELY(is_late) && object.verdict == HEAP_LIVE) {
        object.verdict = HEAP_DOUBLE_FREE;
    }
    fill_freed(&object);
    if (UNLIKELY(object.verdict != HEAP_LIVE || !heap_free(&object))) {
        guard_refuse(function, pointer, &object);
    }
}

static __attribute__((noinline)) void free_checked(void *pointer, const char *function) {
    if (UNLIKELY(!life_enter())) {
        free_interrupting(pointer, function);
        return;
    }
    enum heap_tracked tracked =
        opt.junk == JUNK_FALSE ? heap_free_tracked(pointer) : HEAP_NOT_TRACKED;
    if (tracked != HEAP_TRACKED_FREED) {
        free_looked_at(pointer, function, tracked == HEAP_TRACKED_LATE);
    }
    life_leave();
    life_greet_thread();
}

/* What a pointer leads to; judged without proof where this call interrupts us. */
static struct heap_object look(void *pointer) {
    if (UNLIKELY(!life_enter())) {
        return heap_locate(pointer);
    }
    struct heap_object object = heap_look(pointer);
    life_leave();
    return object;
}

/* The same, after a look whether the object is what one of this size and alignment would be.  A
 * block of the emergency areas has the size that was asked for. */
static void free_size_checked(void *pointer, size_t size, size_t alignment, const char *function) {
    struct heap_object object = look(pointer);
    size_t expected = heap_size_for(size, alignment);
    if (UNLIKELY(object.verdict == HEAP_LIVE && object.span != NULL && object.size != expected)) {
        guard_refuse_size(function, pointer, &object, size, expected);
    }
    free_checked(pointer, function);
}

/* Anything but a full magazine. */
static __attribute__((noinline)) void free_slow(void *pointer) {
    if (pointer != NULL) {
        free_checked(pointer, "free");
    }
}

static __attribute__((noinline)) void free_sized_slow(void *pointer, size_t size) {
    if (pointer != NULL) {
        free_size_checked(pointer, size, 1, "free_sized");
    }
}

/* The arguments are in the order in which the fast path has them in registers. */
static __attribute__((noinline)) void free_full(void *pointer, size_t class4) {
    if (UNLIKELY(!life_enter_again())) {
        free_interrupting(pointer, "free");
        return;
    }
    heap_free_cached((unsigned)class4 / 4, pointer);
    life_leave();
}

/* What became of a pointer on the fast path. */
enum fate {
    KEPT,    /* in the caller's magazine */
    NO_ROOM, /* sound, but the magazine is full */
    UNSURE,  /* not a published small object, or not a sound one: nothing was done */
};

/*
 * Keeps `pointer` in the caller's magazine if all checks pass and there is room.  The address is
 * looked up whatever it is: the class map answers 0 for all that is not a published small object,
 * and record 0 has limit 0.
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

EXPORT void tally_free_sized(void *pointer, size_t size) {
    struct hot *hot = tls.hot;
    size_t class4 = classmap_get((uintptr_t)pointer);
    if (UNLIKELY(size > TABLE_MAX || hot->tab[((uint32_t)size + 15) / 16] != class4 ||
                 free_fast(pointer, hot, &class4) != KEPT)) {
        free_sized_slow(pointer, size);
    }
}

EXPORT void tally_free_aligned_sized(void *pointer, size_t alignment, size_t size) {
    if (pointer != NULL) {
        free_size_checked(pointer, size, alignment, "free_aligned_sized");
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
    void *object = slow_alloc(bytes, &zeroed);
    if (object == NULL) {
        return fail("calloc", ENOMEM);
    }
    return zeroed ? object : memset(object, 0, bytes);
}

/* The object behind a pointer the program wants to resize or measure; ends the process if it is not
 * a live one. */
static struct heap_object look_or_refuse(void *pointer, const char *function) {
    struct heap_object object = look(pointer);
    if (UNLIKELY(object.verdict != HEAP_LIVE)) {
        guard_refuse(function, pointer, &object);
    }
    return object;
}

/* The object with its new size, where it was or elsewhere; NULL when it has to be copied. */
static void *resize(const struct heap_object *object, size_t size) {
    void *here = (void *)object->base;
    if (object->size_class != 0) {
        return size <= SMALL_MAX && size_class_of(size) == object->size_class ? here : NULL;
    }
    if (size <= SMALL_MAX || UNLIKELY(!life_enter())) {
        return NULL;
    }
    void *resized = heap_resize(object, size) ? here : heap_move(object, size);
    bool zeroed = false;
    fill_new(resized, object->size, &zeroed);
    life_leave_alloc();
    life_greet_thread();
    return resized;
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
    free_checked(pointer, "realloc");
    return true;
}

EXPORT void *tally_realloc(void *pointer, size_t size) {
    sample_keep_frame();
    if (pointer == NULL) {
        return tally_malloc(size);
    }
    struct heap_object object = look_or_refuse(pointer, "realloc");
    if (size == 0) {
        if (free_by_realloc(pointer)) {
            return NULL;
        }
        size = 1;
    }
    if (UNLIKELY(size > PTRDIFF_MAX)) {
        return fail("realloc", ENOMEM);
    }
    void *resized = resize(&object, size);
    if (resized != NULL) {
        return resized;
    }
    void *moved = tally_malloc(size);
    if (moved != NULL) {
        memcpy(moved, pointer, min_size(size, object.size));
        free_checked(pointer, "realloc");
    }
    return moved;
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
    if (UNLIKELY(size > PTRDIFF_MAX)) {
        return NULL;
    }
    alignment = max_size(alignment, SMALLEST);
    if (UNLIKELY(!life_enter())) {
        return emergency_alloc(size, alignment);
    }
    bool zeroed = false;
    void *object = sample_alloc(own_place, size, alignment, &zeroed);
    if (LIKELY(object == NULL)) {
        object = heap_alloc_aligned(size, alignment);
    }
    fill_new(object, 0, &zeroed);
    life_leave_alloc();
    life_greet_thread();
    return object;
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

/* The page size, also in the first call of all. */
static size_t page_bytes(void) {
    if (UNLIKELY(os_facts.page_bytes == 0) && life_enter()) {
        life_leave();
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

EXPORT size_t tally_usable_size(void *pointer) {
    return pointer != NULL ? look_or_refuse(pointer, "malloc_usable_size").size : 0;
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
