/* SPDX-License-Identifier: MIT
 *
 * export_callgrind.c - what callgrind_annotate and KCachegrind read.
 *
 *      events: inuse_space alloc_space         the default metric first, then the others
 *      summary: 4160 5184
 *      ob=(1) /bin/server                      names once, numbers afterwards
 *      fl=(2) auth.c
 *      fn=(3) login
 *      77 4096 4096                            at line 77, in the function itself
 *      cfn=(4) account_load
 *      calls=12 0                              12 stacks go on from here
 *      78 64 1088                              what they cost
 *
 * A stack counts once for a call even when that recurs.  Values below zero count as nothing.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "args/args.h"
#include "common/escape.h"
#include "common/keys.h"
#include "common/text_table.h"
#include "export/export.h"
#include "export/frame_table.h"

/* A line of a function, or a call there. */
struct cost {
    uint32_t frame, line;
    uint32_t callee; /* PROFILE_NONE: none */
    uint32_t stacks, last_sample;
    int64_t *values;
};

struct writer {
    const struct profile *profile;
    const struct frame_table *table;
    FILE *file;
    uint32_t *types; /* in the order of the events */
    struct cost *costs;
    uint32_t cost_count, cost_room;
    struct keys known;                /* costs by frame, line and callee */
    struct text_table files, modules; /* named so far */
    bool *is_named;                   /* frames */
};

static struct cost *find_cost(struct writer *writer, uint32_t frame, uint32_t line,
                              uint32_t callee) {
    uint32_t index = keys_add(&writer->known, frame, line, callee);
    if (index == writer->cost_count) {
        writer->costs =
            must_have_room(writer->costs, index, &writer->cost_room, sizeof *writer->costs);
        size_t bytes = (writer->profile->type_count + (size_t)1) * sizeof(int64_t);
        struct cost *cost = &writer->costs[writer->cost_count];
        *cost = (struct cost){frame, line, callee, 0, PROFILE_NONE, must_zeroed(bytes)};
        writer->cost_count++;
    }
    return &writer->costs[index];
}

static void add_sample(struct writer *writer, struct cost *cost, uint32_t sample) {
    if (cost->last_sample == sample) {
        return;
    }
    cost->last_sample = sample;
    cost->stacks++;
    for (uint32_t i = 0; i < writer->profile->type_count; i++) {
        int64_t value = profile_value(writer->profile, sample, writer->types[i]);
        cost->values[i] = profile_sum(cost->values[i], value > 0 ? value : 0);
    }
}

static void add_up(struct writer *writer) {
    const struct frame_table *table = writer->table;
    for (uint32_t sample = 0; sample < writer->profile->sample_count; sample++) {
        size_t start = table->starts[sample], end = table->starts[sample + 1];
        uint32_t leaf = start < end ? table->ids[start] : table->frame_count; /* [unknown] */
        uint32_t line = start < end ? table->lines[start] : 0;
        add_sample(writer, find_cost(writer, leaf, line, PROFILE_NONE), sample);
        for (size_t at = start + 1; at < end; at++) {
            struct cost *call =
                find_cost(writer, table->ids[at], table->lines[at], table->ids[at - 1]);
            add_sample(writer, call, sample);
        }
    }
}

static int compare_costs(const void *left, const void *right) {
    const struct cost *a = left, *b = right;
    if (a->frame != b->frame) {
        return a->frame < b->frame ? -1 : 1;
    }
    bool has_left = a->callee != PROFILE_NONE, has_right = b->callee != PROFILE_NONE;
    if (has_left != has_right) { /* its own first */
        return has_left ? 1 : -1;
    }
    if (a->line != b->line) {
        return a->line < b->line ? -1 : 1;
    }
    return (a->callee > b->callee) - (a->callee < b->callee);
}

/* Events have names without blanks. */
static void write_event(FILE *file, const char *name) {
    putc(' ', file);
    for (; *name != '\0'; name++) {
        putc(isalnum((unsigned char)*name) ? *name : '_', file);
    }
}

