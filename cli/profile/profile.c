/* SPDX-License-Identifier: MIT
 *
 * profile.c - a profile in memory: its parts, each there once, and its samples.
 *
 * Texts, functions and locations are found by their content in tables of open addressing.  An enemy
 * may choose what is in a file, so the hash has a secret and no choice of names makes it slow.
 *
 * Invariant   A text, a function, a location is there once, unless profile_set_lines made two equal.
 * Cost        Adding anything is one look into a table.
 * Read next   profile_add.c, one profile added to another.
 */
#include "profile/profile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/cli.h"

/* Numbers of things, found by hash.  At most half of the slots are used. */
struct table {
    struct table_slot {
        uint32_t hash;
        uint32_t number; /* of the thing, plus one; 0: empty */
    } * slots;
    size_t capacity, used;
};

/* Texts lie in blocks that never move. */
struct block {
    struct block *next;
    size_t used, bytes;
    char text[];
};

enum { BLOCK_BYTES = 1 << 16 };

struct profile_memory {
    uint64_t secret[2];
    struct block *blocks;
    const char **texts;
    uint32_t text_count;
    struct table by_text, by_function, by_location;
    /* How many items each array has room for. */
    uint32_t texts_room, types_room, mappings_room, functions_room, locations_room, lines_room,
        samples_room, stacks_room, labels_room, comments_room;
    uint64_t values_room;
    uint64_t bytes; /* taken by all of this */
};

/* ---------------------------------------------------------------- tables */

static uint64_t mix(const struct profile *profile, uint64_t hash, uint64_t word) {
    unsigned __int128 product =
        (unsigned __int128)(hash ^ word ^ profile->memory->secret[0]) * profile->memory->secret[1];
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t mix_bytes(const struct profile *profile, uint64_t hash, const void *bytes,
                          size_t length) {
    const char *at = bytes;
    uint64_t word;
    hash = mix(profile, hash, length);
    for (; length >= sizeof word; length -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = mix(profile, hash, word);
    }
    word = 0;
    memcpy(&word, at, length);
    return mix(profile, hash, word);
}

/* Does the thing of this index have the content of `key`? */
typedef bool (*is_equal_fn)(const struct profile *profile, uint32_t index, const void *key);

static void table_insert(struct table *table, uint32_t hash, uint32_t number) {
    size_t at = hash & (table->capacity - 1);
    while (table->slots[at].number != 0) {
        at = (at + 1) & (table->capacity - 1);
    }
    table->slots[at] = (struct table_slot){hash, number};
    table->used++;
}

/* A profile must not take more memory than its reader allows. */
static void spend(struct profile_memory *memory, uint64_t bytes) {
    memory->bytes += bytes;
    if (memory->bytes > cli_memory_limit) {
        exit(complain(EXIT_OWN_FAILURE, "the profile takes more than %s; see --memory-limit",
                      size_text((int64_t)cli_memory_limit)));
    }
}

static void table_grow(struct profile_memory *memory, struct table *table) {
    struct table old = *table;
    if (2 * (old.used + 1) <= old.capacity) {
        return;
    }
    table->capacity = old.capacity > 0 ? 2 * old.capacity : 256;
    table->used = 0;
    spend(memory, (table->capacity - old.capacity) * sizeof *table->slots);
    table->slots = must_zeroed(table->capacity * sizeof *table->slots);
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.slots[i].number != 0) {
            table_insert(table, old.slots[i].hash, old.slots[i].number);
        }
    }
    free(old.slots);
}

/* False, with the *index of what equals the key; true where there is none and *index is added. */
static bool table_find_or_add(const struct profile *profile, struct table *table, uint64_t hash64,
                              is_equal_fn is_equal, const void *key, uint32_t *index) {
    uint32_t hash = (uint32_t)(hash64 ^ hash64 >> 32);
    table_grow(profile->memory, table);
    size_t at = hash & (table->capacity - 1);
    for (; table->slots[at].number != 0; at = (at + 1) & (table->capacity - 1)) {
        if (table->slots[at].hash == hash && is_equal(profile, table->slots[at].number - 1, key)) {
            *index = table->slots[at].number - 1;
            return false;
        }
    }
    table->slots[at] = (struct table_slot){hash, *index + 1};
    table->used++;
    return true;
}

