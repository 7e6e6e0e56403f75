/* SPDX-License-Identifier: MIT
 *
 * owner.c - a table of threads; numbers of ended ones wait in a queue, longest first.
 */
#include "prof/owner.h"

#include "prof/table.h"

/* While there are fewer, a number means one thread only. */
enum { FRESH_NUMBERS = 1 << 16 };

static struct {
    struct table owners;
    uint32_t count;
    uint32_t first_free, last_free; /* number + 1; 0: none */
    uint32_t gone;                  /* number + 1; 0: not needed yet */
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

uint32_t owner_gone(void) {
    if (g.gone == 0) {
        uint32_t number = owner_add();
        if (number == OWNER_NONE) {
            return OWNER_NONE;
        }
        owner_at(number)->has_ended = true;
        g.gone = number + 1;
    }
    return g.gone - 1;
}

uint32_t owner_count(void) {
    return g.count;
}

void owner_release(uint32_t number) {
    if (number + 1 == g.gone) {
        return;
    }
    struct owner *owner = owner_at(number);
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
