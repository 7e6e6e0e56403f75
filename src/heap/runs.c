/* SPDX-License-Identifier: MIT
 *
 * runs.c - sets of runs of free chunks, by length.
 *
 *      chunks    | used |  free   free   free  | used |
 *      run                 3       -      3                  first and last know the length
 *
 * So neighbours join in constant time.  Runs of up to 32 chunks have a set for each length, longer
 * ones share a set per doubling, ordered longest first: if any run of a set suffices, its first one
 * does.
 *
 * Threads     Guarded by the page heap's lock.
 * Invariant   A free chunk belongs to exactly one run, and runs that touch are joined.
 */
#include "heap/runs.h"

#include "base/log.h"
#include "heap/classmap.h"
#include "heap/pages.h"

enum {
    EXACT_RUNS = 32,             /* runs of 1 .. 32 chunks have a set each ... */
    SETS = EXACT_RUNS + 21,      /* ... longer ones one per doubling, to all 2^25 chunks */
    LONGEST_RUN = (1 << 16) - 1, /* longer ones rank alike; in chunks */
};

static struct { struct pairing_node *sets[SETS]; } g;

static struct chunk *chunk_of_node(struct pairing_node *node) {
    return (struct chunk *)((char *)node - offsetof(struct chunk, node));
}

static unsigned set_of(size_t length) {
    assert(length >= 1);
    return (unsigned)(length <= EXACT_RUNS ? length - 1 : EXACT_RUNS + bits_floor_log2(length) - 5);
}

static void insert(struct chunk *first, uint32_t length) {
    assert(pages_is_mine() && length >= 1 && first->run == 0 && first->bucket == 0);
    classmap_neighbour(first, (ptrdiff_t)length - 1)->run = length;
    first->run = length;
    first->starts_run = 1;
    uint64_t rank = LONGEST_RUN - min_size(length, LONGEST_RUN);
    pairing_insert(&g.sets[set_of(length)], &first->node, rank << ADDRESS_BITS | first->base);
}

static void remove(struct chunk *first) {
    assert(first->starts_run && first->run > 0);
    assert(pages_is_mine());
    pairing_remove(&g.sets[set_of(first->run)], &first->node);
    first->starts_run = 0;
    classmap_neighbour(first, (ptrdiff_t)first->run - 1)->run = 0;
    first->run = 0;
}

/* A run is found from a neighbour: its first and its last chunk know the length. */
static struct chunk *run_before(const struct chunk *chunk) {
    struct chunk *last = classmap_neighbour(chunk, -1);
    if (last == NULL || last->used != 0 || last->run == 0) {
        return NULL;
    }
    return classmap_neighbour(last, 1 - (ptrdiff_t)last->run);
}

static struct chunk *run_after(const struct chunk *chunk) {
    struct chunk *first = classmap_neighbour(chunk, 1);
    return first != NULL && first->used == 0 && first->run != 0 ? first : NULL;
}

void runs_add(struct chunk *first, uint32_t length) {
    assert(length >= 1 && first->used == 0 && first->owner == 0);
    struct chunk *after = run_after(classmap_neighbour(first, (ptrdiff_t)length - 1));
    if (after != NULL) {
        length += after->run;
        remove(after);
    }
    struct chunk *before = run_before(first);
    if (before != NULL) {
        length += before->run;
        remove(before);
        first = before;
    }
    insert(first, length);
}

struct chunk *runs_find(size_t chunks, size_t alignment_chunks) {
    size_t wanted = chunks + alignment_chunks - 1;
    for (unsigned s = set_of(wanted); s < SETS; s++) {
        if (g.sets[s] != NULL && chunk_of_node(g.sets[s])->run >= wanted) {
            return chunk_of_node(g.sets[s]);
        }
    }
    return NULL;
}

struct chunk *runs_cut(struct chunk *first, size_t chunks, size_t alignment_chunks) {
    assert(first->starts_run && first->run >= chunks + alignment_chunks - 1);
    uint32_t length = first->run;
    remove(first);
    uintptr_t aligned = align_up(first->base, alignment_chunks * CHUNK_BYTES);
    uint32_t before = (uint32_t)((aligned - first->base) / CHUNK_BYTES);
    struct chunk *taken = classmap_chunk(aligned);
    assert(taken != NULL && taken->used == 0);
    if (before > 0) {
        insert(first, before);
    }
    if (length > before + chunks) {
        insert(classmap_neighbour(taken, (ptrdiff_t)chunks), length - before - (uint32_t)chunks);
    }
    return taken;
}

void runs_reset(void) {
    for (unsigned s = 0; s < SETS; s++) {
        g.sets[s] = NULL;
    }
}

size_t runs_verify(void) {
    size_t runs = 0;
    for (unsigned s = 0; s < SETS; s++) {
        runs += pairing_verify(g.sets[s]);
    }
    return runs;
}

void runs_verify_chunk(const struct chunk *chunk) {
    if (chunk->starts_run) {
        ensure(chunk->used == 0);
        ensure(classmap_neighbour(chunk, (ptrdiff_t)chunk->run - 1)->run == chunk->run);
        ensure(run_before(chunk) == NULL);
    }
}
