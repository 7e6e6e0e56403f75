/* SPDX-License-Identifier: MIT
 *
 * hooks.h - jemalloc's extent hooks: the table as programs know it, the one of ours, and calling one.
 *
 * While a hook runs the caller counts as being outside of the library, but for a mark: what the hook
 * allocates comes from arena 0, past every cache (heap.c, place.c).
 *
 * Threads     Call with no lock of ours held, and with no class of the caller's cache closed.
 */
#pragma once

#include "base/common.h"

/* jemalloc's extent_hooks_t, compiled into programs.  All functions that return bool return false for
 * success.  NULL is for "never succeeds", but alloc must be there. */
struct extent_hooks {
    void *(*alloc)(struct extent_hooks *hooks, void *new_addr, size_t size, size_t alignment,
                   bool *zero, bool *commit, unsigned arena_ind);
    bool (*dalloc)(struct extent_hooks *hooks, void *addr, size_t size, bool committed,
                   unsigned arena_ind);
    void (*destroy)(struct extent_hooks *hooks, void *addr, size_t size, bool committed,
                    unsigned arena_ind);
    bool (*commit)(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                   size_t length, unsigned arena_ind);
    bool (*decommit)(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                     size_t length, unsigned arena_ind);
    bool (*purge_lazy)(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                       size_t length, unsigned arena_ind);
    bool (*purge_forced)(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                         size_t length, unsigned arena_ind);
    bool (*split)(struct extent_hooks *hooks, void *addr, size_t size, size_t size_a, size_t size_b,
                  bool committed, unsigned arena_ind);
    bool (*merge)(struct extent_hooks *hooks, void *addr_a, size_t size_a, void *addr_b,
                  size_t size_b, bool committed, unsigned arena_ind);
};

/* What an arena without hooks of its own is said to have; its members work for anybody. */
extern struct extent_hooks hooks_default HIDDEN;

/* Each calls a hook on behalf of an arena, with errno as it was afterwards.  The first gives 0 when it
 * refuses; the others are true when it is there and did it. */
uintptr_t hooks_alloc(struct extent_hooks *hooks, unsigned arena, size_t size, size_t alignment,
                      bool *zero, bool *commit);
bool hooks_dalloc(struct extent_hooks *hooks, unsigned arena, uintptr_t base, size_t size,
                  bool committed);
void hooks_destroy(struct extent_hooks *hooks, unsigned arena, uintptr_t base, size_t size,
                   bool committed);

/* Part of an extent. */
struct hooks_range {
    uintptr_t base; /* of the extent */
    size_t size;
    size_t offset;
    size_t length;
};
bool hooks_commit(struct extent_hooks *hooks, unsigned arena, struct hooks_range range);

/* What became of memory that nobody uses: the first of three hooks that does it. */
enum hooks_cleanup {
    HOOKS_DECOMMITTED, /* to be committed before use, and zeros then */
    HOOKS_ZEROS,       /* purged by force */
    HOOKS_LAZY,        /* purged lazily: what it holds is not known */
    HOOKS_REFUSED,     /* as it was */
};
enum hooks_cleanup hooks_clean_up(struct extent_hooks *hooks, unsigned arena,
                                  struct hooks_range range);
