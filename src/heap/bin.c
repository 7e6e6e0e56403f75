/* SPDX-License-Identifier: MIT
 *
 * bin.c - refill and drain: objects between slabs and magazines.
 *
 * A bin keeps the slabs from which something can be taken, lowest address first; full slabs are
 * reached through their objects only.  Using low addresses first lets high slabs run empty, and an
 * empty slab goes back to the page heap at once, except one that a burst would ask for again; while
 * the heap shrinks by much, that one goes too.
 *
 *      slabs    [####] [##.#] [#...] [....]         # handed out   . free
 *       in set           1      2      3
 *
 * Threads     One lock per bin.  Drain meets objects of several arenas in one magazine and holds
 *             one bin's lock at a time.
 * Invariant   A slab is in the set exactly when it is neither full nor busy giving pages back.  Of
 *             the others at most one is empty: `empty`.
 * Cost        Refill about 5 instructions per object, drain about 15 when neighbours in the
 *             magazine lie in different slabs; see bench/.
 * Read next   slab.c below, cache.c above.
 */
#include "heap/bin.h"

#include "base/log.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/extents.h"
#include "heap/fast.h"
#include "heap/reclaim.h"
#include "heap/slab.h"

enum {
    SLOW_FREES_BEFORE_CARVING = 64,
    /* What a bin must have free, of all its slabs, for a search for free pages in them. */
    WORTH_BYTES = 256 << 10,
    WORTH_SHARE = 8,
    WORTH_LOOKS = 3, /* one finds what is idle, the next gives it back; the last is not done */
};

/* Lies initialised in the section where an agent that attaches looks for its counter. */
__attribute__((section(".probes"), aligned(CACHE_LINE))) struct bin_unusual_line bin_unusual = {0};

static void set_unusual(enum bin_unusual bit, bool set) {
    if (set) { /* Release: whoever sees the bit sees what was set before. */
        atomic_fetch_or_explicit(&bin_unusual.word, (uint64_t)bit, memory_order_release);
    } else {
        atomic_fetch_and_explicit(&bin_unusual.word, ~(uint64_t)bit, memory_order_release);
    }
}

void bin_set_shrinking(bool shrinks) {
    set_unusual(BIN_SHRINKING, shrinks);
}

void bin_set_sampling(bool samples) {
    set_unusual(BIN_SAMPLING, samples);
}

void bin_set_watched(bool is_watched) {
    set_unusual(BIN_WATCHED, is_watched);
}

void bin_set_ignoring(bool is_ignoring) {
    set_unusual(BIN_IGNORING, is_ignoring);
}

static struct span *slab_of_node(struct pairing_node *node) {
    return (struct span *)((char *)node - offsetof(struct span, node));
}

void bin_init(struct bin *bin, unsigned size_class, unsigned arena) {
    assert(size_class >= 1 && size_class < CLASS_COUNT && arena < ARENA_BIN_SETS);
    *bin = (struct bin){.lock = LOCK_OF_RANK(RANK_BIN),
                        .size_class = (uint8_t)size_class,
                        .arena = (uint16_t)arena};
}

/* Numbers of slabs are written under the lock and read without it. */
static void add(uint32_t *number, uint32_t change) {
    assert(*number + change <= UINT32_MAX / 2);
    __atomic_store_n(number, *number + change, __ATOMIC_RELAXED);
}

static void repair(struct bin *bin);

static inline void enter(struct bin *bin) {
    if (UNLIKELY(lock_acquire(&bin->lock) == LOCK_ABANDONED)) {
        repair(bin);
    }
}

static void join_set(struct bin *bin, struct span *slab) {
    assert(lock_is_mine(&bin->lock) && !slab_is_full(slab));
    slab->nout = (int16_t)slab_nout(slab);
    pairing_insert(&bin->slabs, &slab->node, slab->base);
    add(&bin->nonfull, 1);
}

