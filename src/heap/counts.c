/* SPDX-License-Identifier: MIT
 *
 * counts.c - derives the figures of counters.def from the heap's own state.
 *
 * Who counts what:
 *
 *      a bin (bin.h)            objects that left and entered its slabs, slabs, visits
 *      a thread's heap          requests, as what came into its magazines less what is there
 *      an arena (arena.h)       requests past caches and of past heaps, large objects, pages
 *      the page heap            free runs and purges; all of it is reported under arena 0
 *      a lock (lock.h)          how often it was taken and waited for
 *
 * So at rest, over all arenas and with sizes of classes:
 *
 *      sum of curregs * size - tcache_bytes + large.allocated == stats.allocated
 *      sum of pactive * page == stats.active
 *      the same for mapped, retained, resident and metadata (base)
 *
 * Threads     Reads take no lock, except the walk over free runs, which holds the page heap's for a
 *             few chunks at a time.  What destroyed arenas had counted is guarded by past_lock.
 * Read next   thread.h for the two sums behind the requests.
 */
#include "heap/counts.h"

#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/heap.h"
#include "heap/hooked.h"
#include "heap/large.h"
#include "heap/meta.h"
#include "heap/region.h"
#include "heap/thread.h"

static struct lock past_lock = LOCK_OF_RANK(RANK_COUNTS);
SPARSE static struct arena_counts destroyed; /* guarded by past_lock */
SPARSE static struct arena_counts one_arena; /* guarded by past_lock; too large for a stack */

/* A fork in the middle of an addition may lose a few of its numbers. */
static void enter(void) {
    (void)lock_acquire(&past_lock);
}

/* ---------------------------------------------------------------- the whole heap */

static size_t all_active_bytes(void) {
    size_t pages = 0;
    for (unsigned a = 0; a < arena_limit(); a++) {
        if (arena_get(a) != NULL) {
            pages += __atomic_load_n(arena_pactive(a), __ATOMIC_RELAXED);
        }
    }
    return pages * arena_page_bytes();
}

/* Addresses of the page heap that are neither used nor kept. */
static size_t retained_bytes(const struct pages_totals *pages) {
    size_t held = pages->used + pages->dirty + pages->muzzy;
    return pages->mapped - min_size(held, pages->mapped);
}

void counts_read_totals(struct total_counts *totals) {
    struct pages_totals pages = heap_pages();
    size_t active = all_active_bytes();
    size_t held = active + pages.dirty + pages.muzzy + meta_bytes();
    *totals = (struct total_counts){
        .allocated = heap_totals().live,
        .active = active,
        .metadata = meta_bytes(),
        .metadata_edata = region_description_bytes(),
        .metadata_rtree = classmap_table_bytes(),
        .resident = held,
        .mapped = held,
        .retained = retained_bytes(&pages),
    };
}

/* ---------------------------------------------------------------- one arena */

/* An acquisition that found the lock held took it over from another owner. */
void counts_read_lock(const struct lock *lock, struct mutex_counts *counts) {
    struct lock_counts read = lock_read_counts(lock);
    *counts = (struct mutex_counts){
        .num_ops = read.taken,
        .num_wait = read.slept,
        .num_spin_acq = read.spun,
        .num_owner_switch = read.slept + read.spun,
        .total_wait_time = read.slept_ns,
        .max_wait_time = read.longest_ns,
        .max_num_thds = read.most_sleepers,
    };
}

static void read_bin(const struct bin *bin, struct bin_counts *counts) {
    counts->curregs = bin_nout(bin);
    counts->nmalloc = count_read(&bin->nmalloc);
    counts->ndalloc = counts->nmalloc - counts->curregs;
    counts->nfills = count_read(&bin->nfills);
    counts->nflushes = count_read(&bin->nflushes);
    counts->nslabs = count_read(&bin->nmade);
    counts->nreslabs = count_read(&bin->nreslabs);
    counts->curslabs = __atomic_load_n(&bin->nslabs, __ATOMIC_RELAXED);
    counts->nonfull_slabs = __atomic_load_n(&bin->nonfull, __ATOMIC_RELAXED);
    counts_read_lock(&bin->lock, &counts->mutex);
}