/* ---------------------------------------------------------------- memory */

struct profile *profile_new(void) {
    struct profile *profile = must_zeroed(sizeof *profile);
    struct profile_memory *memory = must_zeroed(sizeof *memory);
    profile->memory = memory;
    if (getrandom(memory->secret, sizeof memory->secret, GRND_NONBLOCK) !=
        (ssize_t)sizeof memory->secret) {
        memory->secret[0] = (uintptr_t)memory; /* which the kernel has randomised */
    }
    memory->secret[1] |= 1;
    const char *none = profile_text(profile, "", 0);
    profile->period_type = (struct profile_type){none, none};
    profile->source = none;
    return profile;
}

void profile_free(struct profile *profile) {
    if (profile == NULL) {
        return;
    }
    struct profile_memory *memory = profile->memory;
    for (struct block *block = memory->blocks; block != NULL;) {
        struct block *next = block->next;
        free(block);
        block = next;
    }
    void *const arrays[] = {memory->texts,
                            memory->by_text.slots,
                            memory->by_function.slots,
                            profile->types,
                            profile->mappings,
                            memory->by_location.slots,
                            profile->functions,
                            profile->locations,
                            profile->lines,
                            profile->samples,
                            profile->values,
                            profile->stacks,
                            profile->labels,
                            profile->comments,
                            memory,
                            profile};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        free(arrays[i]);
    }
}

/* The array with room for this number of items.  More than can be numbered ends the command. */
static void *make_room(struct profile_memory *memory, uint32_t *room, void *items,
                       size_t item_bytes, uint64_t needed) {
    if (needed <= *room) {
        return items;
    }
    if (needed >= PROFILE_NONE) {
        exit(complain(EXIT_OWN_FAILURE, "the profile has more than 4,294,967,294 parts"));
    }
    uint64_t wanted = *room < 16 ? 16 : *room + (uint64_t)*room / 2;
    wanted = wanted < needed ? needed : wanted;
    wanted = wanted < PROFILE_NONE ? wanted : PROFILE_NONE - 1;
    spend(memory, (wanted - *room) * item_bytes);
    *room = (uint32_t)wanted;
    return must_grow(items, wanted * item_bytes);
}

/* An array of the owner, the profile or its memory, gets room for `more` more items. */
#define MAKE_ROOM(memory, owner, array, count, more)                                               \
    ((owner)->array = make_room(memory, &(memory)->array##_room, (owner)->array,                   \
                                sizeof *(owner)->array, (uint64_t)(count) + (more)))

struct text_key {
    const char *text;
    size_t length;
};

static bool is_text(const struct profile *profile, uint32_t index, const void *key) {
    const struct text_key *wanted = key;
    const char *text = profile->memory->texts[index];
    return strncmp(text, wanted->text, wanted->length) == 0 && text[wanted->length] == '\0';
}

static char *place_text(struct profile_memory *memory, const char *text, size_t length) {
    struct block *block = memory->blocks;
    if (block == NULL || block->bytes - block->used <= length) {
        size_t bytes = length >= BLOCK_BYTES / 8 ? length + 1 : BLOCK_BYTES;
        spend(memory, sizeof *block + bytes);
        struct block *fresh = must_alloc(sizeof *fresh + bytes);
        fresh->used = 0;
        fresh->bytes = bytes;
        if (block != NULL && bytes != BLOCK_BYTES) { /* after the one that still has room */
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            memory->blocks = fresh;
        }
        block = fresh;
    }
    char *place = block->text + block->used;
    memcpy(place, text, length);
    place[length] = '\0';
    block->used += length + 1;
    return place;
}

const char *profile_text(struct profile *profile, const char *text, size_t length) {
    struct profile_memory *memory = profile->memory;
    length = strnlen(text, length); /* an embedded zero ends it */
    struct text_key key = {text, length};
    uint32_t index = memory->text_count;
    MAKE_ROOM(memory, memory, texts, index, 1);
    if (table_find_or_add(profile, &memory->by_text, mix_bytes(profile, 1, text, length), is_text,
                          &key, &index)) {
        memory->texts[index] = place_text(memory, text, length);
        memory->text_count++;
    }
    return memory->texts[index];
}

