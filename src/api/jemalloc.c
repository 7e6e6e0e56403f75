/* SPDX-License-Identifier: MIT
 *
 * jemalloc.c - the mallocx family, mallctl, malloc_stats_print, and the variables a program sets.
 *
 * Without flags a call is one of the malloc family under another name and jumps there, so it takes
 * the same fast path.  Flags are decoded into a request: an alignment, zeros or not, and a place
 * (heap/heap.h).
 *
 * An object allocated with zeros is zero up to its usable size, and growing one with zeros clears
 * everything beyond the old usable size: a program that always asks for zeros always gets them.
 *
 * Threads     A callback of the program runs outside of the allocator and may allocate.
 * Read next   include/compat/jemalloc/jemalloc.h for callers, control/ctl.c for what mallctl does.
 */
#include "api/jemalloc.h"

#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <stdint.h>
#include <string.h>
#include <tally/tally.h>

#include "api/life.h"
#include "api/names.h"
#include "api/slow.h"
#include "base/log.h"
#include "control/control.h"
#include "guard/guard.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "prof/prof.h"

/* ---------------------------------------------------------------- asking for sizes */

EXPORT size_t PREFIXED(sallocx)(const void *pointer, int flags) {
    (void)flags;
    return tally_usable_size((void *)pointer);
}

/* May be the first call of all, before there is a table of sizes. */
EXPORT size_t PREFIXED(nallocx)(size_t size, int flags) {
    (void)life_ready();
    return heap_size_for(size, place_parse_flags(flags).alignment);
}

/* ---------------------------------------------------------------- allocating */

/* Can the fast path serve the request? */
static bool is_plain(size_t size, const struct place_request *request) {
    return place_is_own(request->place) && request->alignment <= SMALLEST && size <= SMALL_MAX;
}

/* Usable bytes of a new object, which is less than its class in the emergency areas. */
static size_t new_bytes(const void *object) {
    unsigned size_class = classmap_get((uintptr_t)object) / 4;
    return LIKELY(size_class != 0) ? size_classes[size_class].size : heap_locate(object).size;
}

/* A function of its own, so that requests which the fast path serves do not pay for it. */
static __attribute__((noinline)) void *
alloc_placed(size_t size, const struct place_request *request, bool *zeroed) {
    void *object = place_is_own(request->place) ? slow_take_cached(size, request->alignment) : NULL;
    *zeroed = false;
    return LIKELY(object != NULL) ? object : slow_alloc(size, request, zeroed);
}

static __attribute__((noinline)) void *alloc_with_flags(size_t size, int flags) {
    struct place_request request = place_parse_flags(flags);
    bool zeroed = false;
    void *object =
        is_plain(size, &request) ? tally_malloc(size) : alloc_placed(size, &request, &zeroed);
    if (UNLIKELY(object == NULL)) {
        guard_fail("mallocx", ENOMEM);
    } else if (request.zero && !zeroed) {
        fill_zeros(object, new_bytes(object));
    }
    return object;
}

EXPORT void *PREFIXED(mallocx)(size_t size, int flags) {
    return LIKELY(flags == 0) ? tally_malloc(size) : alloc_with_flags(size, flags);
}

/* ---------------------------------------------------------------- freeing */

/* The arena is the object's own, whatever the flags say. */
static __attribute__((noinline)) void free_with_flags(void *pointer, int flags) {
    int cache = place_parse_flags(flags).place.cache;
    if (cache == PLACE_OWN) {
        tally_free(pointer);
    } else if (pointer != NULL) {
        slow_free(pointer, cache, "dallocx");
    }
}

EXPORT void PREFIXED(dallocx)(void *pointer, int flags) {
    if (LIKELY(flags == 0)) {
        tally_free(pointer);
    } else {
        free_with_flags(pointer, flags);
    }
}

static __attribute__((noinline)) void free_sized_with_flags(void *pointer, size_t size, int flags) {
    struct place_request request = place_parse_flags(flags);
    if (pointer == NULL) {
        return;
    }
    if (request.place.cache != PLACE_OWN) {
        slow_free_sized(pointer, size, &request, "sdallocx");
    } else if (request.alignment == 1) {
        tally_free_sized(pointer, size);
    } else {
        tally_free_aligned_sized(pointer, request.alignment, size);
    }
}

EXPORT void PREFIXED(sdallocx)(void *pointer, size_t size, int flags) {
    if (LIKELY(flags == 0)) {
        tally_free_sized(pointer, size);
    } else {
        free_sized_with_flags(pointer, size, flags);
    }
}

/* ---------------------------------------------------------------- resizing */

static void clear_growth(char *object, size_t old_bytes, size_t bytes) {
    if (bytes > old_bytes) {
        memset(object + old_bytes, 0, bytes - old_bytes);
    }
}

static __attribute__((noinline)) void *realloc_with_flags(void *pointer, size_t size, int flags) {
    struct place_request request = place_parse_flags(flags);
    struct heap_object object = slow_look_live(pointer, "rallocx");
    size_t usable = heap_size_for(size, request.alignment);
    bool zeroed = false;
    void *resized = slow_resize(&object, size, &request);
    if (resized == NULL) {
        resized = alloc_placed(size, &request, &zeroed);
        if (resized == NULL) {
            guard_fail("rallocx", ENOMEM);
            return NULL;
        }
        usable = heap_locate(resized).size; /* less in the emergency areas */
        memcpy(resized, pointer, min_size(object.size, usable));
        slow_free(pointer, request.place.cache, "rallocx");
    }
    if (request.zero && !zeroed) {
        clear_growth(resized, object.size, usable);
    }
    return resized;
}

