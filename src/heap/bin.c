/* SPDX-License-Identifier: MIT
 *
 * bin.c - refill and drain: objects between slabs and magazines.
 *
 * A bin keeps the slabs from which something can be taken, lowest address first; full slabs are
 * reached through their objects only.  Using low addresses first lets high slabs run empty, and an
 * empty slab goes back to the page heap at once, but for one that a burst would ask for again; while
 * the heap shrinks by much, that one goes too.
 *
 *      slabs    [####] [##.#] [#...] [....]         # handed out   . free
 *       in set           1      2      3
 *
 * Threads     One lock per bin.  Drain meets objects of several arenas in one magazine and holds
 *             one bin's lock at a time.
 * Invariant   A slab is in the set exactly when it is not full.  nempty <= 1 outside the functions.
 * Cost        Refill about 5 instructions per object, drain about 15 when neighbours in the
 *             magazine lie in different slabs; see bench/.
 * Read next   slab.c below, cache.c above.
 */
#include "heap/bin.h"

#include "base/log.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/slab.h"

enum { SLOW_FREES_BEFORE_CARVING = 64 };

_Atomic bool bin_heap_shrinks;

static struct span *slab_of_node(struct pairing_node *node) {
    return (struct span *)((char *)node - offsetof(struct span, node));
}

void bin_init(struct bin *bin, unsigned size_class, unsigned arena) {
    *bin = (struct bin){.lock = LOCK_OF_RANK(RANK_BIN),
                        .size_class = (uint8_t)size_class,
                        .arena = (uint16_t)arena};
}

/* Counters are written under the lock and read without. */
static void add(size_t *counter, size_t change) {
    __atomic_store_n(counter, *counter + change, __ATOMIC_RELAXED);
}

static void repair(struct bin *bin);

static void enter(struct bin *bin) {
    if (UNLIKELY(lock_acquire(&bin->lock) == LOCK_ABANDONED)) {
        repair(bin);
    }
}

static void join_set(struct bin *bin, struct span *slab) {
    slab->nout = (int16_t)slab_nout(slab);
    pairing_insert(&bin->slabs, &slab->node, slab->base);
}

static void leave_set(struct bin *bin, struct span *slab) {
    slab->nout = (int16_t)(slab->nout | SLAB_APART);
    pairing_remove(&bin->slabs, &slab->node);
}

static size_t slab_units(const struct bin *bin) {
    return (size_classes[bin->size_class].slab_mask + 1) / UNIT_BYTES;
}

static struct span *new_slab(struct bin *bin, enum pages_growth growth) {
    bool zeroed;
    struct span *slab = pages_take(slab_units(bin), slab_units(bin), growth, &zeroed);
    if (slab != NULL) {
        slab_create(slab, bin->size_class, bin->arena);
        add(&bin->nslabs, 1);
        bin->nempty++;
        join_set(bin, slab);
    }
    return slab;
}

static void release_slab(struct bin *bin, struct span *slab) {
    leave_set(bin, slab);
    add(&bin->nslabs, -(size_t)1);
    bin->nempty--;
    uintptr_t base = slab->base;
    slab_destroy(slab);
    pages_give_back(base, slab_units(bin));
}

unsigned bin_refill(struct bin *bin, void **slots, unsigned count, enum pages_growth growth) {
    unsigned got = 0;
    enter(bin);
    while (got < count) {
        struct span *slab = bin->slabs != NULL ? slab_of_node(bin->slabs) : new_slab(bin, growth);
        if (slab == NULL) {
            break;
        }
        bin->nempty -= slab_is_empty(slab);
        got += slab_take(slab, slots + got, count - got);
        if (slab_is_full(slab)) {
            leave_set(bin, slab);
        }
    }
    add(&bin->nout, got);
    lock_release(&bin->lock);
    return got;
}

/* ---------------------------------------------------------------- drain */

static COLD void found_late(const void *object, const struct span *slab) {
    fatal("free(%p): the %u-byte object was already free, found when a cache was emptied", object,
          slab_class(slab)->size);
}

static COLD void found_foreign(const void *object) {
    fatal("free(%p): not memory of this heap, found when a cache was emptied", object);
}

/* A slab that was full can be taken from again; one that is empty now goes, but for one. */
static COLD void after_free(struct bin *bin, struct span *slab) {
    if (slab_is_apart(slab)) {
        join_set(bin, slab);
    }
    if (slab_is_empty(slab)) {
        bin->nempty++;
        if (bin->nempty > 1 || bin_heap_is_shrinking()) {
            release_slab(bin, slab);
        }
    }
}

/*
 * Where the descriptor of the slab at `base` must be.  The object came through the class map or was
 * looked up, so at least an address that agrees in bits 14..45 is of this heap and has a chunk.
 */
static inline struct span *slab_place(uintptr_t base) {
    return &classmap_chunk_sharing(base)->span[chunk_unit(base)];
}

/*
 * Puts back the leading objects that belong to the locked bin; returns how many did.  All bits of
 * the address and the whole owner are compared: a foreign pointer that slipped through the class
 * map ends here.
 */