/* ---------------------------------------------------------------- parts */

uint32_t profile_add_type(struct profile *profile, const char *name, const char *unit) {
    MAKE_ROOM(profile->memory, profile, types, profile->type_count, 1);
    profile->types[profile->type_count] = (struct profile_type){
        profile_text(profile, name, SIZE_MAX), profile_text(profile, unit, SIZE_MAX)};
    return profile->type_count++;
}

uint32_t profile_add_mapping(struct profile *profile, struct profile_mapping mapping) {
    MAKE_ROOM(profile->memory, profile, mappings, profile->mapping_count, 1);
    profile->mappings[profile->mapping_count] = mapping;
    return profile->mapping_count++;
}

uint32_t profile_add_comment(struct profile *profile, const char *text) {
    MAKE_ROOM(profile->memory, profile, comments, profile->comment_count, 1);
    profile->comments[profile->comment_count] = profile_text(profile, text, SIZE_MAX);
    return profile->comment_count++;
}

static bool is_function(const struct profile *profile, uint32_t index, const void *key) {
    const struct profile_function *a = &profile->functions[index], *b = key;
    return a->name == b->name && a->file == b->file && a->start_line == b->start_line;
}

uint32_t profile_add_function(struct profile *profile, struct profile_function function) {
    struct profile_memory *memory = profile->memory;
    uint32_t index = profile->function_count;
    MAKE_ROOM(memory, profile, functions, index, 1);
    uint64_t hash = mix(profile, 2, (uintptr_t)function.name);
    hash = mix(profile, hash, (uintptr_t)function.file);
    hash = mix(profile, hash, function.start_line);
    if (table_find_or_add(profile, &memory->by_function, hash, is_function, &function, &index)) {
        profile->functions[profile->function_count++] = function;
    }
    return index;
}

struct location_key {
    uint64_t address;
    uint32_t mapping, line_count;
    const struct profile_line *lines;
};

static bool is_location(const struct profile *profile, uint32_t index, const void *key) {
    const struct profile_location *location = &profile->locations[index];
    const struct location_key *wanted = key;
    return location->address == wanted->address && location->mapping == wanted->mapping &&
           location->line_count == wanted->line_count &&
           (wanted->line_count == 0 || memcmp(profile->lines + location->lines, wanted->lines,
                                              wanted->line_count * sizeof *wanted->lines) == 0);
}

/* A copy at the end of profile->lines; `lines` may lie there itself. */
static uint32_t append_lines(struct profile *profile, const struct profile_line *lines,
                             uint32_t line_count) {
    uint32_t first = profile->line_count;
    bool is_own = profile->lines != NULL && lines >= profile->lines &&
                  lines < profile->lines + profile->line_count;
    size_t own_at = is_own ? (size_t)(lines - profile->lines) : 0;
    MAKE_ROOM(profile->memory, profile, lines, first, line_count);
    if (line_count > 0) {
        memcpy(profile->lines + first, is_own ? profile->lines + own_at : lines,
               line_count * sizeof *lines);
    }
    profile->line_count += line_count;
    return first;
}

uint32_t profile_add_location(struct profile *profile, uint64_t address, uint32_t mapping,
                              const struct profile_line *lines, uint32_t line_count) {
    struct profile_memory *memory = profile->memory;
    struct location_key key = {address, mapping, line_count, lines};
    uint32_t index = profile->location_count;
    MAKE_ROOM(memory, profile, locations, index, 1);
    uint64_t hash = mix(profile, 3 ^ (uint64_t)mapping << 8, address);
    if (line_count > 0) {
        hash = mix_bytes(profile, hash, lines, line_count * sizeof *lines);
    }
    if (table_find_or_add(profile, &memory->by_location, hash, is_location, &key, &index)) {
        uint32_t first = append_lines(profile, lines, line_count);
        profile->locations[profile->location_count++] =
            (struct profile_location){address, mapping, first, line_count};
    }
    return index;
}

