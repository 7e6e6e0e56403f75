/* SPDX-License-Identifier: MIT
 *
 * test_hooked.c - arenas over memory that the program supplies.
 *
 * The hooks of the test map memory of their own, write down every extent they gave, check every
 * argument they get against that, and can be told to refuse.  What they decommit cannot be touched
 * until it is committed again.  At the end nothing may be left that was not returned.  The clock is
 * the test's own.
 */
#define _GNU_SOURCE
#include "heap/hooked.h"

#include <errno.h>
#include <semaphore.h>
#include <sys/mman.h>

#include "base/os.h"
#include "heap/classmap.h"
#include "heap/heap.h"
#include "unit.h"

enum { MOST_EXTENTS = 4096, MIB = 1 << 20 };

enum hook { ALLOC, DALLOC, DESTROY, COMMIT, DECOMMIT, LAZY, FORCED, SPLIT, MERGE, HOOKS };

struct extent_record {
    uintptr_t base;
    size_t size;
};

/* The hooks of one arena.  The table comes first: hooks find the rest by it. */
struct supply {
    struct extent_hooks table;
    pthread_mutex_t lock;
    struct extent_record extents[MOST_EXTENTS];
    unsigned count;
    _Atomic unsigned calls[HOOKS];
    unsigned refuse;   /* a bit per hook */
    unsigned arena;    /* what arena_ind must be */
    bool zero;         /* report that memory is zeros; else it is filled */
    bool uncommitted;  /* report that memory is not committed */
    bool allocates;    /* each hook allocates and frees */
    uintptr_t instead; /* if not 0, what the alloc hook returns; nothing is written down */
    unsigned returned; /* extents of `instead` that came back */
};

static struct supply supply;
static uint64_t now_ms = 1000;

uint64_t __wrap_os_now_ms(void);
uint64_t __wrap_os_now_ms(void) {
    return __atomic_load_n(&now_ms, __ATOMIC_RELAXED);
}

/* Counts the call, checks what all hooks have in common, and says whether to refuse. */
static bool begin_hook(struct extent_hooks *table, enum hook hook, unsigned arena) {
    struct supply *from = (struct supply *)table;
    check_eq(arena, from->arena);
    from->calls[hook]++;
    check(!tls.inside); /* a program's function is called from outside */
    if (from->allocates) {
        void *small = tally_malloc(100);
        void *medium = tally_malloc(20000);
        void *large = tally_malloc(100000);
        check(small != NULL && medium != NULL && large != NULL);
        check(arena_of(small) != (int)arena && arena_of(large) != (int)arena);
        large = tally_realloc(large, 400000);
        tally_free(small);
        tally_free(medium);
        tally_free(large);
    }
    errno = EDOM;
    return from->refuse >> hook & 1;
}

