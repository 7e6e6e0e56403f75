/* SPDX-License-Identifier: MIT
 *
 * jemalloc.c - the mallocx family, mallctl, malloc_stats_print, and the variables a program sets.
 *
 * Without flags a call is one of the malloc family under another name and jumps there, so it takes the
 * same fast path.  With flags it is taken apart into a request: an alignment, zeros or not, and a
 * place (heap/heap.h).
 *
 * What is allocated with zeros is zero up to its usable size, and growing with zeros clears all that
 * is beyond the old usable size, so that a program which always asks for zeros always has them.
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

#include "api/fill.h"
#include "api/life.h"
#include "api/names.h"
#include "base/log.h"
#include "control/control.h"
#include "guard/guard.h"
#include "heap/heap.h"
#include "prof/prof.h"

/* ---------------------------------------------------------------- flags */

static bool is_own_place(struct place place) {
    return place.arena == PLACE_OWN && place.cache == PLACE_OWN;
}

/* Using a cache that was never made, or is destroyed, ends the process.  Call inside. */
static void check_cache(struct place place) {
    if (UNLIKELY(place.cache >= 0 && !tcaches_exists((unsigned)place.cache))) {
        fatal("invalid tcache id (%u).", (unsigned)place.cache);
    }
}

/* ---------------------------------------------------------------- looking */

/* The live object behind a pointer; anything else ends the process.  Where this call interrupts us
 * "live" is not proved. */
static struct heap_object look_or_refuse(const void *pointer, const char *function) {
    bool entered = life_enter();
    struct heap_object object = entered ? heap_look(pointer) : heap_locate(pointer);
    if (entered) {
        life_leave();
    }
    if (UNLIKELY(object.verdict != HEAP_LIVE)) {
        guard_refuse(function, pointer, &object);
    }
    return object;
}

EXPORT size_t PREFIXED(sallocx)(const void *pointer, int flags) {
    (void)flags;
    return tally_usable_size((void *)pointer);
}

/* May be the first call of all, before there is a table of sizes. */
EXPORT size_t PREFIXED(nallocx)(size_t size, int flags) {
    if (life_enter()) {
        life_leave();
    }
    return heap_size_for(size, place_parse_flags(flags).alignment);
}

/* ---------------------------------------------------------------- allocating */

/* A new object and its usable bytes; address NULL without memory. */
struct block {
    char *address;
    size_t usable;
    bool is_zero;
};

/* A block of the emergency areas has the size that was asked for. */
static struct block take_block(size_t size, const struct place_request *request) {
    struct block block = {NULL, size, false};
    if (UNLIKELY(size > PTRDIFF_MAX)) {
        return block;
    }
    if (UNLIKELY(!life_enter())) {
        block.address = emergency_alloc(size, max_size(request->alignment, SMALLEST));
        return block;
    }
    check_cache(request->place);
    block.address = sample_alloc(request->place, size, request->alignment, &block.is_zero);
    if (LIKELY(block.address == NULL)) {
        block.address = place_alloc(request->place, size, request->alignment, &block.is_zero);
    }
    block.usable = heap_size_for(size, request->alignment);
    fill_new(block.address, 0, &block.is_zero);
    life_leave_alloc();
    life_greet_thread();
    return block;
}

/* The size of the class is asked for, so that all of it may be cleared wherever the object comes
 * from.  0 when the fast path cannot serve this, or the first call is yet to come. */
static size_t fast_bytes(size_t size, const struct place_request *request) {
    bool is_plain = is_own_place(request->place) && request->alignment <= SMALLEST;
    return is_plain && size <= SMALL_MAX ? size_classes[size_class_of(size)].size : 0;
}

static __attribute__((noinline)) void *alloc_with_flags(size_t size, int flags) {
    struct place_request request = place_parse_flags(flags);
    size_t bytes = fast_bytes(size, &request);
    struct block block = {NULL, bytes, false};
    if (bytes != 0) {
        block.address = tally_malloc(bytes);
    } else {
        block = take_block(size, &request);
    }
    if (UNLIKELY(block.address == NULL)) {
        guard_fail("mallocx", ENOMEM);
    } else if (request.zero && !block.is_zero) {
        memset(block.address, 0, block.usable);
    }
    return block.address;
}