void profile_set_lines(struct profile *profile, uint32_t location, const struct profile_line *lines,
                       uint32_t line_count) {
    uint32_t first = append_lines(profile, lines, line_count);
    profile->locations[location].lines = first;
    profile->locations[location].line_count = line_count;
}

static void make_room_for_values(struct profile *profile) {
    struct profile_memory *memory = profile->memory;
    uint64_t needed = ((uint64_t)profile->sample_count + 1) * profile->type_count;
    if (needed > memory->values_room) {
        spend(memory, (needed + needed / 2 + 64 - memory->values_room) * sizeof *profile->values);
        memory->values_room = needed + needed / 2 + 64;
        profile->values = must_grow(profile->values, memory->values_room * sizeof *profile->values);
    }
}

uint32_t profile_add_sample(struct profile *profile, const uint32_t *stack, uint32_t depth,
                            const int64_t *values, const struct profile_label *labels,
                            uint32_t label_count) {
    struct profile_memory *memory = profile->memory;
    uint32_t index = profile->sample_count;
    MAKE_ROOM(memory, profile, samples, index, 1);
    MAKE_ROOM(memory, profile, stacks, profile->stack_count, depth);
    MAKE_ROOM(memory, profile, labels, profile->label_count, label_count);
    make_room_for_values(profile);
    profile->samples[index] =
        (struct profile_sample){profile->stack_count, depth, profile->label_count, label_count};
    if (depth > 0) {
        memcpy(profile->stacks + profile->stack_count, stack, depth * sizeof *stack);
    }
    if (label_count > 0) {
        memcpy(profile->labels + profile->label_count, labels, label_count * sizeof *labels);
    }
    if (profile->type_count > 0) {
        memcpy(profile->values + (size_t)index * profile->type_count, values,
               profile->type_count * sizeof *values);
    }
    profile->stack_count += depth;
    profile->label_count += label_count;
    return profile->sample_count++;
}

/* ---------------------------------------------------------------- questions */

uint32_t profile_find_type(const struct profile *profile, const char *name) {
    for (uint32_t i = 0; i < profile->type_count; i++) {
        if (strcmp(profile->types[i].name, name) == 0) {
            return i;
        }
    }
    return PROFILE_NONE;
}

bool profile_find_pair(const struct profile *profile, uint32_t type, uint32_t *space,
                       uint32_t *objects) {
    const char *name = profile->types[type].name;
    const char *end = strrchr(name, '_');
    int length = end != NULL ? (int)(end - name) : 0;
    if (length == 4 && strncmp(name, "temp", 4) == 0) {
        name = "alloc", length = 5;
    } else if (strcmp(name, "slack_space") == 0 || strcmp(name, "pinned_space") == 0) {
        name = "inuse", length = 5;
    }
    char text[128];
    snprintf(text, sizeof text, "%.*s%sspace", length, name, length > 0 ? "_" : "");
    *space = profile_find_type(profile, text);
    snprintf(text, sizeof text, "%.*s%sobjects", length, name, length > 0 ? "_" : "");
    *objects = profile_find_type(profile, text);
    return *space != PROFILE_NONE && *objects != PROFILE_NONE;
}

const char *profile_label(const struct profile *profile, uint32_t sample, const char *key) {
    const struct profile_sample *row = &profile->samples[sample];
    for (uint32_t i = 0; i < row->label_count; i++) {
        const struct profile_label *label = &profile->labels[row->labels + i];
        if (label->text != NULL && strcmp(label->key, key) == 0) {
            return label->text;
        }
    }
    return "";
}

const struct profile_label *profile_number_label(const struct profile *profile, uint32_t sample,
                                                 const char *key, const char *unit) {
    const struct profile_sample *row = &profile->samples[sample];
    for (uint32_t i = 0; i < row->label_count; i++) {
        const struct profile_label *label = &profile->labels[row->labels + i];
        if (label->text == NULL && strcmp(label->key, key) == 0 && strcmp(label->unit, unit) == 0) {
            return label;
        }
    }
    return NULL;
}

int64_t profile_total(const struct profile *profile, uint32_t type) {
    int64_t total = 0;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        total = profile_sum(total, profile_value(profile, i, type));
    }
    return total;
}