static void *map_aligned(size_t size, size_t alignment) {
    char *wide = mmap(NULL, size + alignment, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(wide != MAP_FAILED);
    uintptr_t start = align_up((uintptr_t)wide, alignment);
    munmap(wide, start - (uintptr_t)wide);
    munmap((void *)(start + size), (uintptr_t)wide + alignment - start);
    return (void *)start;
}

static unsigned find_extent(struct supply *from, void *addr, size_t size) {
    for (unsigned i = 0; i < from->count; i++) {
        if (from->extents[i].base == (uintptr_t)addr) {
            check_eq(from->extents[i].size, size);
            return i;
        }
    }
    check(!"an extent that was given and not returned");
    return 0;
}

static void *hook_alloc(struct extent_hooks *table, void *new_addr, size_t size, size_t alignment,
                        bool *zero, bool *commit, unsigned arena) {
    struct supply *from = (struct supply *)table;
    bool refuse = begin_hook(table, ALLOC, arena);
    check(new_addr == NULL && size > 0 && size % CHUNK_BYTES == 0);
    check(alignment >= CHUNK_BYTES && is_power_of_two(alignment));
    check(!*zero && *commit);
    if (refuse) {
        return NULL;
    }
    if (from->instead != 0) {
        return (void *)from->instead;
    }
    char *start = map_aligned(size, alignment);
    if (from->zero) {
        *zero = true;
    } else {
        for (size_t i = 0; i < size; i += 512) {
            start[i] = 0x77;
        }
    }
    if (from->uncommitted) {
        mprotect(start, size, PROT_NONE);
        *commit = false;
    }
    pthread_mutex_lock(&from->lock);
    check(from->count < MOST_EXTENTS);
    from->extents[from->count++] = (struct extent_record){(uintptr_t)start, size};
    pthread_mutex_unlock(&from->lock);
    return start;
}

static void forget(struct supply *from, void *addr, size_t size) {
    if (from->instead != 0 && (uintptr_t)addr == from->instead) {
        from->returned++;
        return;
    }
    pthread_mutex_lock(&from->lock);
    from->extents[find_extent(from, addr, size)] = from->extents[from->count - 1];
    from->count--;
    pthread_mutex_unlock(&from->lock);
    munmap(addr, size);
}

static bool hook_dalloc(struct extent_hooks *table, void *addr, size_t size, bool committed,
                        unsigned arena) {
    (void)committed;
    if (begin_hook(table, DALLOC, arena)) {
        return true;
    }
    forget((struct supply *)table, addr, size);
    return false;
}

static void hook_destroy(struct extent_hooks *table, void *addr, size_t size, bool committed,
                         unsigned arena) {
    (void)committed;
    (void)begin_hook(table, DESTROY, arena);
    forget((struct supply *)table, addr, size);
}

static char *range_of(struct extent_hooks *table, void *addr, size_t size, size_t offset,
                      size_t length) {
    struct supply *from = (struct supply *)table;
    pthread_mutex_lock(&from->lock);
    (void)find_extent(from, addr, size);
    pthread_mutex_unlock(&from->lock);
    check(length > 0 && offset % UNIT_BYTES == 0 && length % UNIT_BYTES == 0);
    check(offset + length <= size);
    return (char *)addr + offset;
}

static bool hook_commit(struct extent_hooks *table, void *addr, size_t size, size_t offset,
                        size_t length, unsigned arena) {
    bool refuse = begin_hook(table, COMMIT, arena);
    char *start = range_of(table, addr, size, offset, length);
    return refuse || mprotect(start, length, PROT_READ | PROT_WRITE) != 0;
}

static bool hook_decommit(struct extent_hooks *table, void *addr, size_t size, size_t offset,
                          size_t length, unsigned arena) {
    bool refuse = begin_hook(table, DECOMMIT, arena);
    char *start = range_of(table, addr, size, offset, length);
    if (refuse) {
        return true;
    }
    check(madvise(start, length, MADV_DONTNEED) == 0);
    return mprotect(start, length, PROT_NONE) != 0;
}

static bool hook_lazy(struct extent_hooks *table, void *addr, size_t size, size_t offset,
                      size_t length, unsigned arena) {
    bool refuse = begin_hook(table, LAZY, arena);
    char *start = range_of(table, addr, size, offset, length);
    if (!refuse) {
        memset(start, 0x33, length); /* indeterminate */
    }
    return refuse;
}

static bool hook_forced(struct extent_hooks *table, void *addr, size_t size, size_t offset,
                        size_t length, unsigned arena) {
    bool refuse = begin_hook(table, FORCED, arena);
    char *start = range_of(table, addr, size, offset, length);
    if (!refuse) {
        memset(start, 0, length);
    }
    return refuse;
}

static bool hook_split(struct extent_hooks *table, void *addr, size_t size, size_t size_a,
                       size_t size_b, bool committed, unsigned arena) {
    (void)addr, (void)size, (void)size_a, (void)size_b, (void)committed;
    return begin_hook(table, SPLIT, arena);
}

static bool hook_merge(struct extent_hooks *table, void *addr_a, size_t size_a, void *addr_b,
                       size_t size_b, bool committed, unsigned arena) {
    (void)addr_a, (void)size_a, (void)addr_b, (void)size_b, (void)committed;
    return begin_hook(table, MERGE, arena);
}

static struct extent_hooks *prepare_supply(void) {
    supply = (struct supply){
        .table = {hook_alloc, hook_dalloc, hook_destroy, hook_commit, hook_decommit, hook_lazy,
                  hook_forced, hook_split, hook_merge},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .arena = 1,
    };
    return &supply.table;
}

/* ---------------------------------------------------------------- helpers */

static unsigned create_hooked(void) {
    start_heap_with("narenas:1");
    int arena = arena_create(prepare_supply());
    check_eq(arena, 1);
    return 1;
}

static void *alloc_zeroed(unsigned arena, size_t size, size_t alignment, bool *zeroed) {
    errno = 0;
    void *object = place_alloc((struct place){(int)arena, PLACE_OWN}, size, alignment, zeroed);
    check_eq(errno, 0); /* whatever hooks did to it */
    return object;
}

static void *alloc_in(unsigned arena, size_t size) {
    bool zeroed;
    void *object = alloc_zeroed(arena, size, 1, &zeroed);
    if (object != NULL) {
        check_eq(arena_of(object), arena);
        memset(object, 0x5a, size);
    }
    return object;
}

static bool lies_in_supply(const void *object, size_t size) {
    for (unsigned i = 0; i < supply.count; i++) {
        uintptr_t offset = (uintptr_t)object - supply.extents[i].base;
        if (offset < supply.extents[i].size && offset + size <= supply.extents[i].size) {
            return true;
        }
    }
    return false;
}

static const size_t sizes[] = {1, 16, 100, 1000, 5000, 32768, 32769, 300000, 2 << 20, 5 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* ---------------------------------------------------------------- where memory comes from */

TEST(layout_is_that_of_nine_pointers_in_order) {
    check_eq(sizeof(struct extent_hooks), 72);
    check_eq(offsetof(struct extent_hooks, alloc), 0);
    check_eq(offsetof(struct extent_hooks, dalloc), 8);
    check_eq(offsetof(struct extent_hooks, destroy), 16);
    check_eq(offsetof(struct extent_hooks, commit), 24);
    check_eq(offsetof(struct extent_hooks, decommit), 32);
    check_eq(offsetof(struct extent_hooks, purge_lazy), 40);
    check_eq(offsetof(struct extent_hooks, purge_forced), 48);
    check_eq(offsetof(struct extent_hooks, split), 56);
    check_eq(offsetof(struct extent_hooks, merge), 64);
}

TEST(every_object_lies_in_an_extent_of_the_hook) {
    unsigned arena = create_hooked();
    check_eq(arena_hooks(arena), &supply.table);
    for (unsigned i = 0; i < SIZES; i++) {
        for (size_t alignment = 1; alignment <= 8 << 20; alignment *= 8) {
            bool zeroed;
            char *object = alloc_zeroed(arena, sizes[i], alignment, &zeroed);
            check(object != NULL && lies_in_supply(object, sizes[i]));
            check_eq((uintptr_t)object % alignment, 0);
            memset(object, 1, sizes[i]);
        }
    }
    heap_verify();
    check(supply.calls[ALLOC] > 0 && supply.calls[SPLIT] == 0 && supply.calls[MERGE] == 0);
    struct hooked_totals totals = hooked_totals(arena);
    size_t given = 0;
    for (unsigned i = 0; i < supply.count; i++) {
        given += supply.extents[i].size;
    }
    check_eq(totals.mapped, given);
    check(totals.used > 0 && totals.used <= given);
}

TEST(class_bytes_stay_zero_and_nothing_is_cached) {
    unsigned arena = create_hooked();
    for (unsigned i = 0; i < 100; i++) {
        tally_free(tally_malloc(64)); /* a cache is at hand */
    }
    unsigned c = size_class_of(64);
    size_t cached = thread_count_cached(c);
    static void *objects[5000];
    for (unsigned i = 0; i < 5000; i++) {
        objects[i] = alloc_in(arena, 64);
        check_eq(classmap_get((uintptr_t)objects[i]), 0);
    }
    check_eq(bin_nout(arena_bin_of_set(arena, ARENA_SET_HOOKED, c)), 5000);
    check_eq(bin_nout(arena_bin(arena, c)), 0);
    for (unsigned i = 0; i < 5000; i++) {
        tally_free(objects[i]);
    }
    check_eq(bin_nout(arena_bin_of_set(arena, ARENA_SET_HOOKED, c)), 0);
    check_eq(thread_count_cached(c), cached);
    check_eq(heap_look(objects[7]).verdict == HEAP_LIVE, false);
    heap_verify();
}

TEST(free_twice_is_found_at_once) {
    unsigned arena = create_hooked();
    alloc_in(arena, 64);
    void *object = alloc_in(arena, 64);
    tally_free(object);
    check_dies(tally_free(object), "already free", SIGABRT);
}

TEST(explicit_caches_are_passed_by) {
    unsigned arena = create_hooked();
    int id = tcaches_create();
    for (unsigned i = 0; i < 100; i++) {
        bool zeroed;
        void *object = place_alloc((struct place){(int)arena, id}, 64, 1, &zeroed);
        check(lies_in_supply(object, 64));
        struct heap_object found = heap_look(object);
        check(place_free((struct place){PLACE_OWN, id}, &found));
        check(!thread_any_holds(size_class_of(64), object));
    }
}

TEST(zero_flag_is_believed_only_while_it_is_true) {
    unsigned arena = create_hooked();
    bool zeroed;
    check(alloc_zeroed(arena, MIB, 1, &zeroed) != NULL && !zeroed);
    supply.zero = true;
    char *object = alloc_zeroed(arena, 7 * MIB, 1, &zeroed);
    check(object != NULL && zeroed);
    check(object[0] == 0 && object[7 * MIB - 1] == 0);
    memset(object, 1, 7 * MIB);
    tally_free(object);
    check(alloc_zeroed(arena, 7 * MIB, 1, &zeroed) == object && !zeroed);
    tally_free(object);
    supply.refuse = 1 << DALLOC | 1 << DECOMMIT; /* so that it is purged by force, and kept */
    arena_purge(arena);
    check(alloc_zeroed(arena, 7 * MIB, 1, &zeroed) == object && zeroed);
    check(object[0] == 0 && object[7 * MIB - 1] == 0);
}

TEST(memory_that_is_not_committed_is_committed_before_use) {
    unsigned arena = create_hooked();
    supply.uncommitted = true;
    for (unsigned i = 0; i < SIZES; i++) {
        check(alloc_in(arena, sizes[i]) != NULL); /* writes to it */
    }
    check(supply.calls[COMMIT] > 0);
    supply.refuse = 1 << COMMIT;
    check(alloc_in(arena, 50 * MIB) == NULL);
    supply.refuse = 0;
    check(alloc_in(arena, 50 * MIB) != NULL);
    heap_verify();
}

/* ---------------------------------------------------------------- when the alloc hook fails */

TEST(alloc_hook_that_refuses_means_no_memory_for_now) {
    unsigned arena = create_hooked();
    supply.refuse = 1 << ALLOC;
    for (unsigned i = 0; i < SIZES; i++) {
        check(alloc_in(arena, sizes[i]) == NULL);
    }
    check_eq(hooked_totals(arena).mapped, 0);
    supply.refuse = 0;
    for (unsigned i = 0; i < SIZES; i++) {
        check(alloc_in(arena, sizes[i]) != NULL);
    }
}

static void check_refused(unsigned arena, uintptr_t instead) {
    supply.instead = instead;
    unsigned returned = supply.returned;
    size_t mapped = hooked_totals(arena).mapped;
    check(alloc_in(arena, 100) == NULL);
    check(alloc_in(arena, 3 * MIB) == NULL);
    /* Each is tried again after the caches were emptied. */
    check_eq(supply.returned - returned, 4);
    check_eq(hooked_totals(arena).mapped, mapped);
    heap_verify();
    supply.instead = 0;
}

TEST(memory_that_cannot_be_ours_is_given_back) {
    unsigned arena = create_hooked();
    uintptr_t ours = align_down((uintptr_t)tally_malloc(100), CHUNK_BYTES);
    uintptr_t large = align_up((uintptr_t)tally_malloc(20 * MIB), CHUNK_BYTES);
    for (unsigned refuse = 0; refuse < 2; refuse++) {
        supply.refuse = refuse << DALLOC; /* then the destroy hook gets it */
        check_refused(arena, ours);
        check_refused(arena, large);
        check_refused(arena, ((uintptr_t)1 << 40) + 4096);
        check_refused(arena, ((uintptr_t)1 << 40) + CHUNK_BYTES / 2);
        check_refused(arena, (uintptr_t)1 << 50);
        check_refused(arena, -(uintptr_t)CHUNK_BYTES);
    }
    supply.refuse = 0;
    check(alloc_in(arena, 100) != NULL);
}

TEST(same_extent_is_not_taken_twice) {
    unsigned arena = create_hooked();
    void *object = alloc_in(arena, 1900 << 10);
    check_eq(supply.count, 1);
    supply.instead = supply.extents[0].base;
    check(alloc_in(arena, MIB) == NULL);
    check(supply.returned > 0);
    supply.instead = 0;
    check_eq(((char *)object)[MIB], 0x5a);
    check(arena_destroy(arena));
    check_eq(supply.count, 0);
}

/* ---------------------------------------------------------------- giving back */

TEST(decay_of_zero_returns_an_extent_with_its_last_object) {
    unsigned arena = create_hooked();
    check(arena_set_decay_ms(arena, ARENA_DIRTY, 0));
    void *large = alloc_in(arena, 5 * MIB);
    void *other = alloc_in(arena, 100000);
    check(supply.count > 0);
    tally_free(large);
    tally_free(other);
    check_eq(supply.count, 0);
    check_eq(hooked_totals(arena).mapped, 0);
    void *small = alloc_in(arena, 100);
    tally_free(small);
    arena_purge(arena); /* a bin keeps one empty slab till then */
    check_eq(supply.count, 0);
    check_eq(supply.calls[DALLOC], supply.calls[ALLOC]);
    check_eq(supply.calls[DESTROY], 0);
    heap_verify();
}

TEST(decay_time_is_waited_for) {
    unsigned arena = create_hooked();
    check(arena_set_decay_ms(arena, ARENA_DIRTY, 5000));
    tally_free(alloc_in(arena, 5 * MIB));
    check_eq(hooked_settle(arena), 5000);
    check(hooked_totals(arena).dirty >= 5 * MIB);
    now_ms += 4999;
    arena_decay(arena);
    check_eq(hooked_settle(arena), 1);
    check_eq(supply.count, 1);
    now_ms += 1;
    (void)heap_tick();
    check_eq(supply.count, 0);
    check_eq(hooked_settle(arena), UINT64_MAX);
}

TEST(memory_that_is_used_again_in_time_stays) {
    unsigned arena = create_hooked();
    check(arena_set_decay_ms(arena, ARENA_DIRTY, 1000));
    for (unsigned i = 0; i < 100; i++) {
        void *object = alloc_in(arena, 3 * MIB);
        now_ms += 900;
        tally_free(object);
        now_ms += 50;
    }
    check_eq(supply.calls[ALLOC], 1);
    check_eq(supply.calls[DALLOC], 0);
}

TEST(decay_of_never_keeps_until_purged) {
    unsigned arena = create_hooked();
    check(arena_set_decay_ms(arena, ARENA_DIRTY, -1));
    tally_free(alloc_in(arena, 5 * MIB));
    now_ms += UINT64_C(1) << 40;
    arena_decay(arena);
    check_eq(supply.count, 1);
    arena_purge(arena);
    check_eq(supply.count, 0);
}

TEST(parts_of_an_extent_in_use_are_decommitted_and_committed_again) {
    unsigned arena = create_hooked();
    char *first = alloc_in(arena, 500000);
    char *second = alloc_in(arena, 500000);
    check(alloc_in(arena, 66 * UNIT_BYTES) != NULL); /* the rest of the extent */
    tally_free(first);
    arena_purge(arena);
    check_eq(supply.calls[DECOMMIT], 1);
    check_eq(supply.calls[FORCED] + supply.calls[LAZY] + supply.calls[DALLOC], 0);
    check_eq(hooked_totals(arena).dirty, 0);
    arena_purge(arena);
    check_eq(supply.calls[DECOMMIT], 1);     /* once is enough */
    check(alloc_in(arena, 500000) == first); /* writes to all of it */
    check_eq(supply.calls[COMMIT], 1);
    check_eq(second[499999], 0x5a);
    heap_verify();
}

TEST(cleaning_up_goes_on_to_the_next_hook_when_one_refuses) {
    unsigned arena = create_hooked();
    supply.refuse = 1 << DALLOC | 1 << DECOMMIT | 1 << FORCED | 1 << LAZY;
    tally_free(alloc_in(arena, 3 * MIB));
    arena_purge(arena);
    for (enum hook hook = DECOMMIT; hook <= FORCED; hook++) {
        check_eq(supply.calls[hook], 1);
    }
    check_eq(supply.calls[DALLOC], 1);
    check_eq(supply.count, 1);
    arena_purge(arena);
    check_eq(supply.calls[DALLOC], 1); /* not asked again before it was used */
    supply.refuse = 1 << DALLOC | 1 << DECOMMIT;
    tally_free(alloc_in(arena, 3 * MIB));
    arena_purge(arena);
    check_eq(supply.calls[DALLOC], 2);
    check_eq(supply.calls[FORCED], 2);
    check_eq(supply.calls[LAZY], 1);
    supply.refuse = 0;
    tally_free(alloc_in(arena, 3 * MIB));
    arena_purge(arena);
    check_eq(supply.count, 0);
    check_eq(supply.calls[ALLOC], 1);
}

/* Random work; what the program holds keeps its bytes. */
static void work(unsigned arena, uint64_t seed, unsigned steps) {
    struct random random = random_start(seed, 0);
    struct {
        unsigned char *start;
        size_t size;
    } held[40] = {{NULL, 0}};
    for (unsigned i = 0; i < steps; i++) {
        unsigned k = (unsigned)random_below(&random, 40);
        unsigned char *block = held[k].start;
        if (block == NULL) {
            size_t size = sizes[random_below(&random, SIZES)];
            held[k].start = block = alloc_in(arena, size);
            held[k].size = size;
            if (block != NULL) {
                block[0] = block[size - 1] = (unsigned char)k;
            }
            continue;
        }
        check(block[0] == k && block[held[k].size - 1] == k);
        tally_free(block);
        held[k].start = NULL;
        now_ms += random_below(&random, 300);
        if (random_below(&random, 20) == 0) {
            arena_purge(arena);
        }
    }
    heap_verify();
}

/* A child for each set; the sanitizers, under which it takes minutes, see every seventh. */
enum { SETS_STEP = SANITIZED ? 7 : 1 };

TEST(any_set_of_refusing_hooks_is_survived_and_leaks_nothing) {
    for (unsigned refuse = 0; refuse < 1 << (FORCED + 1); refuse += SETS_STEP) {
        if (refuse & (1 << ALLOC | 1 << DESTROY)) {
            continue;
        }
        check_child({
            unsigned arena = create_hooked();
            supply.uncommitted = refuse % 3 == 0 && !(refuse & 1 << COMMIT);
            supply.refuse = refuse;
            work(arena, refuse, 400);
            check(arena_destroy(arena)); /* with what is still held */
            check_eq(supply.count, 0);
            check_eq(hooked_totals(arena).mapped, 0);
            heap_verify();
        });
    }
}

TEST(any_set_of_missing_hooks_is_survived) {
    for (unsigned missing = 0; missing < 1 << HOOKS; missing += 2 * SETS_STEP) {
        check_child({
            unsigned arena = create_hooked();
            bool (**const members)(void) = (bool (**)(void))(void *)&supply.table;
            for (enum hook hook = DALLOC; hook < HOOKS; hook++) {
                if (missing >> hook & 1) {
                    members[hook] = NULL;
                }
            }
            work(arena, missing, 100);
            unsigned given = supply.count;
            check(arena_destroy(arena));
            check_eq(supply.count,
                     (missing & (1 << DALLOC)) && (missing & (1 << DESTROY)) ? given : 0);
            check_eq(hooked_totals(arena).mapped, 0);
            heap_verify();
        });
    }
}

TEST(hooks_that_fail_at_random_leak_nothing) {
    unsigned arena = create_hooked();
    struct random random = random_start(5, 5);
    for (unsigned round = 0; round < 60; round++) {
        supply.refuse = (unsigned)random_next(&random) & ~(1u << DESTROY);
        work(arena, round, 100);
        check(arena_reset(arena));
        heap_verify();
    }
    supply.refuse = 0;
    check(arena_destroy(arena));
    check_eq(supply.count, 0);
}

TEST(reset_frees_everything_and_destroy_returns_it) {
    unsigned arena = create_hooked();
    size_t live = heap_totals().live;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < SIZES * 30; i++) {
            check(alloc_in(arena, sizes[i % SIZES]) != NULL);
        }
        check(arena_reset(arena));
        check_eq(hooked_totals(arena).used, 0);
        check_eq(heap_totals().live, live);
        check_eq(*arena_pactive(arena), 0);
        heap_verify();
    }
    check(alloc_in(arena, 100) != NULL);
    check(arena_destroy(arena));
    check_eq(supply.count, 0);
    check_eq(arena_create(NULL), arena); /* the next one has no hooks */
    check_eq(arena_hooks(arena), &hooks_default);
    unsigned calls = supply.calls[ALLOC];
    check(alloc_in(arena, 100) != NULL && alloc_in(arena, 5 * MIB) != NULL);
    check_eq(supply.calls[ALLOC], calls);
}

