/* SPDX-License-Identifier: MIT
 *
 * hooks.h - jemalloc's extent hooks: the default ones, and calling one.
 *
 * While a hook runs the caller counts as being outside of the library, but for a mark: what the
 * hook allocates comes from arena 0, past every cache (heap.c, place.c).
 *
 * Threads     Call with no lock of ours held, and with no class of the caller's cache closed.
 */
#pragma once

#include "heap/heap.h"

/* What an arena without hooks of its own is said to have; its members work for anybody. */
extern struct extent_hooks hooks_default HIDDEN;

/* Each calls a hook on behalf of an arena and leaves errno as it was.  The first returns 0 when the
 * hook refuses; the others return true when the hook exists and succeeds. */
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