static void write_head(struct writer *writer) {
    const struct profile *profile = writer->profile;
    FILE *file = writer->file;
    fputs("# callgrind format\nversion: 1\ncreator: tally\npositions: line\nevents:", file);
    for (uint32_t i = 0; i < profile->type_count; i++) {
        write_event(file, profile->types[writer->types[i]].name);
    }
    fputs("\nsummary:", file);
    for (uint32_t i = 0; i < profile->type_count; i++) {
        int64_t sum = 0;
        for (uint32_t k = 0; k < profile->sample_count; k++) {
            int64_t value = profile_value(profile, k, writer->types[i]);
            sum = profile_sum(sum, value > 0 ? value : 0);
        }
        fprintf(file, " %" PRId64, sum);
    }
    fputs("\n\n", file);
}

/* KEY=(number) name, the name only the first time. */
static void write_name(FILE *file, const char *key, uint32_t number, const char *name) {
    fprintf(file, "%s=(%u)", key, number + 1);
    if (name != NULL) {
        putc(' ', file);
        escape_line(file, name);
    }
    putc('\n', file);
}

static void write_place(struct writer *writer, struct text_table *names, const char *key,
                        const char *name) {
    const char *known = name[0] != '\0' ? name : "???";
    uint32_t count = names->count;
    uint32_t number = text_table_add(names, known);
    write_name(writer->file, key, number, names->count > count ? known : NULL);
}

/* Module, file and function; `prefix` is "c" for those that are called. */
static void write_frame(struct writer *writer, uint32_t id, bool is_called) {
    static const struct frame unknown = {"[unknown]", "", "", 0};
    const struct frame *frame =
        id < writer->table->frame_count ? &writer->table->frames[id] : &unknown;
    write_place(writer, &writer->modules, is_called ? "cob" : "ob", frame->module);
    write_place(writer, &writer->files, is_called ? "cfi" : "fl", frame->file);
    const char *name = writer->is_named[id] ? NULL : frame->name;
    writer->is_named[id] = true;
    write_name(writer->file, is_called ? "cfn" : "fn", id, name);
}

static void write_costs(struct writer *writer) {
    uint32_t current = PROFILE_NONE;
    for (uint32_t i = 0; i < writer->cost_count; i++) {
        const struct cost *cost = &writer->costs[i];
        if (cost->frame != current) {
            putc('\n', writer->file);
            write_frame(writer, cost->frame, false);
            current = cost->frame;
        }
        if (cost->callee != PROFILE_NONE) {
            write_frame(writer, cost->callee, true);
            fprintf(writer->file, "calls=%u %u\n", cost->stacks,
                    writer->table->frames[cost->callee].line);
        }
        fprintf(writer->file, "%u", cost->line);
        for (uint32_t k = 0; k < writer->profile->type_count; k++) {
            fprintf(writer->file, " %" PRId64, cost->values[k]);
        }
        putc('\n', writer->file);
    }
}

static void order_types(struct writer *writer) {
    const struct profile *profile = writer->profile;
    writer->types = must_alloc((profile->type_count + (size_t)1) * sizeof(*writer->types));
    uint32_t count = 0;
    for (uint32_t i = 0; i < profile->type_count; i++) {
        if (i == profile->default_type) {
            memmove(writer->types + 1, writer->types, count * sizeof(*writer->types));
            writer->types[0] = i;
        } else {
            writer->types[count] = i;
        }
        count++;
    }
}

bool export_callgrind(const struct profile *profile, struct output *output) {
    struct frame_table *table = frame_table_new(profile, args_select.by);
    if (table == NULL) {
        return false;
    }
    struct writer writer = {.profile = profile, .table = table, .file = output->file};
    writer.is_named = must_zeroed(table->frame_count + (size_t)1);
    export_warn_negative(export_count_negative(profile));
    order_types(&writer);
    add_up(&writer);
    if (writer.cost_count > 0) { /* without costs there is no array */
        qsort(writer.costs, writer.cost_count, sizeof(*writer.costs), compare_costs);
    }
    write_head(&writer);
    write_costs(&writer);
    for (uint32_t i = 0; i < writer.cost_count; i++) {
        free(writer.costs[i].values);
    }
    free(writer.costs);
    free(writer.types);
    free(writer.is_named);
    keys_free(&writer.known);
    text_table_free(&writer.files);
    text_table_free(&writer.modules);
    frame_table_free(table);
    return true;
}