EXPORT void *PREFIXED(mallocx)(size_t size, int flags) {
    return LIKELY(flags == 0) ? tally_malloc(size) : alloc_with_flags(size, flags);
}

/* ---------------------------------------------------------------- freeing */

/* A handler that interrupts us has no choice of the cache. */
static void free_placed(void *pointer, struct place place, const char *function) {
    if (UNLIKELY(!life_enter())) {
        tally_free(pointer);
        return;
    }
    check_cache(place);
    struct heap_object object = heap_look(pointer);
    fill_freed(&object);
    if (UNLIKELY(object.verdict != HEAP_LIVE || !place_free(place, &object))) {
        guard_refuse(function, pointer, &object);
    }
    life_leave();
    life_greet_thread();
}

/* The arena is the object's own, whatever the flags say. */
static __attribute__((noinline)) void free_with_flags(void *pointer, int flags) {
    struct place place = {.arena = PLACE_OWN, .cache = place_parse_flags(flags).place.cache};
    if (place.cache == PLACE_OWN) {
        tally_free(pointer);
    } else if (pointer != NULL) {
        free_placed(pointer, place, "dallocx");
    }
}

EXPORT void PREFIXED(dallocx)(void *pointer, int flags) {
    if (LIKELY(flags == 0)) {
        tally_free(pointer);
    } else {
        free_with_flags(pointer, flags);
    }
}

static void free_sized_placed(void *pointer, size_t size, const struct place_request *request) {
    struct heap_object object = look_or_refuse(pointer, "sdallocx");
    size_t expected = heap_size_for(size, request->alignment);
    if (UNLIKELY(object.span != NULL && object.size != expected)) {
        guard_refuse_size("sdallocx", pointer, &object, size, expected);
    }
    struct place place = {.arena = PLACE_OWN, .cache = request->place.cache};
    free_placed(pointer, place, "sdallocx");
}

