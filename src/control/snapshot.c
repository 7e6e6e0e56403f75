/* SPDX-License-Identifier: MIT
 *
 * snapshot.c - one copy of every counter, which mallctl's epoch and the statistics renew.
 *
 *      heap --count, no lock--> staging --copy, locked--> one struct arena_counts per arena
 *                                  '----merge--> sum --copy, locked--> all arenas together
 *
 * Counting may take long in a large heap, so it happens without a lock in a buffer of the caller's
 * own.  Of two concurrent refreshes the one that began later wins, arena by arena.  Memory comes
 * from meta.c: about 20 KiB per arena, once, and two such pieces for each concurrent refresh.
 *
 * Threads     One lock; it is held for a copy of 20 KiB at most.  Its holder may vanish in a fork,
 *             but there is nothing to repair: lists and pointers change in one store each, and an
 *             interrupted copy only mixes figures of two moments, which the next refresh puts
 *             right.
 */
#include "control/snapshot.h"

#include <stdatomic.h>
#include <string.h>

#include "base/lock.h"
#include "heap/counts.h"

/* The buffer in which a refresh counts. */
struct staging {
    struct staging *next;
    struct arena_counts one;
    struct arena_counts sum;
};

/* One arena.  Only what `counts` leads to is large. */
struct slot {
    struct arena_counts *_Atomic counts;
    uint64_t ticket; /* of the refresh it comes from */
    bool is_there;   /* at that time */
};

enum { SLOT_ALL = ARENA_INDICES, SLOT_DESTROYED, SLOTS };

static struct {
    struct lock lock; /* guards everything */
    struct staging *spare;
    uint64_t ticket;        /* refreshes begun */
    _Atomic uint64_t epoch; /* refreshes done; read without the lock, as arenas is */
    _Atomic unsigned arenas;
    struct total_counts totals;
    uint64_t totals_ticket;
    struct control_background background;
    struct mutex_counts locks[SNAPSHOT_LOCKS];
} g = {.lock = LOCK_OF_RANK(RANK_CTL)};

/* Apart from g, whose initial values would make all of this a part of the file. */
SPARSE static struct slot slots[SLOTS]; /* guarded by g.lock */

enum { LOCK_CTL = 2 }; /* in snapshot_lock_names */

const char *const snapshot_lock_names[SNAPSHOT_LOCKS] = {
    "background_thread", "max_per_bg_thd",   "ctl",        "prof", "prof_thds_data", "prof_dump",
    "prof_recent_alloc", "prof_recent_dump", "prof_stats",
};

const char *const snapshot_arena_lock_names[ARENA_MUTEXES] = {
    [ARENA_MUTEX_LARGE] = "large",
    [ARENA_MUTEX_EXTENT_AVAIL] = "extent_avail",
    [ARENA_MUTEX_EXTENTS_DIRTY] = "extents_dirty",
    [ARENA_MUTEX_EXTENTS_MUZZY] = "extents_muzzy",
    [ARENA_MUTEX_EXTENTS_RETAINED] = "extents_retained",
    [ARENA_MUTEX_DECAY_DIRTY] = "decay_dirty",
    [ARENA_MUTEX_DECAY_MUZZY] = "decay_muzzy",
    [ARENA_MUTEX_BASE] = "base",
    [ARENA_MUTEX_TCACHE_LIST] = "tcache_list",
    [ARENA_MUTEX_HPA_SHARD] = "hpa_shard",
    [ARENA_MUTEX_HPA_SHARD_GROW] = "hpa_shard_grow",
    [ARENA_MUTEX_HPA_SEC] = "hpa_sec",
};

static void enter(void) {
    (void)lock_acquire(&g.lock); /* abandoned or not: see the top */
}

static void leave(void) {
    lock_release(&g.lock);
}

/* ---------------------------------------------------------------- refreshing */

static struct staging *take_staging(uint64_t *ticket) {
    enter();
    struct staging *staging = g.spare;
    if (staging != NULL) {
        g.spare = staging->next;
    }
    *ticket = ++g.ticket;
    leave();
    return staging != NULL ? staging : meta_alloc(sizeof(*staging), CACHE_LINE);
}

static void give_back_staging(struct staging *staging) {
    enter();
    staging->next = g.spare;
    g.spare = staging;
    leave();
}

/* Allocates a slot's memory; false if there is none. */
static bool make_room(unsigned index) {
    struct slot *slot = &slots[index];
    if (slot->counts != NULL) {
        return true;
    }
    struct arena_counts *fresh = meta_alloc(sizeof(*fresh), CACHE_LINE);
    struct arena_counts *none = NULL;
    if (fresh != NULL) {
        /* If another refresh was quicker, this memory is lost. */
        atomic_compare_exchange_strong(&slot->counts, &none, fresh);
    }
    return fresh != NULL;
}

