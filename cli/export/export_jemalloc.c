/* SPDX-License-Identifier: MIT
 *
 * export_jemalloc.c - jemalloc's heap_v2, which jeprof reads.
 *
 *      heap_v2/1
 *        t*: 7: 13594 [0: 0]                     everything: live [ever allocated]
 *        t0: 3: 3072 [0: 0] main                 each thread, with its name
 *      @ 0x55d0aa001180 0x7f10c0845305           each stack, innermost frame first
 *        t*: 4: 4096 [0: 0]
 *        t0: 4: 4096 [0: 0]
 *
 *      MAPPED_LIBRARIES:
 *
 * The rate is 1, as values are already estimates.  Readers multiply by 1 / (1 - exp(-mean size))
 * nevertheless, which is one from 37 bytes on.  Below that, the numbers are divided by the same
 * factor, so that the product is right but for rounding.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/escape.h"
#include "common/text_table.h"
#include "export/address_stacks.h"
#include "export/export.h"
#include "read/read_text.h"

static void compensate(int64_t *objects, int64_t *bytes) {
    if (*objects > 0 && *bytes > 0) {
        double size = (double)*bytes / (double)*objects;
        if (size < 37) {
            double smaller = -expm1(-size);
            *objects = llround((double)*objects * smaller);
            *bytes = llround((double)*bytes * smaller);
        }
    }
    *objects += *objects == 0 && *bytes > 0;
}

static void write_counts(FILE *file, struct heap_counts counts) {
    compensate(&counts.objects, &counts.bytes);
    compensate(&counts.ever_objects, &counts.ever_bytes);
    fprintf(file, "%" PRId64 ": %" PRId64 " [%" PRId64 ": %" PRId64 "]", counts.objects,
            counts.bytes, counts.ever_objects, counts.ever_bytes);
}

struct writer {
    const struct profile *profile;
    FILE *file;
    struct heap_types types;
    uint32_t *order;
    struct text_table threads; /* their numbers in the file */
    uint32_t negative;
};

static const char *thread_of(const struct writer *writer, uint32_t place) {
    return profile_label(writer->profile, writer->order[place], "thread");
}

static void add(struct writer *writer, uint32_t place, struct heap_counts *counts) {
    address_add(writer->profile, writer->order[place], &writer->types, counts, &writer->negative);
}

/* Samples of [start, end) belong to the thread they name; those without a name to none. */
static void write_head(struct writer *writer) {
    struct heap_counts all = {0};
    uint32_t count = writer->profile->sample_count;
    for (uint32_t i = 0; i < count; i++) {
        add(writer, i, &all);
        if (thread_of(writer, i)[0] != '\0') {
            text_table_add(&writer->threads, thread_of(writer, i));
        }
    }
    export_warn_negative(writer->negative);
    fputs("heap_v2/1\n  t*: ", writer->file);
    write_counts(writer->file, all);
    putc('\n', writer->file);
    struct heap_counts *each =
        must_zeroed((writer->threads.count + (size_t)1) * sizeof(struct heap_counts));
    for (uint32_t i = 0; i < count; i++) {
        if (thread_of(writer, i)[0] != '\0') {
            add(writer, i, &each[text_table_add(&writer->threads, thread_of(writer, i))]);
        }
    }
    for (uint32_t i = 0; i < writer->threads.count; i++) {
        fprintf(writer->file, "  t%u: ", i);
        write_counts(writer->file, each[i]);
        putc(' ', writer->file);
        escape_line(writer->file, writer->threads.texts[i]);
        putc('\n', writer->file);
    }
    free(each);
}

static void write_threads(struct writer *writer, uint32_t start, uint32_t end) {
    uint32_t next;
    for (uint32_t at = start; at < end; at = next) {
        const char *thread = thread_of(writer, at);
        struct heap_counts counts = {0};
        for (next = at; next < end && strcmp(thread_of(writer, next), thread) == 0; next++) {
            add(writer, next, &counts);
        }
        if (thread[0] != '\0') {
            fprintf(writer->file, "  t%u: ", text_table_add(&writer->threads, thread));
            write_counts(writer->file, counts);
            putc('\n', writer->file);
        }
    }
}

static void write_stacks(struct writer *writer) {
    const struct profile *profile = writer->profile;
    uint64_t *addresses = must_alloc((profile->stack_count + (size_t)1) * sizeof(*addresses));
    uint32_t next;
    for (uint32_t at = 0; at < profile->sample_count; at = next) {
        uint32_t first = writer->order[at];
        struct heap_counts counts = {0};
        for (next = at;
             next < profile->sample_count && address_is_same(profile, first, writer->order[next]);
             next++) {
            add(writer, next, &counts);
        }
        if (counts.bytes == 0 && counts.objects == 0 && counts.ever_bytes == 0) {
            continue;
        }
        putc('@', writer->file);
        uint32_t depth = address_get(profile, first, addresses);
        for (uint32_t i = 0; i < depth; i++) {
            fprintf(writer->file, " 0x%" PRIx64, addresses[i]);
        }
        fputs("\n  t*: ", writer->file);
        write_counts(writer->file, counts);
        putc('\n', writer->file);
        write_threads(writer, at, next);
    }
    free(addresses);
}

bool export_jemalloc(const struct profile *profile, struct output *output) {
    struct writer writer = {.profile = profile, .file = output->file};
    if (!address_find_types(profile, &writer.types) ||
        !address_are_there(profile, "jemalloc's heap_v2")) {
        return false;
    }
    writer.order = address_order(profile, "thread");
    write_head(&writer);
    write_stacks(&writer);
    fputs("\nMAPPED_LIBRARIES:\n" READ_LEAF_IS_CALL "\n", writer.file);
    address_write_maps(writer.file, profile);
    text_table_free(&writer.threads);
    free(writer.order);
    return true;
}