/* ---------------------------------------------------------------- resizing */

TEST(large_object_grows_within_its_extent_only) {
    unsigned arena = create_hooked();
    char *object = alloc_in(arena, 40000);
    struct heap_object found = heap_look(object);
    check(heap_resize(&found, MIB));
    check(heap_move(&found, 3 * MIB) == NULL);
    found = heap_look(object);
    check(!heap_resize(&found, 3 * MIB)); /* the extent has 2 MiB */
    check_eq(heap_look(object).size, MIB);
    char *behind = alloc_in(arena, 40000);
    check(behind > object && behind < object + 2 * MIB);
    check(!heap_resize(&found, 2 * MIB - 100000));
    check(heap_resize(&found, 50000));
    check_eq(object[39999], 0x5a);
    char *moved = tally_realloc(object, 6 * MIB); /* copied, as malloc would place it */
    check(moved != NULL && moved[39999] == 0x5a);
    check_eq(heap_look(object).verdict, HEAP_FREE_PAGES);
    heap_verify();
}

TEST(object_of_several_chunks_grows_and_shrinks) {
    unsigned arena = create_hooked();
    bool zeroed;
    char *object = alloc_zeroed(arena, 7 * MIB, 1, &zeroed); /* in 8 */
    struct heap_object found = heap_look(object);
    check(heap_resize(&found, 8 * MIB));
    memset(object, 1, 8 * MIB);
    found = heap_look(object);
    check_eq(found.size, 8 * MIB);
    check(heap_resize(&found, 3 * MIB));
    check_eq(hooked_totals(arena).used, 3 * MIB);
    check(alloc_in(arena, 4 * MIB) == object + 4 * MIB);
    found = heap_look(object);
    check(heap_resize(&found, 4 * MIB));
    check(!heap_resize(&found, 4 * MIB + 1));
    check_eq(arena_of(object + 4 * MIB - 1), arena);
    heap_verify();
}