static void add_bin(struct kind_counts *small, const struct bin_counts *bin, unsigned size_class) {
    small->allocated += bin->curregs * size_classes[size_class].size;
    small->nmalloc += bin->nmalloc;
    small->ndalloc += bin->ndalloc;
    small->nrequests += bin->nrequests;
    small->nfills += bin->nfills;
    small->nflushes += bin->nflushes;
}

static void merge_bin(struct bin_counts *sum, const struct bin_counts *one);

/* A class is the sum of all its bins. */
static void read_bins(unsigned arena, unsigned size_class, struct bin_counts *counts) {
    read_bin(arena_bin(arena, size_class), counts);
    for (unsigned set = ARENA_SET_USUAL + 1; set < ARENA_SETS; set++) {
        const struct bin *bin = arena_bin_of_set(arena, set, size_class);
        if (bin != NULL) {
            struct bin_counts more = {0};
            read_bin(bin, &more);
            merge_bin(counts, &more);
        }
    }
}

static void read_small(unsigned index, const struct thread_sums *threads,
                       struct arena_counts *counts) {
    const struct arena *arena = arena_get(index);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        struct bin_counts *bin = &counts->bins[c - 1];
        read_bins(index, c, bin);
        bin->nrequests = threads->requests[c] + count_read(&arena->sums.requests[c]);
        add_bin(&counts->small, bin, c);
        counts->tcache_bytes += threads->cached[c] * size_classes[c].size;
    }
}

/* Large objects come one at a time, and one on a shelf counts as freed: each is a request and a
 * fill. */
static void read_large(unsigned arena, struct arena_counts *counts) {
    struct large_sums sums;
    large_read_sums(arena, &sums);
    for (unsigned i = 0; i < LEXTENT_CLASSES; i++) {
        counts->lextents[i] = (struct lextent_counts){
            .nmalloc = sums.nmalloc[i],
            .ndalloc = sums.ndalloc[i],
            .nrequests = sums.nmalloc[i],
            .curlextents = sums.nmalloc[i] - sums.ndalloc[i],
        };
        counts->large.nmalloc += sums.nmalloc[i];
        counts->large.ndalloc += sums.ndalloc[i];
    }
    counts->large.nrequests = counts->large.nfills = counts->large.nmalloc;
    counts->large.allocated = sums.bytes;
}

static void add_free_run(unsigned kind, size_t units, void *context) {
    assert(kind < PAGES_KINDS && units > 0);
    struct extent_counts *counts = context;
    size_t bytes = units * UNIT_BYTES;
    counts += counts_extent_of(bytes);
    switch (kind) {
    case CHUNK_DIRTY:
        counts->ndirty++;
        counts->dirty_bytes += bytes;
        break;
    case CHUNK_MUZZY:
        counts->nmuzzy++;
        counts->muzzy_bytes += bytes;
        break;
    default:
        counts->nretained++;
        counts->retained_bytes += bytes;
    }
}

static void read_purges(struct arena_counts *counts) {
    size_t unit_pages = UNIT_BYTES / arena_page_bytes();
    struct dirty_purges dirty = dirty_purges(CHUNK_DIRTY);
    struct dirty_purges muzzy = dirty_purges(CHUNK_MUZZY);
    counts->dirty_npurge = dirty.times;
    counts->dirty_nmadvise = dirty.calls;
    counts->dirty_purged = dirty.units * unit_pages;
    counts->muzzy_npurge = muzzy.times;
    counts->muzzy_nmadvise = muzzy.calls;
    counts->muzzy_purged = muzzy.units * unit_pages;
}

/* What all arenas share is reported under the first. */
static void read_shared(struct arena_counts *counts) {
    struct pages_totals pages = pages_totals();
    counts->pdirty = pages.dirty / arena_page_bytes();
    counts->pmuzzy = pages.muzzy / arena_page_bytes();
    counts->retained = retained_bytes(&pages);
    counts->base = meta_bytes();
    counts->metadata_edata = region_description_bytes();
    counts->metadata_rtree = classmap_table_bytes();
    counts->abandoned_vm = large_lost_bytes();
    read_purges(counts);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        counts->tcache_bytes += depot_count(c) * size_classes[c].size;
    }
    pages_walk_free(add_free_run, counts->extents);
    counts_read_lock(pages_counted_lock(), &counts->mutexes[ARENA_MUTEX_EXTENTS_DIRTY]);
    counts_read_lock(meta_lock(), &counts->mutexes[ARENA_MUTEX_BASE]);
    counts_read_lock(thread_list_lock(), &counts->mutexes[ARENA_MUTEX_TCACHE_LIST]);
}

