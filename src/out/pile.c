/* SPDX-License-Identifier: MIT
 *
 * pile.c - doubles and copies, so that each byte is copied about once.
 */
#include "out/pile.h"

#include <string.h>

#include "base/os.h"

enum { LEAST_BYTES = 64 << 10 };

bool pile_grow(struct pile *pile, size_t more) {
    if (more <= pile->capacity - pile->length) {
        return true;
    }
    size_t capacity = max_size(2 * pile->capacity, LEAST_BYTES);
    capacity = align_up(max_size(capacity, pile->length + more), os_facts.page_bytes);
    char *bytes = os_map(capacity);
    if (bytes == NULL) {
        return false;
    }
    struct pile old = *pile;
    if (old.bytes != NULL) {
        memcpy(bytes, old.bytes, old.length);
        os_unmap(old.bytes, old.capacity);
    }
    *pile = (struct pile){bytes, old.length, capacity};
    return true;
}

void pile_release(struct pile *pile) {
    if (pile->bytes != NULL) {
        os_unmap(pile->bytes, pile->capacity);
    }
    *pile = (struct pile){0};
}