TEST(rest_of_the_last_chunk_of_an_object_serves_others) {
    unsigned arena = create_hooked();
    char *object = alloc_in(arena, 3 * MIB); /* in 4 */
    char *small = alloc_in(arena, 100);
    char *other = alloc_in(arena, 300000);
    check(small >= object + 3 * MIB && small < object + 4 * MIB);
    check(other >= object + 3 * MIB && other < object + 4 * MIB);
    check_eq(heap_look(object + 2 * MIB + 5).verdict, HEAP_INTERIOR);
    check_eq(heap_look(object + 2 * MIB + 5).base, object);
    tally_free(object);
    check_eq(heap_look(object + 2 * MIB + 5).verdict, HEAP_FREE_PAGES);
    check_eq(arena_of(object + 2 * MIB + 5), arena);
    check(other[299999] == 0x5a && small[99] == 0x5a);
    heap_verify();
}

TEST(block_of_the_page_heap_does_not_grow_into_memory_of_hooks) {
    unsigned arena = create_hooked();
    for (unsigned i = 0; i < 40; i++) {
        size_t size = 64 * MIB;
        char *block = tally_malloc(size);
        check(block != NULL);
        void *behind = mmap(block + size, 2 * MIB, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (behind != block + size) {
            continue; /* the heap has it, or another mapping */
        }
        supply.instead = (uintptr_t)behind;
        tally_free(alloc_in(arena, 100000)); /* It is free, and kept for now. */
        struct heap_object found = heap_look(block);
        check(!heap_resize(&found, size + MIB));
        check_eq(arena_of(block + size), arena);
        tally_free(block);
        heap_verify();
        return;
    }
    skip("no address behind a block of the heap could be had");
}

/* ---------------------------------------------------------------- hooks that allocate */

TEST(hook_may_allocate) {
    unsigned arena = create_hooked();
    supply.allocates = true;
    work(arena, 9, 300);
    check(arena_destroy(arena));
    check_eq(supply.count, 0);
}

TEST(hook_of_the_callers_own_arena_may_allocate) {
    unsigned arena = create_hooked();
    supply.allocates = true;
    check(thread_set_arena(arena));
    check(tls.modes & THREAD_HOOKED);
    for (unsigned i = 0; i < 300; i++) {
        size_t size = sizes[i % SIZES];
        void *object = tally_malloc(size);
        check_eq(arena_of(object), arena);
        memset(object, 1, size);
        tally_free(object);
        check_eq(thread_count_cached(size_class_of(100)), 0);
    }
    check(thread_set_arena(0));
    check(tls.hot == &tls.self->hot);
    supply.allocates = false;
    check(arena_destroy(arena));
    check_eq(supply.count, 0);
    heap_verify();
}

static struct supply other_supply;
static unsigned other_arena;

/* Another arena's hooks are called from this one, and end before it does. */
static void *alloc_and_destroy_other(struct extent_hooks *table, void *new_addr, size_t size,
                                     size_t alignment, bool *zero, bool *commit, unsigned arena) {
    check(arena_destroy(other_arena));
    check(tls.modes & THREAD_IN_HOOK);
    void *object = tally_malloc(100); /* must not come from the hook that is running */
    check(arena_of(object) != (int)arena);
    tally_free(object);
    return hook_alloc(table, new_addr, size, alignment, zero, commit, arena);
}

TEST(hook_may_destroy_another_arena) {
    unsigned arena = create_hooked();
    other_supply = supply;
    other_supply.arena = other_arena = (unsigned)arena_create(&other_supply.table);
    check(alloc_in(other_arena, 1000) != NULL);
    supply.table.alloc = alloc_and_destroy_other;
    check(thread_set_arena(arena));
    void *object = tally_malloc(1000);
    check_eq(arena_of(object), arena);
    check(!arena_exists(other_arena) && other_supply.count == 0);
    tally_free(object);
}

/* ---------------------------------------------------------------- hooks that come later */

TEST(hooks_set_later_supply_what_comes_later) {
    start_heap_with("narenas:1");
    int arena = arena_create(NULL);
    void *before = alloc_in((unsigned)arena, 100);
    void *large_before = alloc_in((unsigned)arena, MIB);
    check_eq(arena_hooks((unsigned)arena), &hooks_default);
    check(arena_set_hooks((unsigned)arena, prepare_supply()));
    check_eq(supply.count, 0);
    void *after = alloc_in((unsigned)arena, 100);
    check(lies_in_supply(after, 100) && !lies_in_supply(before, 100));
    tally_free(before);
    tally_free(large_before);
    tally_free(after);
    check(arena_set_hooks((unsigned)arena, &hooks_default));
    unsigned calls = supply.calls[ALLOC];
    check(!lies_in_supply(alloc_in((unsigned)arena, 100), 100));
    check_eq(supply.calls[ALLOC], calls);
    check(!arena_set_hooks(77, &supply.table));
    heap_verify();
}

TEST(thread_with_a_cache_notices_hooks_of_its_arena) {
    start_heap_with("narenas:1");
    for (unsigned i = 0; i < 1000; i++) {
        tally_free(tally_malloc(64));
    }
    check(tls.hot == &tls.self->hot);
    prepare_supply();
    supply.arena = 0;
    check(arena_set_hooks(0, &supply.table));
    void *object = NULL;
    for (unsigned i = 0; i < 10000 && !(tls.modes & THREAD_HOOKED); i++) {
        object = tally_malloc(64);
        check(object != NULL);
    }
    check(tls.modes & THREAD_HOOKED);
    object = tally_malloc(64);
    check(lies_in_supply(object, 64));
    tally_free(object);
    object = tally_malloc(20000);
    check(lies_in_supply(object, 20000));
    supply.allocates = false;
    check(lies_in_supply(tally_malloc(MIB), MIB));
    check(arena_set_hooks(0, &hooks_default));
    tally_free(tally_malloc(64));
    check(!(tls.modes & THREAD_HOOKED) && tls.hot == &tls.self->hot);
    heap_verify();
}

static void *be_a_short_thread(void *argument) {
    (void)argument;
    for (unsigned i = 0; i < 3; i++) { /* too few for a heap */
        void *object = tally_malloc(sizes[i]);
        check(lies_in_supply(object, sizes[i]));
        tally_free(object);
    }
    return NULL;
}

TEST(thread_without_a_heap_is_served_by_hooks_too) {
    start_heap_with("narenas:1");
    prepare_supply();
    supply.arena = 0;
    check(arena_set_hooks(0, &supply.table));
    run_threads(1, be_a_short_thread, NULL);
}

/* ---------------------------------------------------------------- the default table */

TEST(default_hooks_work_for_whoever_calls_them) {
    start_heap();
    struct extent_hooks *hooks = arena_hooks(0);
    bool zero = false, commit = false;
    for (size_t alignment = os_facts.page_bytes; alignment <= 8 << 20; alignment *= 2) {
        char *start = hooks->alloc(hooks, NULL, 4 * MIB, alignment, &zero, &commit, 0);
        check(start != NULL && (uintptr_t)start % alignment == 0 && zero && commit);
        check_eq(start[4 * MIB - 1], 0);
        memset(start, 1, 4 * MIB);
        check(!hooks->purge_forced(hooks, start, 4 * MIB, MIB, MIB, 0));
        check(start[MIB] == 0 && start[MIB - 1] == 1);
        check(!hooks->purge_lazy(hooks, start, 4 * MIB, 0, MIB, 0));
        check(!hooks->decommit(hooks, start, 4 * MIB, 2 * MIB, MIB, 0));
        check(!hooks->commit(hooks, start, 4 * MIB, 2 * MIB, MIB, 0));
        check_eq(start[2 * MIB], 0);
        start[2 * MIB] = 1;
        check(!hooks->split(hooks, start, 4 * MIB, MIB, 3 * MIB, true, 0));
        check(!hooks->merge(hooks, start, MIB, start + MIB, 3 * MIB, true, 0));
        check(!hooks->dalloc(hooks, start, 4 * MIB, true, 0));
        check(hooks->alloc(hooks, start, 4 * MIB, alignment, &zero, &commit, 0) == start);
        check(hooks->alloc(hooks, start, 4 * MIB, alignment, &zero, &commit, 0) == NULL);
        hooks->destroy(hooks, start, 4 * MIB, true, 0);
    }
    check(hooks->alloc(hooks, NULL, (size_t)1 << 60, 4096, &zero, &commit, 0) == NULL);
}

static unsigned wrapped_calls;

static void *wrapped_alloc(struct extent_hooks *hooks, void *new_addr, size_t size,
                           size_t alignment, bool *zero, bool *commit, unsigned arena) {
    (void)hooks;
    wrapped_calls++;
    return hooks_default.alloc(&hooks_default, new_addr, size, alignment, zero, commit, arena);
}

TEST(copy_of_the_default_table_with_one_member_wrapped_works) {
    start_heap_with("narenas:1");
    static struct extent_hooks wrapped;
    wrapped = *arena_hooks(0);
    wrapped.alloc = wrapped_alloc;
    unsigned arena = (unsigned)arena_create(&wrapped);
    work(arena, 3, 500);
    check(wrapped_calls > 0);
    check(arena_destroy(arena));
    check_eq(hooked_totals(arena).mapped, 0);
    heap_verify();
}

/* ---------------------------------------------------------------- threads and forks */

static _Atomic unsigned workers;

static void *work_in_thread(void *argument) {
    (void)argument;
    struct random random = random_start(workers++, 7);
    void *held[20] = {NULL};
    for (unsigned i = 0; i < 4000 / SLOWER; i++) {
        unsigned k = (unsigned)random_below(&random, 20);
        if (held[k] == NULL) {
            held[k] = alloc_in(1, sizes[random_below(&random, SIZES - 2)]);
            check(held[k] != NULL);
            *(void **)held[k] = held + k;
        } else {
            check_eq(*(void **)held[k], held + k);
            tally_free(held[k]);
            held[k] = NULL;
        }
        __atomic_fetch_add(&now_ms, 1, __ATOMIC_RELAXED);
    }
    for (unsigned k = 0; k < 20; k++) {
        if (held[k] != NULL) {
            tally_free(held[k]);
        }
    }
    return NULL;
}

TEST(threads_share_an_arena_with_hooks) {
    static const ssize_t times[] = {0, 20, -1};
    for (unsigned i = 0; i < 3; i++) {
        check_child({
            unsigned arena = create_hooked();
            check(arena_set_decay_ms(arena, ARENA_DIRTY, times[i]));
            size_t live = heap_totals().live;
            run_threads(4, work_in_thread, NULL);
            heap_verify();
            thread_flush();
            check_eq(heap_totals().live, live);
            check(arena_destroy(arena));
            check_eq(supply.count, 0);
        });
    }
}

static void *work_for_ever(void *argument) {
    for (;;) {
        (void)work_in_thread(argument);
    }
    return NULL;
}

TEST(child_of_a_fork_works_on) {
    unsigned arena = create_hooked();
    supply.table.decommit = NULL;
    check(arena_set_decay_ms(arena, ARENA_DIRTY, 5));
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++) {
        check(pthread_create(&threads[i], NULL, work_for_ever, NULL) == 0);
    }
    for (unsigned i = 0; i < 60 / SLOWER; i++) {
        check_child({
            pthread_mutex_init(&supply.lock, NULL); /* another may have held it */
            for (unsigned k = 0; k < 100; k++) {
                void *object = alloc_in(arena, sizes[k % SIZES]);
                check(object != NULL);
                tally_free(object);
            }
            hooked_verify(arena);
        });
    }
}

