/* SPDX-License-Identifier: MIT
 *
 * gperftools_extension.c - gperftools' questions about the heap (malloc_extension_c.h).
 *
 * gperftools' words for where bytes are, and what they mean here:
 *
 *      in use by the application    objects the program holds
 *      page heap, free              free pages that are kept
 *      central cache                free space in slabs
 *      transfer cache               depots
 *      thread caches                magazines
 *      unmapped                     addresses without memory: given back, or never touched
 *
 * These add up to the heap size, and together with our descriptors to the addresses used.  A
 * property that counts anything else in gperftools' design is unknown, rather than 0.
 *
 * Threads     A call that interrupts the allocator, in a signal handler, is told nothing.
 */
#include "api/gperftools_extension.h"

#include <gperftools/malloc_extension_c.h>
#include <string.h>
#include <tally/tally.h>

#include "api/life.h"
#include "api/names.h"
#include "api/slow.h"
#include "base/bits.h"
#include "base/os.h"
#include "control/control.h"
#include "heap/counts.h"
#include "opt/opt.h"
#include "prof/prof.h"

/* ---------------------------------------------------------------- figures */

static size_t depot_bytes(void) {
    size_t bytes = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        bytes += depot_count(c) * size_classes[c].size;
    }
    return bytes;
}

/* The figures are read at slightly different moments, and made to add up. */
static void fill_figures(struct extension_figures *f) {
    struct heap_totals t = heap_totals();
    struct dirty_purges purges = dirty_purges(CHUNK_DIRTY);
    f->allocated = t.live;
    f->page_free = t.dirty;
    f->central_free = t.slab_free - t.untouched;
    f->transfer_free = min_size(depot_bytes(), t.cached);
    f->thread_free = t.cached - f->transfer_free;
    size_t with_memory = f->allocated + f->page_free + f->central_free + t.cached;
    f->heap_size = max_size(t.mapped, with_memory);
    f->unmapped = f->heap_size - with_memory;
    f->metadata = t.metadata;
    f->committed = with_memory;
    f->physical = with_memory + t.metadata;
    f->slack = f->page_free + f->unmapped;
    f->thread_limit = (size_t)opt.thread_cache_bytes * os_facts.cpus;
    f->threads = t.threads;
    f->purge_times = purges.times;
    f->purge_calls = purges.calls;
    f->purged_bytes = heap_pages().purged;
    f->spans = t.large_blocks;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        size_t nslabs, nout, ncached;
        heap_class_counts(c, &nslabs, &nout, &ncached);
        f->spans += nslabs;
    }
}

bool extension_read(struct extension_figures *figures) {
    *figures = (struct extension_figures){0};
    if (!life_enter()) {
        return false;
    }
    fill_figures(figures);
    life_leave();
    return true;
}

/* ---------------------------------------------------------------- properties */

#define FIGURE(name) offsetof(struct extension_figures, name)
static const struct property {
    const char *name;
    size_t figure;
} properties[] = {
    {"generic.current_allocated_bytes", FIGURE(allocated)},
    {"generic.heap_size", FIGURE(heap_size)},
    {"generic.total_physical_bytes", FIGURE(physical)},
    {"tcmalloc.slack_bytes", FIGURE(slack)},
    {"tcmalloc.central_cache_free_bytes", FIGURE(central_free)},
    {"tcmalloc.transfer_cache_free_bytes", FIGURE(transfer_free)},
    {"tcmalloc.thread_cache_free_bytes", FIGURE(thread_free)},
    {"tcmalloc.current_total_thread_cache_bytes", FIGURE(thread_free)},
    {"tcmalloc.max_total_thread_cache_bytes", FIGURE(thread_limit)},
    {"tcmalloc.impl.thread_cache_count", FIGURE(threads)},
    {"tcmalloc.pageheap_free_bytes", FIGURE(page_free)},
    {"tcmalloc.pageheap_unmapped_bytes", FIGURE(unmapped)},
    {"tcmalloc.pageheap_committed_bytes", FIGURE(committed)},
    {"tcmalloc.pageheap_scavenge_count", FIGURE(purge_times)},
    {"tcmalloc.pageheap_decommit_count", FIGURE(purge_calls)},
    {"tcmalloc.pageheap_total_decommit_bytes", FIGURE(purged_bytes)},
};

