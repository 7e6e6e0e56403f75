/* SPDX-License-Identifier: MIT
 *
 * census.c - every object there is, for the leak checker, which has stopped all other threads.
 *
 * A slab knows which objects it has handed out, to the program or to a cache.  Those in a cache of
 * any kind carry the secret, and tracked ones among them have no number.
 */
#include "heap/classmap.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "heap/slab.h"

static bool find_in_slab(const struct span *slab, uintptr_t address, struct census_object *object) {
    const struct size_class *sc = slab_class(slab);
    uint32_t index = size_class_index(sc, (uint32_t)(address - slab->base));
    *object =
        (struct census_object){slab->base + (uintptr_t)index * sc->size, sc->size, slab, index};
    return index < sc->total && slab_is_out(slab, index);
}

bool census_find(uintptr_t address, struct census_object *object) {
    const struct span *span = classmap_span(address);
    if (span == NULL || !span_is_owned(span)) {
        return false;
    }
    if (span->kind == SPAN_SLAB) {
        return find_in_slab(span, address, object);
    }
    *object = (struct census_object){span->base, span->bytes, span, 0};
    return address - span->base < span->bytes;
}

bool census_is_live(const struct census_object *object) {
    const struct span *span = object->span;
    if (span->kind != SPAN_SLAB) {
        return true;
    }
    if (span->arena & ARENA_TRACKED && span->ids[object->index] == 0) {
        return false;
    }
    return slab_word1((const void *)object->base) != slab_secret;
}

uint32_t census_id(const struct census_object *object) {
    const struct span *span = object->span;
    if (span->kind != SPAN_SLAB) {
        return span->id;
    }
    return span->arena & ARENA_TRACKED ? span->ids[object->index] : 0;
}

/* ---------------------------------------------------------------- all of them */

struct census {
    void (*visit_chunk)(uintptr_t base, void *context);
    void (*visit)(const struct census_object *object, void *context);
    void *context;
};

static void visit_slab(const struct span *slab, const struct census *census) {
    struct census_object object;
    for (unsigned i = 0; i < slab_class(slab)->total; i++) {
        if (find_in_slab(slab, slab->base + (uintptr_t)i * slab_class(slab)->size, &object)) {
            census->visit(&object, census->context);
        }
    }
}

static void visit_spans(const struct chunk *chunk, const struct census *census) {
    struct census_object object;
    for (unsigned unit = 0; unit < CHUNK_UNITS; unit++) {
        bool continues = unit == 0 && chunk->continues != 0;
        const struct span *span = &chunk->span[unit];
        if (chunk->first[unit] != unit || continues) {
            continue;
        }
        if (span->kind == SPAN_SLAB) {
            visit_slab(span, census);
        } else if (span->kind == SPAN_LARGE && census_find(span->base, &object)) {
            census->visit(&object, census->context);
        }
    }
}

static void walk(const struct census *census) {
    for (uint32_t i = classmap_first_leaf; i <= classmap_last_leaf; i++) {
        chunk_slot *leaf = atomic_load_explicit(&classmap_leaves[i], memory_order_acquire);
        for (unsigned k = 0; leaf != NULL && k < LEAF_CHUNKS; k++) {
            const struct chunk *chunk = atomic_load_explicit(&leaf[k], memory_order_acquire);
            if (chunk == NULL || chunk->used == 0) {
                continue;
            }
            if (census->visit_chunk != NULL) {
                census->visit_chunk(chunk->base, census->context);
            } else {
                visit_spans(chunk, census);
            }
        }
    }
}

void census_walk(void (*visit)(const struct census_object *object, void *context), void *context) {
    walk(&(struct census){.visit = visit, .context = context});
}

void census_walk_chunks(void (*visit)(uintptr_t base, void *context), void *context) {
    walk(&(struct census){.visit_chunk = visit, .context = context});
}