static void leave_set(struct bin *bin, struct span *slab) {
    assert(lock_is_mine(&bin->lock) && !slab_is_apart(slab));
    slab->nout = (int16_t)(slab->nout | SLAB_APART);
    pairing_remove(&bin->slabs, &slab->node);
    add(&bin->nonfull, -1u);
}

/* Slabs share no granule: its number, as in the class map, leads to the descriptor. */
static uint32_t granule_of(const struct span *slab) {
    assert((uint32_t)(slab->base >> LG_UNIT) != 0);
    return (uint32_t)(slab->base >> LG_UNIT);
}

static struct span *empty_slab(const struct bin *bin) {
    assert(bin->empty != 0);
    return classmap_span_sharing((uintptr_t)bin->empty << LG_UNIT);
}

static size_t slab_units(const struct bin *bin) {
    return (size_classes[bin->size_class].slab_mask + 1) / UNIT_BYTES;
}

/* Units from the program's hooks may have memory behind them, whether it is zeros or not. */
static struct span *take_units(const struct bin *bin, enum pages_growth growth) {
    bool zeroed = false;
    size_t units = slab_units(bin);
    if (UNLIKELY(bin->arena & ARENA_HOOKED)) {
        struct span *hooked = extents_take(bin->arena, units, units, &zeroed);
        if (hooked != NULL) {
            hooked->is_fresh = false;
        }
        return hooked;
    }
    struct span *slab = pages_take(units, units, growth, &zeroed);
    if (slab != NULL) {
        slab->is_fresh = zeroed;
    }
    return slab;
}

/* ---------------------------------------------------------------- numbers of tracked objects */

static void **spare_ids(struct bin *bin) {
    assert(bin->arena & ARENA_TRACKED && lock_is_mine(&bin->lock));
    unsigned c = bin->size_class;
    return &((struct tracked_bins *)(bin - c))->spare_ids[c];
}

/* One store takes an array from the list or puts it there: a fork in between loses it at worst. */
static uint32_t *take_ids(struct bin *bin) {
    void **spare = spare_ids(bin);
    void *ids = *spare;
    if (ids == NULL) {
        return meta_alloc(size_classes[bin->size_class].total * sizeof(uint32_t), sizeof(void *));
    }
    __atomic_store_n(spare, *(void **)ids, __ATOMIC_RELAXED);
    *(void **)ids = NULL;
    return ids;
}

static void leave_ids(struct bin *bin, uint32_t *ids) {
    void **spare = spare_ids(bin);
    *(void **)ids = *spare;
    __atomic_store_n(spare, (void *)ids, __ATOMIC_RELEASE);
}

static COLD struct span *take_tracked_units(struct bin *bin, enum pages_growth growth) {
    uint32_t *ids = take_ids(bin);
    struct span *slab = ids != NULL ? take_units(bin, growth) : NULL;
    if (slab != NULL) {
        slab->ids = ids;
    } else if (ids != NULL) {
        leave_ids(bin, ids);
    }
    return slab;
}

/* ---------------------------------------------------------------- refill */

static struct span *new_slab(struct bin *bin, enum pages_growth growth) {
    assert(lock_is_mine(&bin->lock) && bin->slabs == NULL && bin->empty == 0);
    struct span *slab = UNLIKELY(bin->arena & ARENA_TRACKED) ? take_tracked_units(bin, growth)
                                                             : take_units(bin, growth);
    if (slab != NULL) {
        assert((slab->base & size_classes[bin->size_class].slab_mask) == 0);
        slab_create(slab, bin->size_class, bin->arena);
        arena_add_units(bin->arena, slab_units(bin));
        add(&bin->nslabs, 1);
        count_add(&bin->nmade, 1);
        bin->empty = granule_of(slab);
        join_set(bin, slab);
    }
    return slab;
}

