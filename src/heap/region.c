/* SPDX-License-Identifier: MIT
 *
 * region.c - reserves addresses and turns them into chunks.
 *
 *      region     | chunk | chunk | chunk | ..reserved.. |      grows at the frontier
 *                                         ^frontier      ^end
 *
 * Chunks are committed as they are needed, so that the kernel can refuse.  Two regions stay two
 * mappings even where they touch, once both have been written to, so regions grow with the heap: by
 * 64 MiB at first and by an eighth of it later, which makes some fifty of them for 64 GiB.
 *
 * Huge pages.  A small heap keeps them away: with the kernel set to use them everywhere, the first
 * object would cost 2 MiB.  From SMALL_HEAP_BYTES on the kernel does what it is set to do.  The
 * options never and always give the same advice to all regions.  Advice splits mappings, so it
 * changes at most once as the heap grows.
 *
 * Threads     Guarded by the page heap's lock, except the sum.
 */
#include "heap/region.h"

#include <stdatomic.h>
#include <string.h>

#include "base/attention.h"
#include "base/count.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/classmap.h"
#include "heap/pages.h"
#include "heap/runs.h"
#include "opt/opt.h"

enum {
    REGION_CHUNKS_MOST = 32,     /* reserve at most 64 MiB ahead */
    SMALL_HEAP_BYTES = 64 << 20, /* docs/design.md, the decision on huge pages */
    CHUNKS_PER_BLOCK = 12,       /* about a page of descriptions */
};

static struct {
    uintptr_t frontier; /* next chunk to commit */
    uintptr_t end;
    uintptr_t small_end; /* chunks from the frontier up to here are to have small pages */
    size_t next_chunks;  /* how many chunks the next region should have */
    struct chunk *blank; /* descriptions for chunks to come */
    struct chunk *blank_end;
    uint64_t mapped_units; /* written under the lock, read without */
} g;

void region_init(void) {
    g.next_chunks = 1;
}

/* Gives the addresses behind the frontier back; they may be terabytes that nobody will use. */
static void drop_frontier(void) {
    assert(pages_is_mine());
    if (g.end > g.frontier) {
        os_unmap((void *)g.frontier, g.end - g.frontier);
        g.end = g.frontier;
    }
}

void region_shed(void) {
    drop_frontier();
    g.next_chunks = 1;
}

/* Reserves `bytes` addresses at a multiple of the chunk size; 0 when refused. */
static uintptr_t reserve_aligned(size_t bytes) {
    assert(bytes > 0 && bytes % CHUNK_BYTES == 0);
    uintptr_t wide = (uintptr_t)os_reserve(NULL, bytes + CHUNK_BYTES);
    if (wide == 0) {
        return 0;
    }
    uintptr_t start = align_up(wide, CHUNK_BYTES);
    if (start > wide) {
        os_unmap((void *)wide, start - wide);
    }
    if (start < wide + CHUNK_BYTES) {
        os_unmap((void *)(start + bytes), wide + CHUNK_BYTES - start);
    }
    assert(start % CHUNK_BYTES == 0);
    return start;
}

static void advise(uintptr_t start, size_t bytes, bool small_pages) {
    if (opt.thp == THP_ALWAYS) {
        os_advise_huge((void *)start, bytes, true);
    } else if (opt.thp == THP_NEVER || (opt.thp == THP_AUTO && small_pages)) {
        os_advise_huge((void *)start, bytes, false);
    }
}

/* Addresses were reserved at `start`, where the region begins or behind its end. */
static void advise_new(uintptr_t start, size_t bytes) {
    bool small_pages = region_mapped_units() * UNIT_BYTES + bytes <= SMALL_HEAP_BYTES;
    if (small_pages || start != g.end) {
        g.small_end = small_pages ? start + bytes : start;
    }
    advise(start, bytes, small_pages);
}

void region_advise_again(uintptr_t start, size_t bytes) {
    if (opt.thp != THP_AUTO) {
        advise(start, bytes, false);
        return;
    }
    for (size_t done = 0, step; done < bytes; done += step) {
        uintptr_t at = start + done;
        step = min_size(bytes - done, CHUNK_BYTES - at % CHUNK_BYTES);
        advise(at, step, classmap_chunk(at)->small_pages);
    }
}

/* Reserves a region of at least `chunks` chunks, right behind the last one if possible. */
static bool reserve_region(size_t chunks) {
    size_t bytes = chunks * CHUNK_BYTES;
    uintptr_t start = (uintptr_t)os_reserve((void *)g.end, bytes);
    if (start % CHUNK_BYTES != 0) {
        os_unmap((void *)start, bytes);
        start = reserve_aligned(bytes);
    }
    if (start == 0) {
        return false;
    }
    advise_new(start, bytes);
    if (start != g.end) {
        drop_frontier();
        g.frontier = start;
    }
    g.end = start + bytes;
    assert(g.frontier % CHUNK_BYTES == 0 && g.frontier <= g.end);
    return true;
}

