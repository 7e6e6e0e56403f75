/* SPDX-License-Identifier: MIT
 *
 * tally.c - the questions only tally answers; see tally.h.
 */
#include <tally/tally.h>

#include "api/life.h"
#include "heap/heap.h"

EXPORT size_t tally_purge(void) {
    if (!life_enter()) {
        return 0;
    }
    size_t bytes = heap_trim();
    life_leave();
    return bytes;
}

EXPORT void tally_totals(struct tally_totals *totals) {
    struct heap_totals t = {0};
    if (life_enter()) {
        t = heap_totals();
        life_leave();
    }
    *totals = (struct tally_totals){
        .live = t.live,
        .cached = t.cached,
        .slab_free = t.slab_free,
        .large_rest = t.large_rest,
        .free_pages_kept = t.dirty,
        .mapped = t.mapped,
        .metadata = t.metadata,
    };
}

EXPORT size_t tally_held(void) {
    return limit_held();
}

/* A soft limit that is exceeded already is attended to on leaving. */
EXPORT void tally_set_limits(size_t soft, size_t hard) {
    if (life_enter()) {
        limit_set(soft, hard);
        life_leave();
    }
}

EXPORT void tally_on_soft_limit(void (*callback)(size_t held, void *context), void *context) {
    if (life_enter()) {
        limit_on_soft(callback, context);
        life_leave();
    }
}

EXPORT void tally_verify(void) {
    if (life_enter()) {
        heap_verify();
        life_leave();
    }
}

EXPORT const char *tally_version(void) {
    return TALLY_VERSION;
}
