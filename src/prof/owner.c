/* SPDX-License-Identifier: MIT
 *
 * owner.c - a table of threads; the numbers of ended ones wait in a queue, the oldest first.
 */
#include "prof/owner.h"

#include <string.h>

#include "base/table.h"

/* As long as there are fewer numbers than FRESH_NUMBERS, none is used twice. */
enum { FRESH_NUMBERS = 1 << 16, HEIRS_MOST = 64 };

static struct {
    struct table owners;
    uint32_t count;
    uint32_t first_free, last_free; /* number + 1; 0: none */
    uint32_t heirs[HEIRS_MOST];     /* those that stand for others */
    uint32_t heir_count;
} g = {.owners.item_bytes = sizeof(struct owner)};

struct owner *owner_at(uint32_t number) {
    return table_at(&g.owners, number);
}

static uint32_t take_free(void) {
    uint32_t number = g.first_free - 1;
    g.first_free = owner_at(number)->next_free;
    if (g.first_free == 0) {
        g.last_free = 0;
    }
    return number;
}

uint32_t owner_add(void) {
    uint32_t number = g.count;
    if (g.count >= FRESH_NUMBERS && g.first_free != 0) {
        number = take_free();
    } else if (g.count == OWNER_NONE || !table_reach(&g.owners, number)) {
        return OWNER_NONE;
    } else {
        g.count++;
    }
    *owner_at(number) = (struct owner){0};
    return number;
}

static uint32_t find_heir(const char *name) {
    for (uint32_t i = 0; i < g.heir_count; i++) {
        if (strcmp(owner_at(g.heirs[i])->name, name) == 0) {
            return g.heirs[i];
        }
    }
    return OWNER_NONE;
}

/* The last place is for all names that come too late to get one. */
uint32_t owner_gone(const char *name) {
    uint32_t number = find_heir(name);
    if (number == OWNER_NONE && g.heir_count >= HEIRS_MOST - 1) {
        name = "";
        number = find_heir(name);
    }
    if (number == OWNER_NONE) {
        number = owner_add();
        if (number == OWNER_NONE) {
            return OWNER_NONE;
        }
        struct owner *owner = owner_at(number);
        memcpy(owner->name, name, strlen(name) + 1);
        owner->has_ended = owner->is_heir = true;
        g.heirs[g.heir_count++] = number;
    }
    return number;
}

uint32_t owner_count(void) {
    return g.count;
}

void owner_release(uint32_t number) {
    struct owner *owner = owner_at(number);
    if (owner->is_heir) {
        return;
    }
    owner->name[0] = '\0';
    owner->next_free = 0;
    if (g.last_free != 0) {
        owner_at(g.last_free - 1)->next_free = number + 1;
    } else {
        g.first_free = number + 1;
    }
    g.last_free = number + 1;
}

/* The queue may be torn; what is in it is lost. */
void owner_repair(void) {
    g.first_free = g.last_free = 0;
}
