/* SPDX-License-Identifier: MIT
 *
 * reenter_blocks.h - what the scenes and the handlers of test_reenter.c hold, and whether the heap is still
 * one: every block has what was written, no two overlap, none is handed out twice, none is lost.
 *
 * A process in which that is not so ends with a status that says what is wrong.
 */
#ifndef TALLY_TEST_REENTER_BLOCKS_H
#define TALLY_TEST_REENTER_BLOCKS_H

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tally/tally.h>
#include <unistd.h>

enum {
    SIZE = 96,          /* the classes that scenes and handlers share: this one is served by */
    MIDDLE = 2000,      /* the fast path, this one by the slow path from the same magazines */
    MOST_BLOCKS = 4096, /* of one owner */
    LATER = 600,        /* blocks handed out afterwards, to find what is free twice */
};

/* Exit statuses of a process that ran a scene. */
enum {
    FINE = 0,
    NOT_REACHED = 70,
    BROKEN_CONTENT = 71,
    OVERLAP = 72,
    NO_MEMORY = 73,
    HUNG = 74,
    LOST = 75
};

struct block {
    unsigned char *p;
    size_t size;
};

/* What one owner holds; a handler never touches what the interrupted code is changing. */
struct owner {
    struct block blocks[MOST_BLOCKS];
    unsigned count;
};

static struct owner scene_blocks, handler_blocks, later_blocks;
static struct owner victims; /* made by the scene's preparation for the handler to free */

static unsigned char tag_of(const struct block *block) {
    return (unsigned char)((uintptr_t)block->p >> 4 ^ block->size);
}

static void keep(struct owner *owner, void *p, size_t size) {
    if (p == NULL || owner->count == MOST_BLOCKS) {
        _exit(NO_MEMORY);
    }
    struct block block = {p, size};
    memset(p, tag_of(&block), size);
    owner->blocks[owner->count++] = block;
}

/* By words, large blocks with gaps: this is where most of the test's time goes. */
static void check_content(const struct block *block) {
    uint64_t word = tag_of(block) * UINT64_C(0x0101010101010101);
    size_t stride = block->size > 8192 ? 56 : 8;
    for (size_t i = 0; i + 8 <= block->size; i += stride) {
        if (*(const uint64_t *)(block->p + i) != word) {
            _exit(BROKEN_CONTENT);
        }
    }
}

static void make(struct owner *owner, size_t size, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        keep(owner, malloc(size), size);
    }
}

static void drop(struct owner *owner, unsigned count) {
    for (unsigned i = 0; i < count && owner->count > 0; i++) {
        struct block *last = &owner->blocks[--owner->count];
        check_content(last);
        free(last->p);
    }
}

static void sort_by_address(struct block **all, unsigned count) {
    for (unsigned gap = count / 2; gap > 0; gap /= 2) {
        for (unsigned i = gap; i < count; i++) {
            for (unsigned k = i; k >= gap && all[k - gap]->p > all[k]->p; k -= gap) {
                struct block *other = all[k];
                all[k] = all[k - gap];
                all[k - gap] = other;
            }
        }
    }
}

static void check_model(void) {
    static struct block *all[4 * MOST_BLOCKS];
    struct owner *owners[] = {&scene_blocks, &handler_blocks, &later_blocks, &victims};
    unsigned count = 0;
    for (unsigned o = 0; o < 4; o++) {
        for (unsigned i = 0; i < owners[o]->count; i++) {
            all[count++] = &owners[o]->blocks[i];
        }
    }
    sort_by_address(all, count);
    for (unsigned i = 1; i < count; i++) {
        if (all[i - 1]->p + all[i - 1]->size > all[i]->p) {
            _exit(OVERLAP);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        check_content(all[i]);
    }
}

/* What the program holds, by the allocator's own count.  All that scene and handler made is freed in
 * the end; libc keeps a little for its threads. */
enum { FORGIVEN = 2000 };
static size_t live_before;

static size_t live_bytes(void) {
    struct tally_totals totals;
    tally_totals(&totals);
    return totals.live;
}

/* The scene is over: is the heap still one? */
static void check_heap(void) {
    check_model();
    make(&later_blocks, SIZE, LATER);
    for (size_t size = 16; size <= 70000; size += size / 2) {
        make(&later_blocks, size, 2);
    }
    check_model();
    drop(&scene_blocks, MOST_BLOCKS);
    drop(&handler_blocks, MOST_BLOCKS);
    make(&later_blocks, SIZE, LATER);
    check_model();
    drop(&victims, MOST_BLOCKS);
    drop(&later_blocks, MOST_BLOCKS);
    malloc_trim(0);
    tally_verify();
    if (live_bytes() > live_before + FORGIVEN) {
        _exit(LOST);
    }
}

#endif