static unsigned drain_into(struct bin *bin, const struct size_class sc, void **slots,
                           unsigned count) {
    uint32_t owner = slab_owner(slab_place((uintptr_t)slots[0] & ~(uintptr_t)sc.slab_mask));
    unsigned done = 0;
    for (; done < count; done++) {
        uintptr_t object = (uintptr_t)slots[done];
        uint32_t offset = (uint32_t)object & sc.slab_mask;
        struct span *slab = slab_place(object - offset);
        if (UNLIKELY(slab_owner(slab) != owner || slab->base != object - offset)) {
            break;
        }
        uint32_t index = size_class_index(&sc, offset);
        uint64_t word = slab->bits[index / 64];
        if (UNLIKELY(word >> index % 64 & 1)) {
            found_late(slots[done], slab);
        }
        slab->bits[index / 64] = word | UINT64_C(1) << index % 64;
        if (UNLIKELY(--slab->nout <= 0)) {
            after_free(bin, slab);
        }
    }
    add(&bin->nout, -(size_t)done);
    return done;
}

void bin_drain(unsigned size_class, void **slots, unsigned count) {
    while (count > 0) {
        uintptr_t base = (uintptr_t)slots[0] & ~(uintptr_t)size_classes[size_class].slab_mask;
        struct span *slab = slab_place(base);
        if (slab->base != base || slab->size_class != size_class || slab->kind != SPAN_SLAB) {
            found_foreign(slots[0]);
        }
        struct bin *bin = arena_bin(slab->arena, size_class);
        enter(bin);
        unsigned done = drain_into(bin, size_classes[size_class], slots, count);
        lock_release(&bin->lock);
        slots += done;
        count -= done;
    }
}

/* ---------------------------------------------------------------- questions about one object */

enum bin_object bin_look(struct span *slab, uintptr_t address) {
    struct bin *bin = arena_bin(slab->arena, slab->size_class);
    uint32_t index = size_class_index(slab_class(slab), (uint32_t)(address - slab->base));
    enter(bin);
    enum bin_object answer = BIN_OBJECT_OUT;
    if (index >= slab->ncarved) {
        answer = BIN_OBJECT_UNCARVED;
    } else if (bits_get(slab->bits, index)) {
        answer = BIN_OBJECT_FREE;
    }
    lock_release(&bin->lock);
    return answer;
}

void bin_note_slow_free(struct span *slab, uintptr_t address) {
    struct bin *bin = arena_bin(slab->arena, slab->size_class);
    enter(bin);
    slab->slow_frees++;
    if (slab->slow_frees % SLOW_FREES_BEFORE_CARVING == 0) {
        slab_publish_granule(slab, address);
    }
    lock_release(&bin->lock);
}

void bin_trim(struct bin *bin) {
    enter(bin);
    if (bin->nempty == 0) {
        lock_release(&bin->lock);
        return;
    }
    /* Walk the set by taking it apart; there are few slabs in it, and this is a rare call. */
    struct pairing_node *all = bin->slabs;
    bin->slabs = NULL;
    while (all != NULL) {
        struct span *slab = slab_of_node(all);
        pairing_remove(&all, &slab->node);
        join_set(bin, slab);
        if (slab_is_empty(slab)) {
            release_slab(bin, slab);
        }
    }
    lock_release(&bin->lock);
}

/* ---------------------------------------------------------------- verifying, repairing */

struct bin_sums {
    const struct bin *bin;
    size_t nslabs, nempty, nout, in_set;
};

static void sum_slab(struct span *slab, void *context) {
    struct bin_sums *sums = context;
    if (slab->kind == SPAN_SLAB && slab->size_class == sums->bin->size_class &&
        slab->arena == sums->bin->arena) {
        sums->nslabs++;
        sums->nempty += slab_is_empty(slab);
        sums->nout += slab_nout(slab);
        sums->in_set += !slab_is_apart(slab);
        ensure(!slab_is_apart(slab) == !slab_is_full(slab));
        slab_verify(slab);
    }
}

void bin_verify(struct bin *bin) {
    struct bin_sums sums = {.bin = bin};
    enter(bin); /* The background thread may be at work. */
    pages_walk(sum_slab, &sums);
    ensure(sums.nslabs == bin->nslabs && sums.nempty == bin->nempty && sums.nout == bin->nout);
    ensure(pairing_verify(bin->slabs) == sums.in_set);
    lock_release(&bin->lock);
}

/* Derives count, set and totals again from the bitmaps, which are always whole words. */
static void repair_slab(struct span *slab, void *context) {
    struct bin *bin = context;
    if (slab->kind != SPAN_SLAB || slab->size_class != bin->size_class ||
        slab->arena != bin->arena) {
        return;
    }
    slab_repair(slab);
    add(&bin->nslabs, 1);
    bin->nempty += slab_is_empty(slab);
    add(&bin->nout, slab_nout(slab));
    if (!slab_is_full(slab)) {
        join_set(bin, slab);
    }
}

/* The holder of the lock vanished in a fork: what it was moving is lost, nothing is owned twice. */
static COLD void repair(struct bin *bin) {
    bin->slabs = NULL;
    bin->nslabs = 0;
    bin->nempty = 0;
    bin->nout = 0;
    pages_walk(repair_slab, bin);
}
