/* SPDX-License-Identifier: MIT
 *
 * hooks.c - calls of extent hooks, and the table that stands for "the kernel".
 *
 * The default table is what an arena without hooks of its own is said to have.  Programs copy it
 * and wrap single members, so each member works by itself, on memory that any of them gave.
 *
 * Read next   hooked.c, which decides when they are called.
 */
#include "heap/hooks.h"

#include "base/log.h"
#include "base/os.h"
#include "heap/pages.h"
#include "heap/thread.h"

/* ---------------------------------------------------------------- calling */

/* State of the caller, which may itself have been called by a hook. */
struct outside {
    struct thread_outside thread;
    uint8_t in_hook;
};

static struct outside go_outside(void) {
    assert(!pages_is_mine());
    uint8_t in_hook = tls.modes & THREAD_IN_HOOK;
    tls.modes |= THREAD_IN_HOOK;
    return (struct outside){thread_go_outside(), in_hook};
}

static void come_back(struct outside state) {
    assert(tls.modes & THREAD_IN_HOOK);
    thread_come_back(state.thread);
    tls.modes = (uint8_t)((tls.modes & ~THREAD_IN_HOOK) | state.in_hook);
}

uintptr_t hooks_alloc(struct extent_hooks *hooks, unsigned arena, size_t size, size_t alignment,
                      bool *zero, bool *commit) {
    assert(size % CHUNK_BYTES == 0 && is_power_of_two(alignment));
    *zero = false;
    *commit = true;
    if (hooks->alloc == NULL) {
        return 0;
    }
    struct outside state = go_outside();
    void *result = hooks->alloc(hooks, NULL, size, alignment, zero, commit, arena);
    come_back(state);
    return (uintptr_t)result;
}

bool hooks_dalloc(struct extent_hooks *hooks, unsigned arena, uintptr_t base, size_t size,
                  bool committed) {
    if (hooks->dalloc == NULL) {
        return false;
    }
    struct outside state = go_outside();
    bool refused = hooks->dalloc(hooks, (void *)base, size, committed, arena);
    come_back(state);
    return !refused;
}

void hooks_destroy(struct extent_hooks *hooks, unsigned arena, uintptr_t base, size_t size,
                   bool committed) {
    if (hooks->destroy != NULL) {
        struct outside state = go_outside();
        hooks->destroy(hooks, (void *)base, size, committed, arena);
        come_back(state);
    }
}

typedef bool (*range_hook)(struct extent_hooks *, void *, size_t, size_t, size_t, unsigned);

static bool call(struct extent_hooks *hooks, range_hook hook, unsigned arena,
                 struct hooks_range range) {
    assert(range.length > 0 && range.offset + range.length <= range.size);
    if (hook == NULL) {
        return false;
    }
    struct outside state = go_outside();
    bool refused = hook(hooks, (void *)range.base, range.size, range.offset, range.length, arena);
    come_back(state);
    return !refused;
}

bool hooks_commit(struct extent_hooks *hooks, unsigned arena, struct hooks_range range) {
    return call(hooks, hooks->commit, arena, range);
}

enum hooks_cleanup hooks_clean_up(struct extent_hooks *hooks, unsigned arena,
                                  struct hooks_range range) {
    if (call(hooks, hooks->decommit, arena, range)) {
        return HOOKS_DECOMMITTED;
    }
    if (call(hooks, hooks->purge_forced, arena, range)) {
        return HOOKS_ZEROS;
    }
    return call(hooks, hooks->purge_lazy, arena, range) ? HOOKS_LAZY : HOOKS_REFUSED;
}

/* ---------------------------------------------------------------- the default table */

/* Reserves addresses at a multiple of `alignment`, at `wanted` if that is not NULL. */
static uintptr_t reserve(void *wanted, size_t size, size_t alignment) {
    size_t more = wanted != NULL || alignment <= os_facts.page_bytes ? 0 : alignment;
    if (size == 0 || size % os_facts.page_bytes != 0 || size + more < size) {
        return 0;
    }
    uintptr_t wide = (uintptr_t)os_reserve(wanted, size + more);
    uintptr_t start = align_up(wide, max_size(alignment, 1));
    if (wide == 0 || (wanted != NULL && wide != (uintptr_t)wanted)) {
        if (wide != 0) {
            os_unmap((void *)wide, size);
        }
        return 0;
    }
    if (start > wide) {
        os_unmap((void *)wide, start - wide);
    }
    if (start < wide + more) {
        os_unmap((void *)(start + size), wide + more - start);
    }
    return start;
}

static void *default_alloc(struct extent_hooks *hooks, void *new_addr, size_t size,
                           size_t alignment, bool *zero, bool *commit, unsigned arena) {
    (void)hooks;
    (void)arena;
    uintptr_t start = reserve(new_addr, size, alignment);
    if (start != 0 && os_commit((void *)start, size) != 0) {
        os_unmap((void *)start, size);
        start = 0;
    }
    if (start != 0) {
        *zero = true;
        *commit = true;
    }
    return (void *)start;
}

static bool default_dalloc(struct extent_hooks *hooks, void *addr, size_t size, bool committed,
                           unsigned arena) {
    (void)hooks;
    (void)committed;
    (void)arena;
    return os_unmap(addr, size) != 0;
}

static void default_destroy(struct extent_hooks *hooks, void *addr, size_t size, bool committed,
                            unsigned arena) {
    (void)default_dalloc(hooks, addr, size, committed, arena);
}

static bool default_commit(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                           size_t length, unsigned arena) {
    (void)hooks;
    (void)size;
    (void)arena;
    return os_commit((char *)addr + offset, length) != 0;
}

static bool default_purge_forced(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                                 size_t length, unsigned arena) {
    (void)hooks;
    (void)size;
    (void)arena;
    return os_purge((char *)addr + offset, length) != 0;
}

static bool default_purge_lazy(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                               size_t length, unsigned arena) {
    (void)hooks;
    (void)size;
    (void)arena;
    return os_purge_lazily((char *)addr + offset, length) != 0;
}

static bool default_split(struct extent_hooks *hooks, void *addr, size_t size, size_t size_a,
                          size_t size_b, bool committed, unsigned arena) {
    (void)hooks;
    (void)addr;
    (void)size;
    (void)size_a;
    (void)size_b;
    (void)committed;
    (void)arena;
    return false;
}

static bool default_merge(struct extent_hooks *hooks, void *addr_a, size_t size_a, void *addr_b,
                          size_t size_b, bool committed, unsigned arena) {
    (void)hooks;
    (void)addr_a;
    (void)size_a;
    (void)addr_b;
    (void)size_b;
    (void)committed;
    (void)arena;
    return false;
}

/* Memory that is decommitted has none behind it and reads as zeros; committing it is always
 * possible, as far as the kernel goes. */
struct extent_hooks hooks_default = {
    .alloc = default_alloc,
    .dalloc = default_dalloc,
    .destroy = default_destroy,
    .commit = default_commit,
    .decommit = default_purge_forced,
    .purge_lazy = default_purge_lazy,
    .purge_forced = default_purge_forced,
    .split = default_split,
    .merge = default_merge,
};
