/* SPDX-License-Identifier: MIT
 *
 * arena.c - the array of arenas, made once at start.
 *
 * Threads     The array is constant after start; bins have locks of their own.
 */
#include "heap/arena.h"

#include "base/log.h"
#include "base/opt.h"
#include "base/os.h"
#include "heap/meta.h"

static struct {
    struct arena *arenas;
    unsigned count;
} g;

bool arena_init(void) {
    unsigned wanted = (unsigned)(opt.narenas != 0 ? opt.narenas : os_facts.cpus);
    g.count = (unsigned)min_size(wanted, MOST_ARENAS);
    g.arenas = meta_alloc(g.count * sizeof(struct arena), CACHE_LINE);
    if (g.arenas == NULL) {
        return false;
    }
    for (unsigned a = 0; a < g.count; a++) {
        for (unsigned c = 1; c < CLASS_COUNT; c++) {
            bin_init(&g.arenas[a].bins[c], c, a);
        }
    }
    return true;
}

unsigned arena_count(void) {
    return g.count;
}

unsigned arena_choose(void) {
    return g.count > 1 ? os_current_cpu() % g.count : 0;
}

struct bin *arena_bin(unsigned arena, unsigned size_class) {
    assert(arena < g.count && size_class < CLASS_COUNT);
    return &g.arenas[arena].bins[size_class];
}