static __attribute__((noinline)) void free_sized_with_flags(void *pointer, size_t size, int flags) {
    struct place_request request = place_parse_flags(flags);
    if (pointer == NULL) {
        return;
    }
    if (request.place.cache != PLACE_OWN) {
        free_sized_placed(pointer, size, &request);
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

static bool is_aligned(const struct heap_object *object, size_t alignment) {
    return object->base % alignment == 0;
}

/* Is the object large, and would one of this size and alignment be? */
static bool stays_large(const struct heap_object *object, size_t size, size_t alignment) {
    return object->span != NULL && object->size_class == 0 &&
           size_class_aligned(size, alignment) == 0;
}

/* Gives a large object this size where it stands; false, with nothing changed, when it cannot. */
static bool resize_in_place(const struct heap_object *object, size_t size) {
    if (UNLIKELY(!life_enter())) {
        return false;
    }
    bool done = heap_resize(object, size);
    if (done) {
        bool zeroed = false;
        fill_new((void *)object->base, object->size, &zeroed);
    }
    life_leave_alloc();
    life_greet_thread();
    return done;
}

/* Moves the pages of a large object instead of copying them; they come to start at some unit. */
static void *move_pages(const struct heap_object *object, size_t size,
                        const struct place_request *request) {
    if (!is_own_place(request->place) || request->alignment > UNIT_BYTES || !life_enter()) {
        return NULL;
    }
    void *moved = heap_move(object, size);
    bool zeroed = false;
    fill_new(moved, object->size, &zeroed);
    life_leave_alloc();
    life_greet_thread();
    return moved;
}

/* The object with its new size, its contents kept, without copying; NULL when it has to be copied. */
static char *resize_cheaply(const struct heap_object *object, size_t size,
                            const struct place_request *request) {
    char *here = (char *)object->base;
    if (stays_large(object, size, request->alignment)) {
        bool done = is_aligned(object, request->alignment) && resize_in_place(object, size);
        return done ? here : move_pages(object, size, request);
    }
    bool is_same = object->span != NULL && object->size_class != 0 &&
                   object->size_class == size_class_aligned(size, request->alignment);
    return is_same && is_aligned(object, request->alignment) ? here : NULL;
}

static void clear_growth(char *address, size_t old_bytes, size_t bytes) {
    if (bytes > old_bytes) {
        memset(address + old_bytes, 0, bytes - old_bytes);
    }
}

static __attribute__((noinline)) void *realloc_with_flags(void *pointer, size_t size, int flags) {
    struct place_request request = place_parse_flags(flags);
    struct heap_object object = look_or_refuse(pointer, "rallocx");
    struct block block = {NULL, heap_size_for(size, request.alignment), false};
    if (UNLIKELY(block.usable == 0)) {
        guard_fail("rallocx", ENOMEM);
        return NULL;
    }
    block.address = resize_cheaply(&object, size, &request);
    if (block.address == NULL) {
        block = take_block(size, &request);
        if (block.address == NULL) {
            guard_fail("rallocx", ENOMEM);
            return NULL;
        }
        memcpy(block.address, pointer, min_size(object.size, block.usable));
        free_placed(pointer, (struct place){PLACE_OWN, request.place.cache}, "rallocx");
    }
    if (request.zero && !block.is_zero) {
        clear_growth(block.address, object.size, block.usable);
    }
    return block.address;
}

/* jemalloc leaves NULL and 0 bytes undefined; here they are a new object and the smallest. */
EXPORT void *PREFIXED(rallocx)(void *pointer, size_t size, int flags) {
    if (UNLIKELY(pointer == NULL)) {
        return PREFIXED(mallocx)(size, flags);
    }
    size = max_size(size, 1);
    return LIKELY(flags == 0) ? tally_realloc(pointer, size)
                              : realloc_with_flags(pointer, size, flags);
}

/* Tries `most` bytes first, and then `least` where that is more than it has. */
static void resize_between(const struct heap_object *object, size_t least, size_t most,
                           size_t alignment) {
    size_t usable_least = heap_size_for(least, alignment);
    size_t usable_most = heap_size_for(most, alignment);
    if (usable_most != object->size && resize_in_place(object, most)) {
        return;
    }
    if (usable_least > object->size && usable_least < usable_most) {
        (void)resize_in_place(object, least);
    }
}

/* Small objects keep their class, and with it their size. */
EXPORT size_t PREFIXED(xallocx)(void *pointer, size_t size, size_t extra, int flags) {
    struct place_request request = place_parse_flags(flags);
    struct heap_object object = look_or_refuse(pointer, "xallocx");
    if (heap_size_for(size, request.alignment) == 0 || !is_aligned(&object, request.alignment)) {
        return object.size;
    }
    size_t most = size + min_size(extra, heap_size_most() - size);
    if (!stays_large(&object, most, request.alignment)) {
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

/* A handler that interrupts us may try again later. */
EXPORT int PREFIXED(mallctl)(const char *name, void *oldp, size_t *oldlenp, void *newp,
                             size_t newlen) {
    if (UNLIKELY(!life_enter())) {
        return EAGAIN;
    }
    int error = ctl_by_name(name, oldp, oldlenp, newp, newlen);
    life_leave_alloc();
    life_greet_thread();
    return error;
}

EXPORT int PREFIXED(mallctlnametomib)(const char *name, size_t *mibp, size_t *miblenp) {
    if (UNLIKELY(!life_enter())) {
        return EAGAIN;
    }
    int error = ctl_name_to_mib(name, mibp, miblenp);
    life_leave_alloc();
    life_greet_thread();
    return error;
}

EXPORT int PREFIXED(mallctlbymib)(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp,
                                  void *newp, size_t newlen) {
    if (UNLIKELY(!life_enter())) {
        return EAGAIN;
    }
    int error = ctl_by_mib(mib, miblen, oldp, oldlenp, newp, newlen);
    life_leave_alloc();
    life_greet_thread();
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
    life_greet_thread();
}

/* ---------------------------------------------------------------- variables of the program */

/*
 * A program that is linked with the library may have a copy of a variable in its own memory, which the
 * loader then uses for all.  For two names of one variable that works when one of them is weak: the
 * linker then knows that they belong together.  So the library reads the other.
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

void jemalloc_init(void) {
    log_writer = &MESSAGE;
}

const char *jemalloc_conf(void) {
    return PREFIXED(malloc_conf);
}

const char *jemalloc_conf_harder(void) {
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