/* The functions of a knob are called inside. */
static size_t get_sample_parameter(void) {
    return prof_is_active() ? (size_t)1 << prof_lg_sample() : 0;
}

static size_t get_heap_limit(void) {
    return limit_hard() >> 20;
}

static ssize_t decay_ms(void) {
    return arena_decay_ms(0, CHUNK_DIRTY);
}

static void set_decay_ms(ssize_t ms) {
    for (unsigned a = 0; a < arena_limit(); a++) {
        (void)arena_set_decay_ms(a, CHUNK_DIRTY, ms);
    }
    (void)arena_set_default_decay_ms(CHUNK_DIRTY, ms);
}

static size_t get_decommit(void) {
    return decay_ms() == 0;
}

static bool set_decommit(size_t value) {
    if ((value != 0) != (decay_ms() == 0)) {
        set_decay_ms(value != 0 ? 0 : (ssize_t)max_size((size_t)opt.dirty_decay_ms, 1));
    }
    return true;
}

/* The soft limit stays as it is. */
static bool set_heap_limit(size_t megabytes) {
    if (megabytes > SIZE_MAX >> 20) {
        return false;
    }
    limit_set(limit_soft(), megabytes << 20);
    return true;
}

static bool set_sample_parameter(size_t bytes) {
    if (bytes == 0) {
        prof_set_active(false);
    } else {
        prof_start(bits_nearest_log2(bytes));
    }
    triggers_restart();
    return true;
}

static const struct knob {
    const char *name;
    size_t (*get)(void);
    bool (*set)(size_t value);
} knobs[] = {
    {"tcmalloc.aggressive_memory_decommit", get_decommit, set_decommit},
    {"tcmalloc.heap_limit_mb", get_heap_limit, set_heap_limit},
    {"tcmalloc.sample_parameter", get_sample_parameter, set_sample_parameter},
};

static const struct knob *find_knob(const char *name) {
    for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
        if (strcmp(knobs[i].name, name) == 0) {
            return &knobs[i];
        }
    }
    return NULL;
}

static const struct property *find_property(const char *name) {
    for (size_t i = 0; i < sizeof(properties) / sizeof(properties[0]); i++) {
        if (strcmp(properties[i].name, name) == 0) {
            return &properties[i];
        }
    }
    return NULL;
}

FOREIGN int MallocExtension_GetNumericProperty(const char *name, size_t *value) {
    struct extension_figures figures;
    const struct knob *knob = find_knob(name);
    if (knob != NULL && life_enter()) {
        *value = knob->get();
        life_leave();
        return 1;
    }
    const struct property *property = find_property(name);
    if (property == NULL || !extension_read(&figures)) {
        return 0;
    }
    memcpy(value, (const char *)&figures + property->figure, sizeof(*value));
    return 1;
}

FOREIGN int MallocExtension_SetNumericProperty(const char *name, size_t value) {
    const struct knob *knob = find_knob(name);
    if (knob == NULL || !life_enter()) {
        return 0;
    }
    bool done = knob->set(value);
    life_leave_alloc();
    return done;
}

/* ---------------------------------------------------------------- objects */

/* Live objects, by the number of bits of their size. */
struct blocks {
    size_t count, bytes;
    size_t histogram[64];
};

static void add_blocks(struct blocks *blocks, size_t size, size_t count) {
    unsigned bucket = 64 - (unsigned)__builtin_clzll(size); /* Sizes are not 0 and below 2^63. */
    blocks->histogram[bucket] += count;
    blocks->count += count;
}

static void add_large(struct blocks *blocks) {
    for (unsigned a = 0; a < arena_limit(); a++) {
        for (unsigned i = 0; i < LEXTENT_CLASSES; i++) {
            add_blocks(blocks, counts_lextent_size(i), arena_count_large(a, i));
        }
    }
}