static void release_slab(struct bin *bin, struct span *slab) {
    assert(slab_is_empty(slab) && granule_of(slab) != bin->empty);
    leave_set(bin, slab);
    arena_add_units(bin->arena, -slab_units(bin));
    add(&bin->nslabs, -1u);
    uintptr_t base = slab->base;
    slab_destroy(slab);
    if (UNLIKELY(bin->arena & ARENA_TRACKED)) { /* Only now: an array belongs to one slab. */
        leave_ids(bin, slab->ids);
    }
    if (UNLIKELY(bin->arena & ARENA_HOOKED)) {
        extents_give_back(base, slab_units(bin));
    } else {
        pages_give_back(base, slab_units(bin));
    }
}

unsigned bin_refill(struct bin *bin, void **slots, unsigned count, enum pages_growth growth) {
    assert(count >= 1);
    unsigned got = 0;
    enter(bin);
    while (got < count) {
        struct span *slab = bin->slabs != NULL ? slab_of_node(bin->slabs) : new_slab(bin, growth);
        if (slab == NULL) {
            break;
        }
        assert(slab->arena == bin->arena && slab->size_class == bin->size_class);
        bin->empty = slab_is_empty(slab) ? 0 : bin->empty;
        got += slab_take(slab, slots + got, count - got);
        if (slab_is_full(slab)) {
            leave_set(bin, slab);
        }
    }
    count_add(&bin->nmalloc, got);
    count_add(&bin->nfills, got > 1);
    assert(got <= count);
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

/* An empty slab is kept where it will soon be wanted again.  For tracked objects that takes one
 * sample per slab's worth of bytes: with fewer, every sampled class would keep an idle slab. */
static bool keeps_empty_slab(const struct bin *bin) {
    if (LIKELY(!(bin->arena & ARENA_TRACKED))) {
        return !bin_heap_is_shrinking();
    }
    uint64_t rate = track_rate();
    return rate != 0 && rate <= (uint64_t)slab_units(bin) * UNIT_BYTES && !bin_heap_is_shrinking();
}

/* An empty slab goes, except the one kept. */
static void settle_if_empty(struct bin *bin, struct span *slab) {
    assert(lock_is_mine(&bin->lock) && !slab_is_apart(slab));
    if (!slab_is_empty(slab)) {
        return;
    }
    if (bin->empty != 0 || !keeps_empty_slab(bin)) {
        release_slab(bin, slab);
    } else {
        bin->empty = granule_of(slab);
    }
}

/* A slab that was full can be taken from again; a busy one stays as it is until it is done. */
static COLD void after_free(struct bin *bin, struct span *slab) {
    assert(lock_is_mine(&bin->lock) && !slab_is_full(slab));
    if (slab_is_busy(slab)) {
        return;
    }
    if (slab_is_apart(slab)) {
        join_set(bin, slab);
        count_add(&bin->nreslabs, 1);
    }
    settle_if_empty(bin, slab);
}

/* Objects came home.  Is so much free now that whole pages must be? */
static COLD void note_drained(struct bin *bin) {
    assert(lock_is_mine(&bin->lock));
    const struct size_class *sc = &size_classes[bin->size_class];
    size_t all = (size_t)bin->nslabs * sc->total * sc->size;
    size_t free = all - min_size(bin_nout(bin) * sc->size, all);
    if (free >= WORTH_BYTES && free >= all / WORTH_SHARE && !(bin->arena & ARENA_HOOKED)) {
        __atomic_store_n(&bin->looks, WORTH_LOOKS, __ATOMIC_RELAXED);
        reclaim_ask();
    }
}

/*
 * Puts back the leading objects that belong to the locked bin; returns how many did.  All bits of
 * the address and the whole owner are compared: a foreign pointer that slipped through the class
 * map ends here.
 */
static unsigned drain_into(struct bin *bin, const struct size_class sc, void **slots,
                           unsigned count) {
    assert(lock_is_mine(&bin->lock));
    uint32_t owner =
        span_owner(classmap_span_sharing((uintptr_t)slots[0] & ~(uintptr_t)sc.slab_mask));
    unsigned done = 0;
    for (; done < count; done++) {
        uintptr_t object = (uintptr_t)slots[done];
        uint32_t offset = (uint32_t)object & sc.slab_mask;
        struct span *slab = classmap_span_sharing(object - offset);
        if (UNLIKELY(span_owner(slab) != owner || slab->base != object - offset)) {
            break;
        }
        uint32_t index = size_class_index(&sc, offset);
        assert(size_class_is_start(&sc, offset));
        uint64_t word = slab->bits[index / 64];
        if (UNLIKELY(word >> index % 64 & 1 || slab->uncarved >> (offset >> LG_SHEET) & 1)) {
            found_late(slots[done], slab);
        }
        slab->bits[index / 64] = word | UINT64_C(1) << index % 64;
        if (UNLIKELY(--slab->nout <= 0)) {
            after_free(bin, slab);
        }
    }
    count_add(&bin->ndalloc, done);
    count_add(&bin->nflushes, done > 1);
    assert(done >= 1);
    return done;
}

void bin_drain(unsigned size_class, void **slots, unsigned count) {
    while (count > 0) {
        uintptr_t base = (uintptr_t)slots[0] & ~(uintptr_t)size_classes[size_class].slab_mask;
        struct span *slab = classmap_span_sharing(base);
        if (slab->base != base || slab->size_class != size_class || slab->kind != SPAN_SLAB) {
            found_foreign(slots[0]);
        }
        struct bin *bin = arena_bin(slab->arena, size_class);
        enter(bin);
        unsigned done = drain_into(bin, size_classes[size_class], slots, count);
        if (bin->looks < WORTH_LOOKS) {
            note_drained(bin);
        }
        lock_release(&bin->lock);
        slots += done;
        count -= done;
    }
    reclaim_consider_step();
}

/* ---------------------------------------------------------------- arenas made by the program */

/* Moves the objects of arenas made by the program behind the others; returns how many others. */
static unsigned sort_out(unsigned size_class, void **slots, unsigned count) {
    uintptr_t mask = ~(uintptr_t)size_classes[size_class].slab_mask;
    unsigned automatic = 0;
    for (unsigned i = 0; i < count; i++) {
        uintptr_t base = (uintptr_t)slots[i] & mask;
        const struct span *slab = classmap_span_sharing(base);
        if (slab->base == base && slab->arena < arena_count()) {
            void *object = slots[i];
            slots[i] = slots[automatic];
            slots[automatic++] = object;
        }
    }
    return automatic;
}

unsigned bin_drain_manual(unsigned size_class, void **slots, unsigned count) {
    unsigned automatic = sort_out(size_class, slots, count);
    bin_drain(size_class, slots + automatic, count - automatic);
    return automatic;
}

/* Frees the objects that are out and do not carry the secret; returns how many. */
static unsigned free_live(struct span *slab) {
    assert(!(slab->arena & ARENA_TRACKED) && slab->kind == SPAN_SLAB);
    const struct size_class *sc = slab_class(slab);
    unsigned freed = 0;
    for (unsigned i = 0; i < sc->total; i++) {
        void *object = (void *)(slab->base + (uintptr_t)i * sc->size);
        if (slab_is_out(slab, i) && slab_word1(object) != slab_secret) {
            slab_set_word1(object, slab_secret);
            bits_set_range(slab->bits, i, 1);
            freed++;
        }
    }
    slab->nout = (int16_t)(slab->nout - (int)freed);
    assert(slab_nout(slab) <= slab->ncarved);
    return freed;
}

/* The bin is locked: is this still its slab at `base`?  If not, its owner may be writing to it. */
static bool is_slab_of(const struct bin *bin, const struct span *slab, uintptr_t base) {
    assert(lock_is_mine(&bin->lock));
    const struct span own = {.arena = bin->arena, .size_class = bin->size_class, .kind = SPAN_SLAB};
    return span_owner(slab) == own.owner && slab->base == base;
}

void bin_reset_slab(struct bin *bin, struct span *slab, uintptr_t base) {
    assert(!(bin->arena & ARENA_TRACKED));
    enter(bin);
    unsigned freed = is_slab_of(bin, slab, base) ? free_live(slab) : 0;
    if (freed > 0) {
        count_add(&bin->ndalloc, freed);
        after_free(bin, slab);
    }
    lock_release(&bin->lock);
}

/* ---------------------------------------------------------------- tracked objects */

/* Two threads may free the object at once, and the slab may be gone when the second comes. */
uint32_t bin_claim_tracked(struct span *slab, unsigned size_class, const void *object) {
    unsigned arena = __atomic_load_n(&slab->arena, __ATOMIC_RELAXED);
    uintptr_t base = (uintptr_t)object & ~(uintptr_t)size_classes[size_class].slab_mask;
    uint32_t id = 0;
    if (LIKELY(arena & ARENA_TRACKED)) {
        struct bin *bin = arena_bin(arena, size_class);
        enter(bin);
        if (LIKELY(is_slab_of(bin, slab, base))) {
            uint32_t *place = slab_id_place(slab, object);
            id = *place;
            __atomic_store_n(place, 0, __ATOMIC_RELAXED);
        }
        lock_release(&bin->lock);
    }
    return id;
}

bool bin_set_ignored(struct span *slab, unsigned size_class, const void *object, bool is_ignored) {
    struct bin *bin = arena_bin(slab->arena, size_class);
    uintptr_t base = (uintptr_t)object & ~(uintptr_t)size_classes[size_class].slab_mask;
    bool is_other = false;
    enter(bin);
    if (is_slab_of(bin, slab, base)) {
        uint32_t id = slab_id(slab, object);
        is_other = id != 0 && (id & TRACK_IGNORED) != (is_ignored ? TRACK_IGNORED : 0);
        slab_set_id(slab, object, is_other ? id ^ TRACK_IGNORED : id);
    }
    lock_release(&bin->lock);
    return is_other;
}

unsigned bin_claim_live(struct bin *bin, struct span *slab, uintptr_t base, void **objects,
                        uint32_t *ids, unsigned most) {
    assert(bin->arena & ARENA_TRACKED);
    unsigned count = 0;
    enter(bin);
    unsigned total = is_slab_of(bin, slab, base) ? slab_class(slab)->total : 0;
    for (unsigned i = 0; i < total && count < most; i++) {
        void *object = (void *)(base + (uintptr_t)i * slab_class(slab)->size);
        if (slab->ids[i] != 0 && slab_word1(object) != slab_secret) {
            objects[count] = object;
            ids[count++] = slab->ids[i];
            slab_set_id(slab, object, 0);
        }
    }
    lock_release(&bin->lock);
    return count;
}

/* ---------------------------------------------------------------- questions about one object */

static struct bin_use query_slab(const struct span *slab) {
    struct bin *bin = arena_bin(slab->arena, slab->size_class);
    const struct size_class *sc = &size_classes[bin->size_class];
    enter(bin);
    struct bin_use use = {
        .slabcur = bin->slabs != NULL ? (void *)slab_of_node(bin->slabs)->base : NULL,
        .nfree = sc->total - slab_nout(slab),
        .nregs = sc->total,
        .size = sc->slab_mask + 1,
        .bin_nfree = (size_t)bin->nslabs * sc->total - bin_nout(bin),
        .bin_nregs = (size_t)bin->nslabs * sc->total,
    };
    lock_release(&bin->lock);
    return use;
}

struct bin_use bin_query(const void *address) {
    const struct span *span = classmap_span((uintptr_t)address);
    if (span == NULL || !span_is_owned(span)) {
        return (struct bin_use){0};
    }
    return span->kind == SPAN_SLAB ? query_slab(span)
                                   : (struct bin_use){.nregs = 1, .size = span->bytes};
}

/* A tracked object that the program holds has a number. */
static bool is_stashed(const struct span *slab, unsigned index) {
    return slab->arena & ARENA_TRACKED && slab->ids[index] == 0;
}

enum bin_object bin_look(struct span *slab, uintptr_t address) {
    assert(address >= slab->base && address - slab->base <= slab_class(slab)->slab_mask);
    struct bin *bin = arena_bin(slab->arena, slab->size_class);
    uint32_t index = size_class_index(slab_class(slab), (uint32_t)(address - slab->base));
    enter(bin);
    enum bin_object answer = BIN_OBJECT_OUT;
    if (!slab_is_carved(slab, index)) {
        bool was_carved = slab_sheet_of(slab, index) < slab->sheets_used;
        answer = was_carved ? BIN_OBJECT_FREE : BIN_OBJECT_UNCARVED;
    } else if (bits_get(slab->bits, index) || is_stashed(slab, index)) {
        answer = BIN_OBJECT_FREE;
    }
    lock_release(&bin->lock);
    return answer;
}

uintptr_t bin_next(struct bin *bin) {
    enter(bin);
    uintptr_t address = bin->slabs != NULL ? slab_next(slab_of_node(bin->slabs)) : 0;
    lock_release(&bin->lock);
    return address;
}

bool bin_copy_out(const struct span *slab, unsigned size_class, uintptr_t base, unsigned first,
                  unsigned end, uint64_t out[MOST_OBJECTS / 64]) {
    /* A slab's arena has bins.  It may be another's by now: ask again under the lock. */
    const struct span seen = {.owner = span_owner(slab)};
    if (seen.kind != SPAN_SLAB) {
        return false;
    }
    struct bin *bin = arena_bin(seen.arena, size_class);
    enter(bin);
    bool is_there = is_slab_of(bin, slab, base);
    for (unsigned i = first; i < end && is_there; i++) {
        if (slab_is_out(slab, i) && !is_stashed(slab, i)) {
            out[i / 64] |= UINT64_C(1) << i % 64;
        }
    }
    lock_release(&bin->lock);
    return is_there;
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

/* Gives back the slab that is kept empty, if there is one. */
static void release_empty(struct bin *bin) {
    if (bin->empty != 0) {
        struct span *slab = empty_slab(bin);
        bin->empty = 0;
        release_slab(bin, slab);
    }
}

void bin_trim(struct bin *bin) {
    enter(bin);
    release_empty(bin);
    lock_release(&bin->lock);
}

uint32_t bin_begin_purge(struct bin *bin, struct span *slab, uintptr_t base, bool is_aged) {
    enter(bin);
    uint32_t sheets = 0;
    if (is_slab_of(bin, slab, base) && !slab_is_apart(slab) && !slab_is_empty(slab)) {
        sheets = slab_sheets_to_purge(slab);
    }
    if (sheets != 0 && is_aged && slab->rest != SLAB_IDLE) {
        slab->rest = SLAB_IDLE;
        sheets = 0;
    }
    if (sheets != 0) {
        leave_set(bin, slab);
        slab->rest = SLAB_BUSY;
        slab_uncarve(slab, sheets);
    }
    lock_release(&bin->lock);
    return sheets;
}

void bin_end_purge(struct bin *bin, struct span *slab, uintptr_t base, bool is_done) {
    enter(bin);
    if (is_slab_of(bin, slab, base) && slab_is_busy(slab)) {
        slab_note_purged(slab, is_done);
        assert(slab_is_apart(slab) && !slab_is_full(slab));
        join_set(bin, slab);
        settle_if_empty(bin, slab);
    }
    lock_release(&bin->lock);
}

bool bin_begin_look(struct bin *bin) {
    enter(bin);
    uint8_t left = (uint8_t)(bin->looks - (bin->looks > 0));
    __atomic_store_n(&bin->looks, left, __ATOMIC_RELAXED);
    lock_release(&bin->lock);
    return left > 0;
}

/* ---------------------------------------------------------------- counting, checking, repairing */

void bin_restart_counts(struct bin *bin) {
    enter(bin);
    size_t nout = bin_nout(bin);
    count_set(&bin->ndalloc, 0);
    count_set(&bin->nmalloc, nout);
    count_set(&bin->nmade, bin->nslabs);
    count_set(&bin->nfills, 0);
    count_set(&bin->nflushes, 0);
    count_set(&bin->nreslabs, 0);
    lock_release(&bin->lock);
    lock_reset_counts(&bin->lock);
}

struct bin_sums {
    struct bin *bin;
    size_t nslabs, nempty, nout, in_set;
    struct pairing_node *surplus; /* empty slabs beside the one kept, linked by `back` */
};

static void sum_slab(struct span *slab, void *context) {
    struct bin_sums *sums = context;
    if (slab->kind == SPAN_SLAB && slab->size_class == sums->bin->size_class &&
        slab->arena == sums->bin->arena) {
        sums->nslabs++;
        bool is_empty = slab_is_empty(slab) && !slab_is_busy(slab);
        sums->nempty += is_empty;
        ensure(!is_empty || granule_of(slab) == sums->bin->empty);
        sums->nout += slab_nout(slab);
        sums->in_set += !slab_is_apart(slab);
        ensure(slab_is_apart(slab) == (slab_is_full(slab) || slab_is_busy(slab)));
        slab_verify(slab);
    }
}

void bin_verify(struct bin *bin) {
    struct bin_sums sums = {.bin = bin};
    enter(bin); /* The background thread may be at work. */
    pages_walk(sum_slab, &sums);
    ensure(sums.nslabs == bin->nslabs && sums.nempty == (bin->empty != 0));
    ensure(sums.nout == bin_nout(bin) && sums.in_set == bin->nonfull);
    ensure(pairing_verify(bin->slabs) == sums.in_set);
    lock_release(&bin->lock);
}

/* Derives count, set and totals again from the bitmaps, which are always whole words. */
static void repair_slab(struct span *slab, void *context) {
    struct bin_sums *sums = context;
    struct bin *bin = sums->bin;
    if (slab->kind != SPAN_SLAB || slab->size_class != bin->size_class ||
        slab->arena != bin->arena) {
        return;
    }
    slab_repair(slab);
    sums->nslabs++;
    assert(slab_is_apart(slab));
    sums->nout += slab_nout(slab);
    if (slab_is_empty(slab) && bin->empty != 0) {
        slab->node.back = sums->surplus;
        sums->surplus = &slab->node;
        return;
    }
    if (slab_is_empty(slab)) {
        bin->empty = granule_of(slab);
    }
    if (!slab_is_full(slab)) {
        join_set(bin, slab);
    }
}

/* Raises one of two counts, which only grow, until their difference is what was found. */
static void repair_difference(uint64_t *more, uint64_t *less, uint64_t difference) {
    if (*less + difference >= *more) {
        count_set(more, *less + difference);
    } else {
        count_set(less, *more - difference);
    }
}

/* The holder of the lock vanished in a fork: what it was moving is lost, nothing is owned twice. */
static COLD void repair(struct bin *bin) {
    assert(lock_is_mine(&bin->lock));
    struct bin_sums sums = {.bin = bin};
    bin->slabs = NULL;
    bin->empty = 0;
    __atomic_store_n(&bin->nonfull, 0, __ATOMIC_RELAXED);
    pages_walk(repair_slab, &sums);
    arena_add_units(bin->arena, (sums.nslabs - bin->nslabs) * slab_units(bin));
    __atomic_store_n(&bin->nslabs, (uint32_t)sums.nslabs, __ATOMIC_RELAXED);
    repair_difference(&bin->nmalloc, &bin->ndalloc, sums.nout);
    while (sums.surplus != NULL) {
        struct span *slab = slab_of_node(sums.surplus);
        sums.surplus = slab->node.back;
        join_set(bin, slab);
        release_slab(bin, slab);
    }
}
