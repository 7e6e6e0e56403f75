/* SPDX-License-Identifier: MIT
 *
 * tally.c - the questions only tally answers; see tally.h.
 */
#include <tally/tally.h>

#include "api/life.h"
#include "heap/heap.h"

EXPORT size_t tally_purge(void) {
    life_prepare();
    return heap_trim();
}

EXPORT void tally_totals(struct tally_totals *totals) {
    life_prepare();
    struct heap_totals t = heap_totals();
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

EXPORT void tally_verify(void) {
    life_prepare();
    heap_verify();
}

EXPORT const char *tally_version(void) {
    return TALLY_VERSION;
}
