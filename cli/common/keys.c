/* SPDX-License-Identifier: MIT
 *
 * keys.c - numbers for triples of numbers, by open addressing.
 */
#include "common/keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "common/cli.h"

uint64_t keys_mix(uint64_t x) {
    x = hash_word(x ^ x >> 31);
    return x ^ (x >> 29);
}

static struct key *find_key(const struct keys *keys, const uint64_t words[3]) {
    uint64_t salt = (uintptr_t)keys->entries;
    uint64_t hash = keys_mix(keys_mix(keys_mix(salt + words[0]) + words[1]) + words[2]);
    for (size_t i = hash & (keys->room - 1);; i = (i + 1) & (keys->room - 1)) {
        struct key *entry = &keys->entries[i];
        if (entry->id == 0 || memcmp(entry->words, words, sizeof entry->words) == 0) {
            return entry;
        }
    }
}

static void grow_keys(struct keys *keys) {
    struct keys bigger = {.room = keys->room > 0 ? keys->room * 2 : 256, .count = keys->count};
    bigger.entries = must_zeroed(bigger.room * sizeof *bigger.entries);
    for (size_t i = 0; i < keys->room; i++) {
        if (keys->entries[i].id != 0) {
            *find_key(&bigger, keys->entries[i].words) = keys->entries[i];
        }
    }
    free(keys->entries);
    *keys = bigger;
}

uint32_t keys_add(struct keys *keys, uint64_t a, uint64_t b, uint64_t c) {
    if (keys->count * 2 >= keys->room) {
        grow_keys(keys);
    }
    const uint64_t words[3] = {a, b, c};
    struct key *entry = find_key(keys, words);
    if (entry->id == 0) {
        memcpy(entry->words, words, sizeof words);
        entry->id = (uint32_t)++keys->count;
    }
    return entry->id - 1;
}

void keys_free(struct keys *keys) {
    free(keys->entries);
    *keys = (struct keys){0};
}
