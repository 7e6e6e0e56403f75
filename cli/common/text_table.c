/* SPDX-License-Identifier: MIT
 *
 * text_table.c - texts by number, found by open addressing.
 */
#include "common/text_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "common/cli.h"

enum { ROOM_LEAST = 256 };

/* The slot of the text, or the free one where it belongs. */
static uint32_t *find_slot(const struct text_table *table, const char *text) {
    size_t mask = (size_t)table->room * 2 - 1;
    uint64_t hash = hash_text(HASH_TEXT, text);
    size_t at = (hash ^ hash >> 32) & mask;
    while (table->slots[at] != UINT32_MAX && strcmp(table->texts[table->slots[at]], text) != 0) {
        at = (at + 1) & mask;
    }
    return &table->slots[at];
}

static void grow(struct text_table *table) {
    table->room = table->room == 0 ? ROOM_LEAST : table->room * 2;
    table->texts = must_grow(table->texts, table->room * sizeof(*table->texts));
    free(table->slots);
    size_t bytes = (size_t)table->room * 2 * sizeof(*table->slots);
    table->slots = must_alloc(bytes);
    memset(table->slots, 0xff, bytes);
    for (uint32_t i = 0; i < table->count; i++) {
        *find_slot(table, table->texts[i]) = i;
    }
}

uint32_t text_table_add(struct text_table *table, const char *text) {
    if (table->count == table->room) {
        grow(table);
    }
    uint32_t *slot = find_slot(table, text);
    if (*slot == UINT32_MAX) {
        table->texts[table->count] = must_copy(text);
        *slot = table->count++;
    }
    return *slot;
}

void text_table_free(struct text_table *table) {
    for (uint32_t i = 0; i < table->count; i++) {
        free(table->texts[i]);
    }
    free(table->texts);
    free(table->slots);
    *table = (struct text_table){0};
}