static void read_blocks(struct blocks *blocks) {
    *blocks = (struct blocks){0};
    if (!life_enter()) {
        return;
    }
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        size_t nslabs, nout, ncached;
        heap_class_counts(c, &nslabs, &nout, &ncached);
        add_blocks(blocks, size_classes[c].size, nout - ncached);
    }
    add_large(blocks);
    blocks->bytes = heap_totals().live;
    life_leave();
}

FOREIGN int MallocExtension_MallocMemoryStats(int *count, size_t *total, int histogram[64]) {
    struct blocks blocks;
    read_blocks(&blocks);
    *count = saturate_int(blocks.count);
    *total = blocks.bytes;
    for (unsigned i = 0; i < 64; i++) {
        histogram[i] = saturate_int(blocks.histogram[i]);
    }
    return 1;
}

static int is_live(const void *pointer) {
    return pointer == NULL || slow_look(pointer).verdict == HEAP_LIVE;
}

FOREIGN int MallocExtension_VerifyAllMemory(void) {
    return 1;
}

FOREIGN int MallocExtension_VerifyNewMemory(const void *pointer) {
    return is_live(pointer);
}

FOREIGN int MallocExtension_VerifyArrayNewMemory(const void *pointer) {
    return is_live(pointer);
}

FOREIGN int MallocExtension_VerifyMallocMemory(const void *pointer) {
    return is_live(pointer);
}

FOREIGN MallocExtension_Ownership MallocExtension_GetOwnership(const void *pointer) {
    return slow_look(pointer).verdict != HEAP_FOREIGN ? MallocExtension_kOwned
                                                      : MallocExtension_kNotOwned;
}

FOREIGN size_t MallocExtension_GetAllocatedSize(const void *pointer) {
    return tally_usable_size((void *)(uintptr_t)pointer);
}

/* May be the first call of all, before there is a table of sizes. */
FOREIGN size_t MallocExtension_GetEstimatedAllocatedSize(size_t size) {
    (void)life_ready();
    return heap_size_for(size, 1);
}

/* ---------------------------------------------------------------- giving back */

FOREIGN size_t MallocExtension_GetThreadCacheSize(void) {
    size_t bytes = 0;
    if (life_enter()) {
        bytes = thread_cached_bytes();
        life_leave();
    }
    return bytes;
}

FOREIGN void MallocExtension_MarkThreadIdle(void) {
    if (life_enter()) {
        (void)ctl_by_name("thread.idle", NULL, NULL, NULL, 0);
        life_leave();
    }
}

FOREIGN void MallocExtension_MarkThreadTemporarilyIdle(void) {
    MallocExtension_MarkThreadIdle();
}

FOREIGN void MallocExtension_MarkThreadBusy(void) {
}

FOREIGN void MallocExtension_ReleaseFreeMemory(void) {
    (void)tally_purge();
}

/* A purge gives everything back at once, and what exceeds the request counts for later requests,
 * though for no more than one like it: what is free now says nothing about later. */
FOREIGN void MallocExtension_ReleaseToSystem(size_t bytes) {
    static _Atomic size_t credit; /* bytes given back beyond what was asked for */
    size_t before = credit, after;
    do {
        after = before >= bytes ? before - bytes : 0;
    } while (!atomic_compare_exchange_weak(&credit, &before, after));
    if (before >= bytes) {
        return;
    }
    size_t went = tally_purge();
    size_t wanted = bytes - before;
    credit = min_size(went - min_size(went, wanted), bytes);
}

enum { RATE_1_MS = 1000 }; /* the default of the option dirty_decay_ms */

FOREIGN void MallocExtension_SetMemoryReleaseRate(double rate) {
    if (!(rate >= 0) || !life_enter()) {
        return;
    }
    double ms = rate > 0 ? RATE_1_MS / rate : (double)INT32_MAX;
    set_decay_ms(ms < INT32_MAX ? (ssize_t)ms : -1);
    life_leave();
}

FOREIGN double MallocExtension_GetMemoryReleaseRate(void) {
    ssize_t ms = RATE_1_MS;
    if (life_enter()) {
        ms = decay_ms();
        life_leave();
    }
    return ms < 0 ? 0 : (double)RATE_1_MS / (double)max_size((size_t)ms, 1);
}
