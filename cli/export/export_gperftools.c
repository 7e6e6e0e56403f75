/* SPDX-License-Identifier: MIT
 *
 * export_gperftools.c - the heap text of gperftools, which pprof, google-pprof and jeprof read.
 *
 *      heap profile:      3:     4160 [     5:     5184] @ heapprofile
 *           1:     4096 [     1:     4096] @ 0x00401136 0x0040118c 0x004011b5
 *
 * The label "heapprofile" keeps readers from multiplying.  Nothing may come before the first line.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "export/address_stacks.h"
#include "export/export.h"
#include "export/frame_table.h"
#include "read/read_text.h"

/* pprof refuses bytes without objects; live counts stand in for missing cumulative ones. */
static struct heap_counts mend(struct heap_counts counts, const struct heap_types *types) {
    if (types->ever_objects == PROFILE_NONE || types->ever_bytes == PROFILE_NONE) {
        counts.ever_objects = counts.objects;
        counts.ever_bytes = counts.bytes;
    }
    counts.objects += counts.objects == 0 && counts.bytes > 0;
    counts.ever_objects += counts.ever_objects == 0 && counts.ever_bytes > 0;
    return counts;
}

struct writer {
    const struct profile *profile;
    FILE *file;
    struct heap_types types;
    uint32_t *order; /* of samples: equal stacks are neighbours */
    uint32_t negative;
};

/* Sums up the samples of one stack; returns the place of the next. */
static uint32_t sum_stack(struct writer *writer, uint32_t place, struct heap_counts *counts) {
    const struct profile *profile = writer->profile;
    *counts = (struct heap_counts){0};
    uint32_t first = writer->order[place];
    do {
        address_add(profile, writer->order[place++], &writer->types, counts, &writer->negative);
    } while (place < profile->sample_count &&
             address_is_same(profile, first, writer->order[place]));
    *counts = mend(*counts, &writer->types);
    return place;
}

static void write_counts(FILE *file, struct heap_counts counts) {
    fprintf(file, "%6" PRId64 ": %8" PRId64 " [%6" PRId64 ": %8" PRId64 "] @", counts.objects,
            counts.bytes, counts.ever_objects, counts.ever_bytes);
}

static void write_header(struct writer *writer) {
    struct heap_counts all = {0}, one;
    for (uint32_t at = 0; at < writer->profile->sample_count;) {
        at = sum_stack(writer, at, &one);
        all.objects = profile_sum(all.objects, one.objects);
        all.bytes = profile_sum(all.bytes, one.bytes);
        all.ever_objects = profile_sum(all.ever_objects, one.ever_objects);
        all.ever_bytes = profile_sum(all.ever_bytes, one.ever_bytes);
    }
    export_warn_negative(writer->negative);
    fputs("heap profile: ", writer->file);
    write_counts(writer->file, all);
    fputs(" heapprofile\n", writer->file);
}

static void write_stacks(struct writer *writer) {
    const struct profile *profile = writer->profile;
    uint64_t *addresses = must_alloc((profile->stack_count + (size_t)1) * sizeof(*addresses));
    for (uint32_t at = 0; at < profile->sample_count;) {
        struct heap_counts counts;
        uint32_t depth = address_get(profile, writer->order[at], addresses);
        at = sum_stack(writer, at, &counts);
        if (counts.objects == 0 && counts.ever_objects == 0) {
            continue;
        }
        write_counts(writer->file, counts);
        for (uint32_t i = 0; i < depth; i++) {
            fprintf(writer->file, " 0x%08" PRIx64, addresses[i]);
        }
        putc('\n', writer->file);
    }
    free(addresses);
}

bool export_gperftools(const struct profile *profile, struct output *output) {
    struct writer writer = {.profile = profile, .file = output->file};
    if (!address_find_types(profile, &writer.types) ||
        !address_are_there(profile, "gperftools' heap text")) {
        return false;
    }
    writer.order = address_order(profile, "");
    write_header(&writer);
    write_stacks(&writer);
    fputs("\nMAPPED_LIBRARIES:\n" READ_LEAF_IS_CALL "\n", writer.file);
    address_write_maps(writer.file, profile);
    free(writer.order);
    return true;
}
