/* SPDX-License-Identifier: MIT
 *
 * dump_gperftools.c - the heap text of gperftools, which pprof, google-pprof and jeprof read.
 *
 *      heap profile:      3:     4160 [     5:     5184] @ heapprofile
 *           1:     4096 [     1:     4096] @ 0x00401136 0x0040118c 0x004011b5
 *
 * The label "heapprofile" tells readers not to multiply, so the numbers are our estimates.  The
 * totals are the sums of the rounded lines, as the reader adds them.
 *
 * Addresses are where calls return to; readers look one byte earlier by themselves, google-pprof
 * and jeprof except for the first.  So the first is written minus one: what pprof then looks up,
 * two bytes earlier, still lies inside the call, which has at least two bytes.
 */
#include "prof/dump_writers.h"

struct counts {
    uint64_t objects, bytes;
};

/* pprof would refuse a line with bytes and no objects. */
static struct counts make_counts(const struct prof_sum *sum) {
    struct counts counts = {extract_round(sum->all_objects), extract_round(sum->all_bytes)};
    if (counts.objects == 0 && counts.bytes > 0) {
        counts.objects = 1;
    }
    return counts;
}

static void put_counts(struct out *out, struct counts live, struct counts accumulated) {
    out_decimal(out, live.objects, 6);
    out_string(out, ": ");
    out_decimal(out, live.bytes, 8);
    out_string(out, " [");
    out_decimal(out, accumulated.objects, 6);
    out_string(out, ": ");
    out_decimal(out, accumulated.bytes, 8);
    out_string(out, "] @");
}

static void put_header(struct out *out, const struct extract *extract) {
    struct counts live = {0}, accumulated = {0};
    uint32_t next;
    for (uint32_t place = 0; place < extract->count; place = next) {
        struct prof_sum now, ever;
        next = extract_stack(extract, place, &now, &ever);
        struct counts of_stack = make_counts(&now), of_stack_ever = make_counts(&ever);
        live.objects += of_stack.objects;
        live.bytes += of_stack.bytes;
        accumulated.objects += of_stack_ever.objects;
        accumulated.bytes += of_stack_ever.bytes;
    }
    out_string(out, "heap profile: ");
    put_counts(out, live, accumulated);
    out_string(out, " heapprofile\n");
}

static void put_stacks(struct out *out, const struct extract *extract) {
    uint32_t next;
    for (uint32_t place = 0; place < extract->count; place = next) {
        struct prof_sum live, accumulated;
        next = extract_stack(extract, place, &live, &accumulated);
        put_counts(out, make_counts(&live), make_counts(&accumulated));
        const struct extract_row *row = extract_row(extract, place);
        for (uint32_t i = 0; i < row->depth; i++) {
            out_string(out, " 0x");
            out_hex(out, extract_address(extract, row, i) - (i == 0), 8);
        }
        out_char(out, '\n');
    }
}

static void put_maps(struct out *out, const struct maps *maps) {
    size_t length;
    out_string(out, "\nMAPPED_LIBRARIES:\n");
    for (size_t at = 0; (length = maps_next_line(maps, at)) > 0; at += length) {
        if (maps_line_is_executable(maps->text.bytes + at, length)) {
            out_bytes(out, maps->text.bytes + at, length);
        }
    }
}

void dump_gperftools_write(struct out *out, const struct extract *extract,
                           const struct maps *maps) {
    put_header(out, extract);
    put_stacks(out, extract);
    put_maps(out, maps);
}