/* The arena's own page heap, if it has, or had, extent hooks. */
static size_t read_hooked(unsigned arena, struct arena_counts *counts) {
    if (arena_hooked(arena) == NULL) {
        return 0;
    }
    struct hooked_totals pages = hooked_totals(arena);
    counts->pdirty += pages.dirty / arena_page_bytes();
    counts->pmuzzy += pages.muzzy / arena_page_bytes();
    size_t held = pages.used + pages.dirty + pages.muzzy;
    return pages.mapped - min_size(held, pages.mapped);
}

/* An arena that nobody has used yet has its times alone. */
static void read_arena(unsigned arena, struct arena_counts *counts) {
    const struct arena *from = arena_get(arena);
    struct thread_sums threads = thread_read_arena(arena);
    counts->nthreads = threads.threads;
    counts->dirty_decay_ms = arena_decay_ms(arena, CHUNK_DIRTY);
    counts->muzzy_decay_ms = arena_decay_ms(arena, CHUNK_MUZZY);
    if (from == NULL) {
        return;
    }
    counts->uptime =
        (os_now_ms() - __atomic_load_n(&from->sums.born_ms, __ATOMIC_RELAXED)) * 1000000;
    counts->pactive = __atomic_load_n(&from->sums.pactive, __ATOMIC_RELAXED);
    read_small(arena, &threads, counts);
    read_large(arena, counts);
    if (arena == 0) {
        read_shared(counts);
    }
    counts->retained += read_hooked(arena, counts);
    size_t pages = counts->pactive + counts->pdirty + counts->pmuzzy;
    counts->mapped = counts->resident = pages * arena_page_bytes() + counts->base;
}

bool counts_read_arena(unsigned arena, struct arena_counts *counts) {
    memset(counts, 0, sizeof(*counts));
    bool exists = arena_exists(arena);
    if (exists) {
        read_arena(arena, counts);
    }
    return exists;
}

/* ---------------------------------------------------------------- arenas that are gone */

void counts_read_destroyed(struct arena_counts *counts) {
    enter();
    *counts = destroyed;
    lock_release(&past_lock);
}

/* What still exists stays with the arena's index and does not belong to the past. */
static void leave_out_present(struct arena_counts *counts) {
    for (unsigned i = 0; i < BIN_CLASSES; i++) {
        struct bin_counts *bin = &counts->bins[i];
        assert(bin->curregs <= bin->nmalloc && bin->curslabs <= bin->nslabs);
        counts->small.nmalloc -= bin->curregs;
        bin->nmalloc -= bin->curregs;
        bin->nslabs -= bin->curslabs;
        bin->curregs = bin->curslabs = bin->nonfull_slabs = 0;
    }
    counts->small.allocated = 0;
    counts->nthreads = 0;
    counts->pactive = counts->tcache_bytes = 0;
    counts->mapped = counts->resident = 0;
}

static void restart_arena(unsigned index) {
    struct arena *arena = arena_get(index);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        for (unsigned set = 0; set < ARENA_SETS; set++) {
            struct bin *bin = arena_bin_of_set(index, set, c);
            if (bin != NULL) {
                bin_restart_counts(bin);
            }
        }
        __atomic_store_n(&arena->sums.requests[c], 0, __ATOMIC_RELAXED);
    }
    for (unsigned i = 0; i < LEXTENT_CLASSES; i++) {
        __atomic_store_n(&arena->sums.lextents[i].nmalloc, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&arena->sums.lextents[i].ndalloc, 0, __ATOMIC_RELAXED);
    }
}

void counts_note_destroyed(unsigned arena) {
    enter();
    memset(&one_arena, 0, sizeof(one_arena));
    read_arena(arena, &one_arena);
    leave_out_present(&one_arena);
    counts_merge(&destroyed, &one_arena);
    restart_arena(arena);
    lock_release(&past_lock);
}