/* ---------------------------------------------------------------- merging */

static bool have_equal_labels(const struct profile *profile, const struct profile_sample *a,
                              const struct profile_sample *b) {
    for (uint32_t i = 0; i < a->label_count; i++) {
        const struct profile_label *first = &profile->labels[a->labels + i];
        const struct profile_label *second = &profile->labels[b->labels + i];
        if (first->key != second->key || first->text != second->text ||
            first->number != second->number || first->unit != second->unit) {
            return false;
        }
    }
    return true;
}

static bool is_sample(const struct profile *profile, uint32_t index, const void *key) {
    const struct profile_sample *a = &profile->samples[index], *b = key;
    return a->depth == b->depth && a->label_count == b->label_count &&
           (a->depth == 0 || memcmp(profile->stacks + a->stack, profile->stacks + b->stack,
                                    a->depth * sizeof *profile->stacks) == 0) &&
           have_equal_labels(profile, a, b);
}

static uint64_t hash_sample(const struct profile *profile, const struct profile_sample *sample) {
    uint64_t hash = mix(profile, 4, sample->label_count);
    if (sample->depth > 0) {
        hash = mix_bytes(profile, hash, profile->stacks + sample->stack,
                         sample->depth * sizeof *profile->stacks);
    }
    for (uint32_t i = 0; i < sample->label_count; i++) {
        const struct profile_label *label = &profile->labels[sample->labels + i];
        hash = mix(profile, hash, (uintptr_t)label->key);
        hash = mix(profile, hash, (uintptr_t)label->text ^ (uint64_t)label->number);
    }
    return hash;
}

void profile_merge_equal(struct profile *profile) {
    struct table table = {0};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        struct profile_sample sample = profile->samples[i];
        const int64_t *from = profile->values + (size_t)i * profile->type_count;
        uint32_t index = kept;
        bool is_new = table_find_or_add(profile, &table, hash_sample(profile, &sample), is_sample,
                                        &sample, &index);
        int64_t *to = profile->values + (size_t)index * profile->type_count;
        if (is_new) {
            profile->samples[kept++] = sample;
        }
        for (uint32_t type = 0; type < profile->type_count; type++) {
            to[type] = is_new ? from[type] : profile_sum(to[type], from[type]);
        }
    }
    profile->sample_count = kept;
    free(table.slots);
}

/* ---------------------------------------------------------------- checking */

static bool verify_locations(const struct profile *profile) {
    for (uint32_t i = 0; i < profile->location_count; i++) {
        const struct profile_location *location = &profile->locations[i];
        if ((location->mapping != PROFILE_NONE && location->mapping >= profile->mapping_count) ||
            (uint64_t)location->lines + location->line_count > profile->line_count) {
            return false;
        }
    }
    for (uint32_t i = 0; i < profile->line_count; i++) {
        if (profile->lines[i].function >= profile->function_count) {
            return false;
        }
    }
    return true;
}

static bool verify_samples(const struct profile *profile) {
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        const struct profile_sample *sample = &profile->samples[i];
        if ((uint64_t)sample->stack + sample->depth > profile->stack_count ||
            (uint64_t)sample->labels + sample->label_count > profile->label_count) {
            return false;
        }
    }
    for (uint32_t i = 0; i < profile->stack_count; i++) {
        if (profile->stacks[i] >= profile->location_count) {
            return false;
        }
    }
    for (uint32_t i = 0; i < profile->label_count; i++) {
        if (profile->labels[i].key == NULL || profile->labels[i].unit == NULL) {
            return false;
        }
    }
    return true;
}

bool profile_verify(const struct profile *profile) {
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        if (profile->mappings[i].path == NULL || profile->mappings[i].build_id == NULL) {
            return false;
        }
    }
    for (uint32_t i = 0; i < profile->function_count; i++) {
        const struct profile_function *function = &profile->functions[i];
        if (function->name == NULL || function->system_name == NULL || function->file == NULL) {
            return false;
        }
    }
    return (profile->type_count == 0 || profile->default_type < profile->type_count) &&
           verify_locations(profile) && verify_samples(profile);
}