/* ---------------------------------------------------------------- a fork at a chosen moment */

/* Counts down to the change of the chunk table in whose midst the process is forked. */
static int changes_before_fork = -1;

/* The thread that changes the table is not in the child. */
static void *work_in_child(void *argument) {
    (void)argument;
    for (unsigned k = 0; k < 4 * SIZES; k++) {
        void *object = alloc_in(1, sizes[k % SIZES]);
        check(object != NULL);
        tally_free(object);
    }
    hooked_verify(1);
    return NULL;
}

static sem_t fork_now, fork_done;

static void *fork_when_told(void *argument) {
    check(sem_wait(&fork_now) == 0);
    check_child(work_in_child(argument));
    check(sem_post(&fork_done) == 0);
    return NULL;
}

static void fork_if_it_is_time(void) {
    if (changes_before_fork >= 0 && changes_before_fork-- == 0) {
        check(sem_post(&fork_now) == 0 && sem_wait(&fork_done) == 0);
    }
}

void __real_classmap_enter(struct chunk *chunk);
void __wrap_classmap_enter(struct chunk *chunk);
void __wrap_classmap_enter(struct chunk *chunk) {
    fork_if_it_is_time();
    __real_classmap_enter(chunk);
}

void __real_classmap_leave(const struct chunk *chunk);
void __wrap_classmap_leave(const struct chunk *chunk);
void __wrap_classmap_leave(const struct chunk *chunk) {
    fork_if_it_is_time();
    __real_classmap_leave(chunk);
}

/* An extent of three chunks is entered, and then taken out: each time one chunk after the other. */
TEST(child_of_a_fork_in_the_midst_of_an_extent_works_on) {
    for (int changes = 0; changes < 6; changes++) {
        check_child({
            unsigned arena = create_hooked();
            check(arena_set_decay_ms(arena, ARENA_DIRTY, 0));
            pthread_t thread;
            check(pthread_create(&thread, NULL, fork_when_told, NULL) == 0);
            changes_before_fork = changes;
            tally_free(alloc_in(arena, 5 * MIB));
            check(changes_before_fork < 0 && pthread_join(thread, NULL) == 0);
        });
    }
}
