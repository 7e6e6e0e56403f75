/* SPDX-License-Identifier: MIT
 *
 * export_csv.c - a row per stack: its innermost function, all metrics, the whole stack.
 *
 *      function,file,line,module,inuse_objects,inuse_space,labels,stack
 *      login,auth.c,77,/bin/server,12,4096,"thread=worker","main;handle_request;login"
 *
 * Commas, lines end in CR LF, as RFC 4180 says.  Sums of columns are the totals of the profile.
 */
#include <inttypes.h>
#include <string.h>

#include "args/args.h"
#include "common/escape.h"
#include "export/export.h"
#include "export/frame_table.h"

static void write_head(FILE *file, const struct profile *profile) {
    fputs("function,file,line,module", file);
    for (uint32_t i = 0; i < profile->type_count; i++) {
        putc(',', file);
        escape_csv(file, profile->types[i].name);
    }
    fputs(",labels,stack\r\n", file);
}

static void write_leaf(FILE *file, const struct frame_table *table, uint32_t sample) {
    size_t leaf = table->starts[sample];
    if (leaf == table->starts[sample + 1]) {
        fputs("[unknown],,,", file);
        return;
    }
    const struct frame *frame = &table->frames[table->ids[leaf]];
    escape_csv(file, frame->name);
    putc(',', file);
    escape_csv(file, frame->file);
    putc(',', file);
    if (table->lines[leaf] != 0) {
        fprintf(file, "%u", table->lines[leaf]);
    }
    putc(',', file);
    escape_csv(file, frame->module);
}

/* safe_text would cut a long cell, so it is written in parts, each escaped alone, inside one pair
 * of quotes; its beginning alone decides whether it needs an apostrophe. */
static void write_quoted(FILE *file, const char *text) {
    for (text = safe_text(text); *text != '\0'; text++) {
        if (*text == '"') {
            putc('"', file);
        }
        putc(*text == ';' ? ':' : *text, file);
    }
}

static void begin_cell(FILE *file, const char *first) {
    fputs(first[0] != '\0' && strchr("=+-@", first[0]) != NULL ? "\"'" : "\"", file);
}

static void write_labels(FILE *file, const struct profile *profile, uint32_t sample) {
    const struct profile_sample *row = &profile->samples[sample];
    for (uint32_t i = 0; i < row->label_count; i++) {
        const struct profile_label *label = &profile->labels[row->labels + i];
        if (i == 0) {
            begin_cell(file, label->key);
        } else {
            putc(';', file);
        }
        write_quoted(file, label->key);
        putc('=', file);
        if (label->text != NULL) {
            write_quoted(file, label->text);
        } else {
            fprintf(file, "%" PRId64, label->number);
        }
    }
    if (row->label_count > 0) {
        putc('"', file);
    }
}

static void write_stack(FILE *file, const struct frame_table *table, uint32_t sample) {
    size_t start = table->starts[sample], end = table->starts[sample + 1];
    for (size_t at = end; at > start; at--) {
        const char *name = table->frames[table->ids[at - 1]].name;
        if (at == end) {
            begin_cell(file, name);
        } else {
            putc(';', file);
        }
        write_quoted(file, name);
    }
    if (end > start) {
        putc('"', file);
    }
}

bool export_csv(const struct profile *profile, struct output *output) {
    struct frame_table *table = frame_table_new(profile, args_select.by);
    if (table == NULL) {
        return false;
    }
    FILE *file = output->file;
    write_head(file, profile);
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        write_leaf(file, table, i);
        for (uint32_t type = 0; type < profile->type_count; type++) {
            fprintf(file, ",%" PRId64, profile_value(profile, i, type));
        }
        putc(',', file);
        write_labels(file, profile, i);
        putc(',', file);
        write_stack(file, table, i);
        fputs("\r\n", file);
    }
    frame_table_free(table);
    return true;
}
