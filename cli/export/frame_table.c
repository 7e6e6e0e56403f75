/* SPDX-License-Identifier: MIT
 *
 * frame_table.c - the stacks of a profile as numbers of frames.
 *
 * Each location is named once; then its frames are copied into every stack that has it.  A frame is found
 * by a pair of numbers: that of its name and that of its file.
 */
#include "export/frame_table.h"

#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/keys.h"
#include "common/text_table.h"

enum { ENTRIES_MOST = 1 << 28 };

struct frame_memory {
    struct text_table texts;
    struct keys frames; /* by the numbers of name and file */
    uint32_t frame_room;
};

/* The frames of every location, one after the other. */
struct unfolded {
    size_t *starts; /* one more than there are locations */
    uint32_t *ids, *lines;
};

static uint32_t add_frame(struct frame_table *table, const char *name, struct frame frame) {
    struct frame_memory *memory = table->memory;
    uint32_t name_text = text_table_add(&memory->texts, name[0] == '\0' ? "??" : name);
    uint32_t file_text = text_table_add(&memory->texts, frame.file);
    uint32_t id = keys_add(&memory->frames, name_text, file_text, 0);
    if (id == table->frame_count) {
        table->frames =
            must_have_room(table->frames, id, &memory->frame_room, sizeof *table->frames);
        frame.name = memory->texts.texts[name_text];
        table->frames[table->frame_count++] = frame;
    }
    return id;
}

/* The frame of a line of a location; of the location itself where it has none. */
static uint32_t name_frame(struct frame_table *table, const struct profile *profile,
                           uint32_t location, uint32_t line, enum select_by by) {
    const struct profile_location *place = &profile->locations[location];
    struct frame frame = {.file = "", .module = ""};
    if (place->mapping != PROFILE_NONE) {
        frame.module = profile->mappings[place->mapping].path;
    }
    if (place->line_count > 0 && by != BY_MODULES && by != BY_ADDRESSES) {
        const struct profile_line *at = &profile->lines[place->lines + line];
        frame.file = profile->functions[at->function].file;
        frame.line = at->number;
    }
    return add_frame(table, select_frame_name(profile, location, line, by), frame);
}

static void unfold_locations(struct frame_table *table, const struct profile *profile,
                             enum select_by by, struct unfolded *unfolded) {
    size_t room = 0;
    for (uint32_t i = 0; i < profile->location_count; i++) {
        uint32_t count = profile->locations[i].line_count;
        room += count > 0 ? count : 1;
    }
    unfolded->starts = must_alloc((profile->location_count + (size_t)1) * sizeof(size_t));
    unfolded->ids = must_alloc((room + 1) * sizeof(uint32_t));
    unfolded->lines = must_alloc((room + 1) * sizeof(uint32_t));
    size_t used = 0;
    for (uint32_t i = 0; i < profile->location_count; i++) {
        const struct profile_location *place = &profile->locations[i];
        unfolded->starts[i] = used;
        uint32_t line = 0;
        do {
            unfolded->ids[used] = name_frame(table, profile, i, line, by);
            unfolded->lines[used] =
                place->line_count > 0 ? profile->lines[place->lines + line].number : 0;
            used++;
            line++;
        } while (line < place->line_count && by != BY_MODULES && by != BY_ADDRESSES);
    }
    unfolded->starts[profile->location_count] = used;
}

/* Without room, only counts. */
static size_t unfold_sample(const struct profile *profile, uint32_t sample,
                            const struct unfolded *unfolded, uint32_t *ids, uint32_t *lines) {
    const struct profile_sample *stack = &profile->samples[sample];
    size_t count = 0;
    for (uint32_t i = 0; i < stack->depth; i++) {
        uint32_t location = profile->stacks[stack->stack + i];
        size_t start = unfolded->starts[location];
        size_t frames = unfolded->starts[location + 1] - start;
        if (ids != NULL) {
            memcpy(ids + count, unfolded->ids + start, frames * sizeof(*ids));
            memcpy(lines + count, unfolded->lines + start, frames * sizeof(*lines));
        }
        count += frames;
    }
    return count;
}

/* A module that calls itself is one frame, and so is a file. */
static size_t drop_repeated(uint32_t *ids, uint32_t *lines, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || ids[kept - 1] != ids[i]) {
            ids[kept] = ids[i];
            lines[kept++] = lines[i];
        }
    }
    return kept;
}

static bool unfold_stacks(struct frame_table *table, const struct profile *profile,
                          enum select_by by, const struct unfolded *unfolded) {
    size_t room = 0;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        room += unfold_sample(profile, i, unfolded, NULL, NULL);
        if (room > ENTRIES_MOST) {
            return decline("the stacks of this profile unfold into too many frames");
        }
    }
    table->ids = must_alloc((room + 1) * sizeof(*table->ids));
    table->lines = must_alloc((room + 1) * sizeof(*table->lines));
    table->starts = must_alloc((profile->sample_count + (size_t)1) * sizeof(*table->starts));
    size_t used = 0;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        table->starts[i] = used;
        uint32_t *ids = table->ids + used, *lines = table->lines + used;
        size_t count = unfold_sample(profile, i, unfolded, ids, lines);
        if (by == BY_MODULES || by == BY_FILES) {
            count = drop_repeated(ids, lines, count);
        }
        used += count;
    }
    table->starts[profile->sample_count] = used;
    return true;
}

struct frame_table *frame_table_new(const struct profile *profile, enum select_by by) {
    struct frame_table *table = must_zeroed(sizeof(*table));
    table->memory = must_zeroed(sizeof(*table->memory));
    struct unfolded unfolded = {0};
    unfold_locations(table, profile, by, &unfolded);
    bool is_done = unfold_stacks(table, profile, by, &unfolded);
    free(unfolded.starts);
    free(unfolded.ids);
    free(unfolded.lines);
    if (!is_done) {
        frame_table_free(table);
        return NULL;
    }
    return table;
}

void frame_table_free(struct frame_table *table) {
    text_table_free(&table->memory->texts);
    keys_free(&table->memory->frames);
    free(table->memory);
    free(table->frames);
    free(table->ids);
    free(table->lines);
    free(table->starts);
    free(table);
}
