/* SPDX-License-Identifier: MIT
 *
 * export_json.c - everything a profile holds, for programs.
 *
 *      {"format": "tally", "version": 1, "source", "default_type", "types": [{"name", "unit", "total"}],
 *       "period_type", "period", "time_ns", "duration_ns", "comments": [...],
 *       "modules": [{"path", "build_id", "start", "limit", "offset"}],
 *       "frames": [{"name", "file", "module"}],
 *       "samples": [{"values": [...], "stack": [leaf, ..., root], "lines": [...], "labels": [{"key", "text" or "number", "unit"}]}]}
 *
 * Addresses are texts, because a double does not hold them; values are numbers.
 */
#include <inttypes.h>

#include "args/args.h"
#include "common/escape.h"
#include "export/export.h"
#include "export/frame_table.h"

/* "key": "text" with what comes before. */
static void write_text(FILE *file, const char *before, const char *text) {
    fputs(before, file);
    escape_json(file, text);
}

static void write_type(FILE *file, struct profile_type type) {
    write_text(file, "{\"name\":", type.name);
    write_text(file, ",\"unit\":", type.unit);
}

static void write_head(FILE *file, const struct profile *profile) {
    fputs("{\"format\":\"tally\",\"version\":1", file);
    write_text(file, ",\"source\":", profile->source != NULL ? profile->source : "");
    if (profile->type_count > 0) {
        write_text(file, ",\"default_type\":", profile->types[profile->default_type].name);
    }
    fputs(",\n\"types\":[", file);
    for (uint32_t i = 0; i < profile->type_count; i++) {
        fputs(i == 0 ? "" : ",", file);
        write_type(file, profile->types[i]);
        fprintf(file, ",\"total\":%" PRId64 "}", profile_total(profile, i));
    }
    fputs("]", file);
    if (profile->period_type.name != NULL) {
        fputs(",\n\"period_type\":", file);
        write_type(file, profile->period_type);
        putc('}', file);
    }
    fprintf(file, ",\n\"period\":%" PRId64 ",\"time_ns\":%" PRId64 ",\"duration_ns\":%" PRId64,
            profile->period, profile->time_ns, profile->duration_ns);
    fputs(",\n\"comments\":[", file);
    for (uint32_t i = 0; i < profile->comment_count; i++) {
        write_text(file, i == 0 ? "" : ",", profile->comments[i]);
    }
    putc(']', file);
}

static void write_modules(FILE *file, const struct profile *profile) {
    fputs(",\n\"modules\":[", file);
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        const struct profile_mapping *mapping = &profile->mappings[i];
        write_text(file, i == 0 ? "\n{\"path\":" : ",\n{\"path\":", mapping->path);
        write_text(file, ",\"build_id\":", mapping->build_id);
        fprintf(file, ",\"start\":\"0x%" PRIx64 "\",\"limit\":\"0x%" PRIx64 "\"", mapping->start,
                mapping->limit);
        fprintf(file, ",\"offset\":\"0x%" PRIx64 "\"}", mapping->offset);
    }
    putc(']', file);
}

static void write_frames(FILE *file, const struct frame_table *table) {
    fputs(",\n\"frames\":[", file);
    for (uint32_t i = 0; i < table->frame_count; i++) {
        const struct frame *frame = &table->frames[i];
        write_text(file, i == 0 ? "\n{\"name\":" : ",\n{\"name\":", frame->name);
        write_text(file, ",\"file\":", frame->file);
        write_text(file, ",\"module\":", frame->module);
        putc('}', file);
    }
    putc(']', file);
}

static void write_numbers(FILE *file, const uint32_t *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        fprintf(file, "%s%u", i == 0 ? "" : ",", numbers[i]);
    }
}

static void write_labels(FILE *file, const struct profile *profile, uint32_t sample) {
    const struct profile_sample *row = &profile->samples[sample];
    for (uint32_t i = 0; i < row->label_count; i++) {
        const struct profile_label *label = &profile->labels[row->labels + i];
        write_text(file, i == 0 ? ",\"labels\":[{\"key\":" : ",{\"key\":", label->key);
        if (label->text != NULL) {
            write_text(file, ",\"text\":", label->text);
        } else {
            fprintf(file, ",\"number\":%" PRId64, label->number);
            if (label->unit != NULL && label->unit[0] != '\0') {
                write_text(file, ",\"unit\":", label->unit);
            }
        }
        putc('}', file);
    }
    if (row->label_count > 0) {
        putc(']', file);
    }
}

static void write_sample(FILE *file, const struct profile *profile, const struct frame_table *table,
                         uint32_t sample) {
    size_t start = table->starts[sample], count = table->starts[sample + 1] - start;
    fputs(sample == 0 ? "\n{\"values\":[" : ",\n{\"values\":[", file);
    for (uint32_t i = 0; i < profile->type_count; i++) {
        fprintf(file, "%s%" PRId64, i == 0 ? "" : ",", profile_value(profile, sample, i));
    }
    fputs("],\"stack\":[", file);
    write_numbers(file, table->ids + start, count);
    fputs("],\"lines\":[", file);
    write_numbers(file, table->lines + start, count);
    putc(']', file);
    write_labels(file, profile, sample);
    putc('}', file);
}

bool export_json(const struct profile *profile, struct output *output) {
    struct frame_table *table = frame_table_new(profile, args_select.by);
    if (table == NULL) {
        return false;
    }
    FILE *file = output->file;
    write_head(file, profile);
    write_modules(file, profile);
    write_frames(file, table);
    fputs(",\n\"samples\":[", file);
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        write_sample(file, profile, table, i);
    }
    fputs("]}\n", file);
    frame_table_free(table);
    return true;
}