/* jemalloc leaves NULL and size 0 undefined; here they give a new object, and the smallest size. */
EXPORT void *PREFIXED(rallocx)(void *pointer, size_t size, int flags) {
    if (UNLIKELY(pointer == NULL)) {
        return PREFIXED(mallocx)(size, flags);
    }
    size = max_size(size, 1);
    return LIKELY(flags == 0) ? tally_realloc(pointer, size)
                              : realloc_with_flags(pointer, size, flags);
}

/* Tries `most` bytes first, then `least` if that is more than the object has. */
static void resize_between(const struct heap_object *object, size_t least, size_t most,
                           size_t alignment) {
    size_t usable_least = heap_size_for(least, alignment);
    size_t usable_most = heap_size_for(most, alignment);
    if (usable_most != object->size && slow_resize_large(object, most, SLOW_HERE) != NULL) {
        return;
    }
    if (usable_least > object->size && usable_least < usable_most) {
        (void)slow_resize_large(object, least, SLOW_HERE);
    }
}

/* Small objects keep their class, and with it their size. */
EXPORT size_t PREFIXED(xallocx)(void *pointer, size_t size, size_t extra, int flags) {
    struct place_request request = place_parse_flags(flags);
    struct heap_object object = slow_look_live(pointer, "xallocx");
    if (heap_size_for(size, request.alignment) == 0 ||
        !slow_is_aligned(&object, request.alignment)) {
        return object.size;
    }
    size_t most = size + min_size(extra, heap_size_most() - size);
    if (!slow_stays_large(&object, most, request.alignment)) {
        return object.size;
    }
    resize_between(&object, size, most, request.alignment);
    size_t usable = heap_locate(pointer).size;
    if (request.zero) {
        clear_growth(pointer, object.size, usable);
    }
    return usable;
}

/* ---------------------------------------------------------------- mallctl */

/* EAGAIN: this call interrupts the allocator, and may be tried again later. */
EXPORT int PREFIXED(mallctl)(const char *name, void *oldp, size_t *oldlenp, void *newp,
                             size_t newlen) {
    if (UNLIKELY(!life_enter())) {
        return EAGAIN;
    }
    int error = ctl_by_name(name, oldp, oldlenp, newp, newlen);
    life_leave_alloc();
    return error;
}

EXPORT int PREFIXED(mallctlnametomib)(const char *name, size_t *mibp, size_t *miblenp) {
    if (UNLIKELY(!life_enter())) {
        return EAGAIN;
    }
    int error = ctl_name_to_mib(name, mibp, miblenp);
    life_leave_alloc();
    return error;
}

EXPORT int PREFIXED(mallctlbymib)(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp,
                                  void *newp, size_t newlen) {
    if (UNLIKELY(!life_enter())) {
        return EAGAIN;
    }
    int error = ctl_by_mib(mib, miblen, oldp, oldlenp, newp, newlen);
    life_leave_alloc();
    return error;
}

/* ---------------------------------------------------------------- statistics */

EXPORT void PREFIXED(malloc_stats_print)(void (*write)(void *opaque, const char *text),
                                         void *opaque, const char *letters) {
    if (UNLIKELY(!life_enter())) {
        (write != NULL ? write : log_write)(
            opaque, "tally: no statistics for a handler that interrupts an allocation\n");
        return;
    }
    stats_print(write, opaque, letters);
    life_leave();
}

/* ---------------------------------------------------------------- variables of the program */

/*
 * A program that is linked with the library may have a copy of a variable in its own memory, and
 * the loader then makes everybody use the copy.  For two names of one variable this works if one of
 * them is weak: then the linker knows that they belong together.  The library reads the other.
 */
#if TALLY_OVERRIDE
#define MESSAGE malloc_message
EXPORT void (*malloc_message)(void *opaque, const char *text);
extern void (*PREFIXED(malloc_message))(void *opaque, const char *text) __attribute__((weak))
SAME_AS(malloc_message);
#else
#define MESSAGE PREFIXED(malloc_message)
EXPORT void (*PREFIXED(malloc_message))(void *opaque, const char *text);
#endif

/* Weak, so that the program's own definition takes their place. */
EXPORT __attribute__((weak)) const char *PREFIXED(malloc_conf);
EXPORT __attribute__((weak)) const char *PREFIXED(malloc_conf_2_conf_harder);

STARTUP void jemalloc_init(void) {
    log_writer = &MESSAGE;
}

STARTUP const char *jemalloc_conf(void) {
    return PREFIXED(malloc_conf);
}

STARTUP const char *jemalloc_conf_harder(void) {
    return PREFIXED(malloc_conf_2_conf_harder);
}

/* ---------------------------------------------------------------- names without the prefix */

#if TALLY_OVERRIDE
extern void *mallocx(size_t, int) SAME_AS(PREFIXED(mallocx));
extern void *rallocx(void *, size_t, int) SAME_AS(PREFIXED(rallocx));
extern size_t xallocx(void *, size_t, size_t, int) SAME_AS(PREFIXED(xallocx));
extern size_t sallocx(const void *, int) SAME_AS(PREFIXED(sallocx));
extern void dallocx(void *, int) SAME_AS(PREFIXED(dallocx));
extern void sdallocx(void *, size_t, int) SAME_AS(PREFIXED(sdallocx));
extern size_t nallocx(size_t, int) SAME_AS(PREFIXED(nallocx));
extern int mallctl(const char *, void *, size_t *, void *, size_t) SAME_AS(PREFIXED(mallctl));
extern int mallctlnametomib(const char *, size_t *, size_t *) SAME_AS(PREFIXED(mallctlnametomib));
extern int mallctlbymib(const size_t *, size_t, void *, size_t *, void *, size_t)
    SAME_AS(PREFIXED(mallctlbymib));
extern void malloc_stats_print(void (*)(void *, const char *), void *, const char *)
    SAME_AS(PREFIXED(malloc_stats_print));
#endif