void counts_reset_mutexes(void) {
    lock_reset_counts(pages_counted_lock());
    lock_reset_counts(meta_lock());
    lock_reset_counts(thread_list_lock());
    for (unsigned a = 0; a < arena_limit(); a++) {
        for (unsigned set = 0; set < ARENA_SETS; set++) {
            struct bin *bins = arena_bin_of_set(a, set, 0);
            for (unsigned c = 1; bins != NULL && c < CLASS_COUNT; c++) {
                lock_reset_counts(&bins[c].lock);
            }
        }
    }
}

/* ---------------------------------------------------------------- merging */

enum merge_rule { MERGE_SUM, MERGE_MAX, MERGE_NONE };

static uint64_t merged(enum merge_rule rule, uint64_t a, uint64_t b) {
    switch (rule) {
    case MERGE_SUM:
        return a + b;
    case MERGE_MAX:
        return max_size(a, b);
    case MERGE_NONE:
        break;
    }
    return UINT64_MAX;
}

#define FIELD(name, type, merge, help)                                                             \
    sum->name = (type)merged(MERGE_##merge, (uint64_t)sum->name, (uint64_t)one->name);

static void merge_mutex(struct mutex_counts *sum, const struct mutex_counts *one) {
#define MUTEX FIELD
#include "heap/counters.def"
#undef MUTEX
}

static void merge_bin(struct bin_counts *sum, const struct bin_counts *one) {
#define BIN FIELD
#include "heap/counters.def"
#undef BIN
    merge_mutex(&sum->mutex, &one->mutex);
}

static void merge_lextent(struct lextent_counts *sum, const struct lextent_counts *one) {
#define LEXTENT FIELD
#include "heap/counters.def"
#undef LEXTENT
}

static void merge_extent(struct extent_counts *sum, const struct extent_counts *one) {
#define EXTENT FIELD
#include "heap/counters.def"
#undef EXTENT
}

static void merge_kind(struct kind_counts *sum, const struct kind_counts *one) {
#define KIND FIELD
#include "heap/counters.def"
#undef KIND
}

void counts_merge(struct arena_counts *sum, const struct arena_counts *one) {
#define ARENA FIELD
#include "heap/counters.def"
#undef ARENA
    merge_kind(&sum->small, &one->small);
    merge_kind(&sum->large, &one->large);
    for (unsigned i = 0; i < BIN_CLASSES; i++) {
        merge_bin(&sum->bins[i], &one->bins[i]);
    }
    for (unsigned i = 0; i < LEXTENT_CLASSES; i++) {
        merge_lextent(&sum->lextents[i], &one->lextents[i]);
    }
    for (unsigned i = 0; i < EXTENT_CLASSES; i++) {
        merge_extent(&sum->extents[i], &one->extents[i]);
    }
    for (unsigned i = 0; i < ARENA_MUTEXES; i++) {
        merge_mutex(&sum->mutexes[i], &one->mutexes[i]);
    }
}

/* ---------------------------------------------------------------- classes of sizes */

/* Four classes per doubling above `2^lg`. */
static size_t quarter_size(unsigned lg, unsigned index) {
    size_t base = (size_t)1 << (lg + index / 4);
    return base + (index % 4 + 1) * (base / 4);
}

static unsigned quarter_of(unsigned lg, unsigned classes, size_t size) {
    if (size <= (size_t)1 << lg) {
        return 0;
    }
    unsigned log = bits_floor_log2(size - 1);
    unsigned index = (log - lg) * 4 + ((unsigned)((size - 1) >> (log - 2)) & 3);
    return (unsigned)min_size(index, classes - 1);
}

enum { LG_LEXTENT = 15, LG_EXTENT = 14 };

size_t counts_lextent_size(unsigned index) {
    return quarter_size(LG_LEXTENT, index);
}

unsigned counts_lextent_of(size_t size) {
    return quarter_of(LG_LEXTENT, LEXTENT_CLASSES, size);
}

size_t counts_extent_size(unsigned index) {
    return quarter_size(LG_EXTENT, index);
}

unsigned counts_extent_of(size_t size) {
    return quarter_of(LG_EXTENT, EXTENT_CLASSES, size);
}