static bool ensure_frontier(size_t chunks) {
    assert(chunks >= 1);
    if ((g.end - g.frontier) / CHUNK_BYTES >= chunks) {
        return true;
    }
    if (reserve_region(max_size(chunks, g.next_chunks))) {
        size_t eighth = region_mapped_units() / CHUNK_UNITS / 8;
        size_t most = max_size(eighth, REGION_CHUNKS_MOST);
        g.next_chunks = os_facts.address_space_limited ? 1 : min_size(g.next_chunks * 2, most);
    } else if (!reserve_region(chunks)) {
        return false;
    }
    return (g.end - g.frontier) / CHUNK_BYTES >= chunks;
}

static size_t span_bytes(void) {
    return align_up(CHUNK_UNITS * sizeof(struct span), os_facts.page_bytes);
}

/* Memory for a chunk's description.  Those without spans are cut from blocks, so that few pages
 * hold many of them. */
static struct chunk *new_chunk(void) {
    if (g.blank == g.blank_end) {
        struct chunk *block = meta_alloc(CHUNKS_PER_BLOCK * sizeof(struct chunk), CACHE_LINE);
        if (block == NULL) {
            return NULL;
        }
        g.blank = block;
        g.blank_end = block + CHUNKS_PER_BLOCK;
    }
    g.blank->span = meta_alloc(span_bytes(), os_facts.page_bytes);
    return g.blank->span != NULL ? g.blank++ : NULL;
}

/* Describes the chunk at the frontier, whose memory is committed.  NULL, with the frontier where it
 * was, without memory or where the address cannot be described. */
static struct chunk *describe_chunk(void) {
    assert(g.frontier + CHUNK_BYTES <= g.end);
    if (!classmap_cover(g.frontier)) {
        return NULL;
    }
    struct chunk *chunk = new_chunk();
    if (chunk == NULL) {
        return NULL;
    }
    chunk->base = g.frontier;
    chunk->committed = ~(unit_map)0;
    chunk->small_pages = g.frontier < g.small_end;
    memset(chunk->first, UNIT_FREE, sizeof(chunk->first));
    g.frontier += CHUNK_BYTES;
    count_add(&g.mapped_units, CHUNK_UNITS);
    classmap_enter(chunk);
    return chunk;
}

/*
 * The chunks are committed in one call, so that the kernel can refuse what it will never have.
 * What was described before a failure stays as free chunks.
 */
static bool commit_at_frontier(size_t chunks) {
    assert(pages_is_mine() && (g.end - g.frontier) / CHUNK_BYTES >= chunks);
    if (os_commit((void *)g.frontier, chunks * CHUNK_BYTES) != 0) {
        drop_frontier();
        return false;
    }
    for (size_t i = 0; i < chunks; i++) {
        struct chunk *chunk = describe_chunk();
        if (chunk == NULL) {
            drop_frontier();
            return false;
        }
        runs_add(chunk, 1);
    }
    attention_raise(ATTENTION_GROWN);
    return true;
}

bool region_grow(size_t chunks) {
    return ensure_frontier(chunks) && commit_at_frontier(chunks);
}

/* Reserves the addresses right behind the region, or none. */
static bool reserve_behind(size_t chunks) {
    size_t bytes = chunks * CHUNK_BYTES;
    uintptr_t start = (uintptr_t)os_reserve((void *)g.end, bytes);
    if (start == g.end) {
        advise_new(start, bytes);
        g.end += bytes;
        return true;
    }
    if (start != 0) {
        os_unmap((void *)start, bytes);
    }
    return false;
}

bool region_grow_at(uintptr_t address, size_t chunks) {
    if (address != g.frontier) {
        return false;
    }
    size_t reserved = (g.end - g.frontier) / CHUNK_BYTES;
    return (reserved >= chunks || reserve_behind(chunks - reserved)) && commit_at_frontier(chunks);
}

void region_reset(void) {
    assert(pages_is_mine());
    g.blank = g.blank_end = NULL;
    g.frontier = g.end = g.small_end = 0;
    count_set(&g.mapped_units, 0);
}

void region_count_again(void) {
    count_add(&g.mapped_units, CHUNK_UNITS);
}

size_t region_mapped_units(void) {
    return count_read(&g.mapped_units);
}

size_t region_description_bytes(void) {
    return region_mapped_units() / CHUNK_UNITS * (sizeof(struct chunk) + span_bytes());
}

void region_walk_memory(void (*visit)(uintptr_t start, uintptr_t end, void *context),
                        void *context) {
    visit((uintptr_t)&g, (uintptr_t)&g + sizeof(g), context);
}
