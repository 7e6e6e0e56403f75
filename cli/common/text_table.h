/* SPDX-License-Identifier: MIT
 *
 * text_table.h - texts by number: equal texts have the same number.
 *
 * Start with a zeroed struct.  Texts are copies and stay where they are.
 */
#pragma once

#include <stdint.h>

struct text_table {
    char **texts;
    uint32_t count, room;
    uint32_t *slots; /* numbers by hash, or UINT32_MAX; twice the room */
};

uint32_t text_table_add(struct text_table *table, const char *text);
void text_table_free(struct text_table *table);
