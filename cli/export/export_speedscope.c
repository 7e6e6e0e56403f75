/* SPDX-License-Identifier: MIT
 *
 * export_speedscope.c - the file format of speedscope: frames once, then a profile per metric.
 *
 *      {"$schema": ..., "shared": {"frames": [{"name", "file", "line"}, ...]},
 *       "profiles": [{"type": "sampled", "name", "unit", "startValue": 0, "endValue": sum,
 *                     "samples": [[root, ..., leaf], ...], "weights": [...]}, ...]}
 */
#include <inttypes.h>
#include <string.h>

#include "args/args.h"
#include "common/escape.h"
#include "export/export.h"
#include "export/frame_table.h"

static const char *unit_of(const char *unit) {
    static const char *const known[] = {"bytes",        "nanoseconds", "microseconds",
                                        "milliseconds", "seconds",     NULL};
    for (size_t i = 0; known[i] != NULL; i++) {
        if (strcmp(known[i], unit) == 0) {
            return unit;
        }
    }
    return "none";
}

static void write_frames(FILE *file, const struct frame_table *table) {
    fputs("\"shared\":{\"frames\":[", file);
    for (uint32_t i = 0; i < table->frame_count; i++) {
        const struct frame *frame = &table->frames[i];
        fputs(i == 0 ? "\n{\"name\":" : ",\n{\"name\":", file);
        escape_json(file, frame->name);
        if (frame->file[0] != '\0') {
            fputs(",\"file\":", file);
            escape_json(file, frame->file);
        }
        if (frame->line != 0) {
            fprintf(file, ",\"line\":%u", frame->line);
        }
        putc('}', file);
    }
    /* Stacks without a frame get this one. */
    fprintf(file, "%s\n{\"name\":\"[unknown]\"}]}", table->frame_count > 0 ? "," : "");
}

static void write_stack(FILE *file, const struct frame_table *table, uint32_t sample) {
    size_t start = table->starts[sample], end = table->starts[sample + 1];
    putc('[', file);
    if (start == end) {
        fprintf(file, "%u", table->frame_count);
    }
    for (size_t at = end; at > start; at--) {
        fprintf(file, "%s%u", at == end ? "" : ",", table->ids[at - 1]);
    }
    putc(']', file);
}

static void write_profile(FILE *file, const struct profile *profile,
                          const struct frame_table *table, uint32_t type) {
    fputs("{\"type\":\"sampled\",\"name\":", file);
    escape_json(file, profile->types[type].name);
    fputs(",\"unit\":", file);
    escape_json(file, unit_of(profile->types[type].unit));
    fputs(",\"startValue\":0,\"samples\":[", file);
    int64_t sum = 0;
    const char *between = "\n";
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        if (profile_value(profile, i, type) > 0) {
            fputs(between, file);
            write_stack(file, table, i);
            between = ",\n";
        }
    }
    fputs("],\"weights\":[", file);
    between = "";
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        int64_t value = profile_value(profile, i, type);
        if (value > 0) {
            fprintf(file, "%s%" PRId64, between, value);
            sum = profile_sum(sum, value);
            between = ",";
        }
    }
    fprintf(file, "],\"endValue\":%" PRId64 "}", sum);
}

bool export_speedscope(const struct profile *profile, struct output *output) {
    struct frame_table *table = frame_table_new(profile, args_select.by);
    if (table == NULL) {
        return false;
    }
    FILE *file = output->file;
    export_warn_negative(export_count_negative(profile));
    fputs("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",", file);
    fprintf(file, "\"exporter\":\"tally\",\"activeProfileIndex\":%u,\n", profile->default_type);
    write_frames(file, table);
    fputs(",\n\"profiles\":[", file);
    for (uint32_t i = 0; i < profile->type_count; i++) {
        fputs(i == 0 ? "\n" : ",\n", file);
        write_profile(file, profile, table, i);
    }
    fputs("]}\n", file);
    frame_table_free(table);
    return true;
}
