/* SPDX-License-Identifier: MIT
 *
 * pinned.c - the free space that live objects keep from the kernel, object by object.
 *
 * A page of a slab can be given back when no object on it is live.  As long as there are, each of
 * them is to blame for the same part of what is free:
 *
 *      page    | live | free | free | live |      each live one keeps the space of one object
 *
 * Sampled objects do not lie among the others but in slabs of their own (track.c), and how full
 * those are says little: a class of which three objects were sampled has them on a page that is
 * almost empty.  What is wanted is the page that the object would be on if nobody had sampled it.
 * So its record keeps the address of the object that its thread got just before it, or that the
 * bin would have handed out next.  When the question comes, that page has k places of which some
 * other objects, L of them live, took all that were taken, and one of them only because the sampled
 * one did not.  If each of the k is the one with the same chance, the sampled object's share of
 * the page as it would be is on average (k - L) / (1 + L) places: what is free there now, divided
 * among those that live there and the sampled one.  Where nothing is live, the page would be there
 * for the sampled object alone, and all of it but the object itself is its share.
 *
 * Where most of a class are sampled, their slabs are what matters: see stash_is_wanted.
 *
 * Threads     The bin's lock is held while the bits of a page are copied; nothing waits for more.
 *             What caches hold carries the secret, which is read through a copy that cannot fault,
 *             because the program may have taken its rights to the page away.
 * Cost        About 5 us for a page, most of it the copy.  Where all are sampled there is none, and
 *             records in the order of their making mostly ask for the page that was last asked for:
 *             a million of them take 60 ms.
 */
#include "base/os_confined.h"
#include "base/os_timer.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "heap/slab.h"
#include "heap/thread.h"

/* ---------------------------------------------------------------- where it would be */

/* What the caller's magazine handed out last is still in its lowest slot.  A magazine that comes
 * from elsewhere may have anything there. */
static uintptr_t last_taken(unsigned c, unsigned arena) {
    uintptr_t take = tls.self != NULL ? tls.self->hot.rec[c].take : 0;
    if (take == 0 || tls.self->arena != arena) {
        return 0;
    }
    uintptr_t object = (uintptr_t)magazine_of_take(take)->slots[0];
    bool is_of_class = classmap_get(object) == 4 * c && classmap_arena(object) == arena;
    return is_of_class ? object : 0;
}

uintptr_t pinned_find_place(const void *object, unsigned c) {
    const struct span *slab = classmap_span((uintptr_t)object);
    if (slab == NULL) {
        return 0;
    }
    unsigned arena = slab->arena & ARENA_INDEX;
    uintptr_t near = last_taken(c, arena);
    return (near != 0 ? near : bin_next(arena_bin(arena, c))) >> PINNED_SHIFT;
}

/* ---------------------------------------------------------------- what is on a page */

/* What can be given back at once; a slab smaller than a page goes back as a whole. */
static size_t page_bytes_of(const struct size_class *sc) {
    return min_size(max_size(os_facts.page_bytes, SHEET_BYTES), sc->slab_mask + 1);
}

/* If word 1 cannot be read, nobody can say more than that the object is out. */
static bool is_in_cache(struct pinned_survey *survey, uintptr_t object) {
    enum { BYTES = sizeof(survey->copies[0].words) };
    uintptr_t start = align_down(object, BYTES);
    unsigned which = object / BYTES % 2; /* An object may begin on the page before. */
    if (survey->copies[which].address != start) {
        bool is_read = os_copy(survey->copies[which].words, start, BYTES, os_is_confined());
        survey->copies[which].address = is_read ? start : 0;
    }
    size_t word1 = (object - start) / sizeof(uint64_t) + 1;
    return survey->copies[which].address == start &&
           survey->copies[which].words[word1] == slab_secret;
}

/* How many bytes of [start, start + bytes) are also in [page, page + page_bytes). */
static size_t bytes_on_page(uintptr_t start, size_t bytes, uintptr_t page, size_t page_bytes) {
    return min_size(start + bytes, page + page_bytes) - max_size(start, page);
}

/* Of tracked objects the slab itself knows which are in a cache. */
static void count_page(struct pinned_survey *survey, unsigned c, uintptr_t page, bool is_tracked) {
    const struct size_class *sc = &size_classes[c];
    size_t page_bytes = page_bytes_of(sc);
    uintptr_t base = page & ~(uintptr_t)sc->slab_mask;
    unsigned first = (unsigned)((page - base) / sc->size);
    unsigned end =
        (unsigned)min_size((page + page_bytes - base + sc->size - 1) / sc->size, sc->total);
    uint64_t out[MOST_OBJECTS / 64] = {0};
    survey->pages[c].start = page;
    survey->pages[c].live = 0;
    survey->pages[c].live_bytes = 0;
    const struct span *slab = classmap_span(base);
    if (slab == NULL || !bin_copy_out(slab, c, base, first, end, out)) {
        return;
    }
    for (unsigned i = first; i < end; i++) {
        uintptr_t object = base + (uintptr_t)i * sc->size;
        if (out[i / 64] >> i % 64 & 1 && (is_tracked || !is_in_cache(survey, object))) {
            survey->pages[c].live++;
            survey->pages[c].live_bytes += bytes_on_page(object, sc->size, page, page_bytes);
        }
    }
}

double pinned_share(struct pinned_survey *survey, uintptr_t place, size_t usable) {
    if (place == 0 || usable > SMALL_MAX) {
        return 0;
    }
    unsigned c = size_class_of(usable);
    bool is_on_it = place & PINNED_OWN_PAGE;
    uintptr_t object = (place & ~(uintptr_t)PINNED_OWN_PAGE) << PINNED_SHIFT;
    size_t page_bytes = page_bytes_of(&size_classes[c]);
    double share = 0;
    for (uintptr_t page = align_down(object, page_bytes); page < object + usable;
         page += page_bytes) {
        if (survey->pages[c].start != page) {
            count_page(survey, c, page, is_on_it);
        }
        size_t its_own = bytes_on_page(object, usable, page, page_bytes);
        size_t unused = min_size(page_bytes - survey->pages[c].live_bytes, page_bytes - its_own);
        size_t sharers = max_size(survey->pages[c].live + (is_on_it ? 0u : 1u), 1);
        share += (double)unused / (double)sharers;
    }
    return share;
}
