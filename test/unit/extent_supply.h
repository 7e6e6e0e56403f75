/* SPDX-License-Identifier: MIT
 *
 * extent_supply.h - extent hooks that write everything down, for test_hooked*.c.
 *
 * They map memory of their own, note every extent they gave, check every argument they get against that,
 * and can be told to refuse.  What they decommit cannot be touched until it is committed again.  At the
 * end nothing may be left that was not returned.  The clock is the test's own (--wrap).
 */
#ifndef TALLY_TEST_EXTENT_SUPPLY_H
#define TALLY_TEST_EXTENT_SUPPLY_H

#include <errno.h>
#include <sys/mman.h>

#include "heap/fast.h"
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
static inline bool begin_hook(struct extent_hooks *table, enum hook hook, unsigned arena) {
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

static inline void *map_aligned(size_t size, size_t alignment) {
    char *wide = mmap(NULL, size + alignment, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(wide != MAP_FAILED);
    uintptr_t start = align_up((uintptr_t)wide, alignment);
    munmap(wide, start - (uintptr_t)wide);
    munmap((void *)(start + size), (uintptr_t)wide + alignment - start);
    return (void *)start;
}

static inline unsigned find_extent(struct supply *from, void *addr, size_t size) {
    for (unsigned i = 0; i < from->count; i++) {
        if (from->extents[i].base == (uintptr_t)addr) {
            check_eq(from->extents[i].size, size);
            return i;
        }
    }
    check(!"an extent that was given and not returned");
    return 0;
}

static inline void *hook_alloc(struct extent_hooks *table, void *new_addr, size_t size,
                               size_t alignment, bool *zero, bool *commit, unsigned arena) {
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

static inline void forget(struct supply *from, void *addr, size_t size) {
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

static inline bool hook_dalloc(struct extent_hooks *table, void *addr, size_t size, bool committed,
                               unsigned arena) {
    (void)committed;
    if (begin_hook(table, DALLOC, arena)) {
        return true;
    }
    forget((struct supply *)table, addr, size);
    return false;
}

static inline void hook_destroy(struct extent_hooks *table, void *addr, size_t size, bool committed,
                                unsigned arena) {
    (void)committed;
    (void)begin_hook(table, DESTROY, arena);
    forget((struct supply *)table, addr, size);
}

static inline char *range_of(struct extent_hooks *table, void *addr, size_t size, size_t offset,
                             size_t length) {
    struct supply *from = (struct supply *)table;
    pthread_mutex_lock(&from->lock);
    (void)find_extent(from, addr, size);
    pthread_mutex_unlock(&from->lock);
    check(length > 0 && offset % UNIT_BYTES == 0 && length % UNIT_BYTES == 0);
    check(offset + length <= size);
    return (char *)addr + offset;
}

static inline bool hook_commit(struct extent_hooks *table, void *addr, size_t size, size_t offset,
                               size_t length, unsigned arena) {
    bool refuse = begin_hook(table, COMMIT, arena);
    char *start = range_of(table, addr, size, offset, length);
    return refuse || mprotect(start, length, PROT_READ | PROT_WRITE) != 0;
}

static inline bool hook_decommit(struct extent_hooks *table, void *addr, size_t size, size_t offset,
                                 size_t length, unsigned arena) {
    bool refuse = begin_hook(table, DECOMMIT, arena);
    char *start = range_of(table, addr, size, offset, length);
    if (refuse) {
        return true;
    }
    check(madvise(start, length, MADV_DONTNEED) == 0);
    return mprotect(start, length, PROT_NONE) != 0;
}

static inline bool hook_lazy(struct extent_hooks *table, void *addr, size_t size, size_t offset,
                             size_t length, unsigned arena) {
    bool refuse = begin_hook(table, LAZY, arena);
    char *start = range_of(table, addr, size, offset, length);
    if (!refuse) {
        memset(start, 0x33, length); /* indeterminate */
    }
    return refuse;
}

static inline bool hook_forced(struct extent_hooks *table, void *addr, size_t size, size_t offset,
                               size_t length, unsigned arena) {
    bool refuse = begin_hook(table, FORCED, arena);
    char *start = range_of(table, addr, size, offset, length);
    if (!refuse) {
        memset(start, 0, length);
    }
    return refuse;
}

static inline bool hook_split(struct extent_hooks *table, void *addr, size_t size, size_t size_a,
                              size_t size_b, bool committed, unsigned arena) {
    (void)addr, (void)size, (void)size_a, (void)size_b, (void)committed;
    return begin_hook(table, SPLIT, arena);
}

static inline bool hook_merge(struct extent_hooks *table, void *addr_a, size_t size_a, void *addr_b,
                              size_t size_b, bool committed, unsigned arena) {
    (void)addr_a, (void)size_a, (void)addr_b, (void)size_b, (void)committed;
    return begin_hook(table, MERGE, arena);
}

static inline struct extent_hooks *prepare_supply(void) {
    supply = (struct supply){
        .table = {hook_alloc, hook_dalloc, hook_destroy, hook_commit, hook_decommit, hook_lazy,
                  hook_forced, hook_split, hook_merge},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .arena = 1,
    };
    return &supply.table;
}

/* ---------------------------------------------------------------- arenas over it */

static inline unsigned create_hooked(void) {
    start_heap_with("narenas:1");
    int arena = arena_create(prepare_supply());
    check_eq(arena, 1);
    return 1;
}

static inline void *alloc_zeroed(unsigned arena, size_t size, size_t alignment, bool *zeroed) {
    errno = 0;
    void *object = place_alloc((struct place){(int)arena, PLACE_OWN}, size, alignment, zeroed);
    check_eq(errno, 0); /* whatever hooks did to it */
    return object;
}

static inline void *alloc_in(unsigned arena, size_t size) {
    bool zeroed;
    void *object = alloc_zeroed(arena, size, 1, &zeroed);
    if (object != NULL) {
        check_eq(arena_of(object), arena);
        memset(object, 0x5a, size);
    }
    return object;
}

static inline bool lies_in_supply(const void *object, size_t size) {
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

/* Random work; what the program holds keeps its bytes. */
static inline void work(unsigned arena, uint64_t seed, unsigned steps) {
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

#endif
