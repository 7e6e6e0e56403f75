/* SPDX-License-Identifier: MIT
 *
 * work.c - memory for the time of one check.
 *
 * Each mapping begins with a link to the one before.
 */
#include "leak/work.h"

#include "base/os.h"

struct map {
    struct map *next, *before;
    size_t bytes;
    char rest[] __attribute__((aligned(CACHE_LINE)));
};

static struct {
    struct map *maps;
    bool has_failed;
} g;

void *work_map(size_t bytes) {
    size_t whole = align_up(sizeof(struct map) + bytes, os_facts.page_bytes);
    struct map *map = whole > bytes ? os_map(whole) : NULL;
    if (map == NULL) {
        g.has_failed = true;
        return NULL;
    }
    map->bytes = whole;
    map->next = g.maps;
    if (g.maps != NULL) {
        g.maps->before = map;
    }
    g.maps = map;
    return map->rest;
}

void work_unmap(void *start) {
    struct map *map = (struct map *)(void *)((char *)start - offsetof(struct map, rest));
    if (map->before != NULL) {
        map->before->next = map->next;
    } else {
        g.maps = map->next;
    }
    if (map->next != NULL) {
        map->next->before = map->before;
    }
    os_unmap(map, map->bytes);
}

bool work_has_failed(void) {
    return g.has_failed;
}

void work_release(void) {
    while (g.maps != NULL) {
        struct map *map = g.maps;
        g.maps = map->next;
        os_unmap(map, map->bytes);
    }
    g.has_failed = false;
}

void work_walk(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context) {
    for (const struct map *map = g.maps; map != NULL; map = map->next) {
        visit((uintptr_t)map, (uintptr_t)map + map->bytes, context);
    }
}

/* ---------------------------------------------------------------- stacks */

enum { BLOCK_WORDS = 8160 };

struct work_block {
    struct work_block *below;
    size_t count;
    uintptr_t words[BLOCK_WORDS];
};

static bool add_block(struct work_stack *stack) {
    struct work_block *block = stack->spare;
    stack->spare = NULL;
    if (block == NULL) {
        block = work_map(sizeof(*block));
    }
    if (block == NULL) {
        return false;
    }
    block->count = 0;
    block->below = stack->top;
    stack->top = block;
    return true;
}

void work_push(struct work_stack *stack, uintptr_t word) {
    if ((stack->top == NULL || stack->top->count == BLOCK_WORDS) && !add_block(stack)) {
        return;
    }
    stack->top->words[stack->top->count++] = word;
}

/* One empty block is kept, so that words that go to and fro over an edge cost no system calls. */
static void drop_block(struct work_stack *stack) {
    struct work_block *empty = stack->top;
    stack->top = empty->below;
    if (stack->spare != NULL) {
        work_unmap(stack->spare);
    }
    stack->spare = empty;
}

bool work_pop(struct work_stack *stack, uintptr_t *word) {
    if (stack->top != NULL && stack->top->count == 0) {
        drop_block(stack);
    }
    if (stack->top == NULL) {
        return false;
    }
    *word = stack->top->words[--stack->top->count];
    return true;
}