/* Copies what was counted to where readers find it.  False without memory. */
static bool publish(unsigned index, const struct arena_counts *counts, bool is_there,
                    uint64_t ticket) {
    struct slot *slot = &slots[index];
    if (is_there && !make_room(index)) {
        return false;
    }
    enter();
    if (slot->ticket < ticket) {
        slot->ticket = ticket;
        slot->is_there = is_there;
        if (is_there) {
            memcpy(slot->counts, counts, sizeof(*counts));
        }
    }
    leave();
    return true;
}

/* All memory is allocated before anything is counted, or metadata would grow meanwhile. */
static bool make_all_room(unsigned arenas) {
    bool done = make_room(SLOT_ALL);
    for (unsigned a = 0; done && a < arenas; a++) {
        done = !arena_exists(a) || make_room(a);
    }
    return done;
}

static bool refresh_arenas(struct staging *staging, unsigned arenas, uint64_t ticket) {
    if (!make_all_room(arenas)) {
        return false;
    }
    memset(&staging->sum, 0, sizeof(staging->sum));
    for (unsigned a = 0; a < arenas; a++) {
        bool is_there = counts_read_arena(a, &staging->one);
        if (!publish(a, &staging->one, is_there, ticket)) {
            return false;
        }
        if (is_there) {
            counts_merge(&staging->sum, &staging->one);
        }
    }
    staging->sum.dirty_decay_ms = staging->sum.muzzy_decay_ms = -1; /* it has none */
    return publish(SLOT_ALL, &staging->sum, true, ticket);
}

static bool refresh_destroyed(struct staging *staging, uint64_t ticket) {
    if (!arena_any_destroyed()) {
        return true;
    }
    counts_read_destroyed(&staging->one);
    return publish(SLOT_DESTROYED, &staging->one, true, ticket);
}

static void refresh_totals(unsigned arenas, uint64_t ticket) {
    struct total_counts totals;
    counts_read_totals(&totals);
    struct control_background background = {0};
    if (control_services.background_read != NULL) {
        control_services.background_read(&background);
    }
    enter();
    if (g.totals_ticket < ticket) {
        g.totals_ticket = ticket;
        g.totals = totals;
        g.background = background;
        counts_read_lock(&g.lock, &g.locks[LOCK_CTL]);
    }
    g.arenas = (unsigned)max_size(g.arenas, arenas);
    leave();
}

/* If `epoch_before` is given and out of date, another thread has made the epoch already. */
static bool refresh(uint64_t *epoch_before) {
    uint64_t ticket;
    struct staging *staging = take_staging(&ticket);
    if (staging == NULL) {
        return false;
    }
    unsigned arenas = arena_limit();
    bool done = refresh_arenas(staging, arenas, ticket) && refresh_destroyed(staging, ticket);
    give_back_staging(staging);
    if (!done) {
        return false;
    }
    refresh_totals(arenas, ticket);
    enter();
    if (epoch_before == NULL || g.epoch == *epoch_before) {
        g.epoch++;
    }
    leave();
    return true;
}

bool snapshot_refresh(void) {
    return refresh(NULL);
}

bool snapshot_start(void) {
    uint64_t none = 0;
    return snapshot_epoch() > 0 || refresh(&none);
}

/* ---------------------------------------------------------------- reading */

uint64_t snapshot_epoch(void) {
    return g.epoch;
}

unsigned snapshot_arenas(void) {
    return g.arenas;
}

const struct total_counts *snapshot_totals(void) {
    return &g.totals;
}

const struct mutex_counts *snapshot_lock(unsigned lock) {
    return &g.locks[lock];
}

const struct arena_counts *snapshot_arena(size_t arena) {
    size_t index = arena;
    if (arena == SNAPSHOT_ALL || arena == snapshot_arenas()) {
        index = SLOT_ALL;
    } else if (arena == SNAPSHOT_DESTROYED) {
        index = SLOT_DESTROYED;
    } else if (arena > snapshot_arenas()) {
        return NULL;
    }
    enter();
    const struct slot *slot = &slots[index];
    const struct arena_counts *counts = slot->is_there ? slot->counts : NULL;
    leave();
    return counts;
}

void snapshot_copy(void *to, const void *from, size_t size) {
    enter();
    memcpy(to, from, size);
    leave();
}

struct control_background snapshot_background(void) {
    struct control_background background;
    snapshot_copy(&background, &g.background, sizeof(background));
    return background;
}

/* ---------------------------------------------------------------- changes between refreshes */

void snapshot_note_made(unsigned arena) {
    enter();
    g.arenas = (unsigned)max_size(g.arenas, arena + 1);
    leave();
}

void snapshot_note_destroyed(unsigned arena) {
    uint64_t ticket;
    struct staging *staging = take_staging(&ticket);
    if (staging != NULL) {
        refresh_destroyed(staging, ticket);
        give_back_staging(staging);
    }
    publish(arena, NULL, false, ticket);
}

void snapshot_reset_locks(void) {
    lock_reset_counts(&g.lock);
    counts_reset_mutexes();
}
