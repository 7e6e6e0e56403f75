/* SPDX-License-Identifier: MIT
 *
 * place.h - allocating from, and freeing to, another place than the caller's own cache and arena.
 *
 * The flags of mallocx say which:
 *
 *      bit 31........20 19...........8  7   6   5....0
 *          arena+1      tcache+2        -  ZERO lg_align       a field of 0: nothing was asked for
 */
#pragma once

#include "base/common.h"

struct heap_object;

enum {
    PLACE_OWN = -1,     /* the caller's cache, or its arena */
    PLACE_NO_CACHE = -2 /* straight from the arena's slabs, straight back to them */
};

struct place {
    int arena; /* PLACE_OWN or an index; an arena that does not exist serves nobody */
    int cache; /* PLACE_OWN, PLACE_NO_CACHE or the number of one of tcaches.h */
};

/* What flags of mallocx ask for. */
struct place_request {
    size_t alignment;
    bool zero;
    struct place place;
};

enum { PLACE_ZERO = 0x40, PLACE_CACHE_SHIFT = 8, PLACE_CACHE_MASK = 0xfff, PLACE_ARENA_SHIFT = 20 };

/* Inline, since some languages allocate with flags alone.  As an int the number may be negative. */
static inline struct place_request place_parse_flags(int flags) {
    unsigned bits = (unsigned)flags;
    unsigned cache = bits >> PLACE_CACHE_SHIFT & PLACE_CACHE_MASK;
    unsigned arena = bits >> PLACE_ARENA_SHIFT;
    struct place_request request = {
        .alignment = (size_t)1 << (bits & 63),
        .zero = (bits & PLACE_ZERO) != 0,
        .place = {.arena = arena == 0 ? PLACE_OWN : (int)arena - 1, .cache = PLACE_OWN},
    };
    if (cache != 0) {
        request.place.cache = cache == 1 ? PLACE_NO_CACHE : (int)cache - 2;
    }
    return request;
}

/* An object of at least `size` bytes at a multiple of `alignment`, or NULL.  `*zeroed` is set only if
 * it reads as zeros. */
void *place_alloc(struct place place, size_t size, size_t alignment, bool *zeroed);

/* Frees an object that heap_look found live; false when another thread freed it meanwhile. */
bool place_free(struct place place, const struct heap_object *object);

/* A large object of an arena, or NULL; does not count for THREAD_EXACT. */
void *place_alloc_large(unsigned arena, size_t size, size_t alignment, bool *zeroed);
