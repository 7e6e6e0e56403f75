/* SPDX-License-Identifier: MIT
 *
 * dump_jemalloc.c - jemalloc's format heap_v2, which jeprof reads.
 *
 *      heap_v2/524288
 *        t*: 7: 13594 [0: 0]                     everything: live [accumulated]
 *        t0: 3: 3072 [0: 0] main                 each thread, with its name
 *      @ 0x55d0aa001180 0x7f10c0845305           each stack, innermost frame first
 *        t*: 4: 4096 [0: 0]
 *        t0: 4: 4096 [0: 0]
 *
 *      MAPPED_LIBRARIES:                         and /proc/self/maps as it is
 *
 * The reader multiplies each line by 1 / (1 - exp(-size / rate)), where the size is the mean of the
 * line.  That is wrong where sizes are mixed, so numbers are such that the product is our estimate:
 * with x = B / N for B bytes in N objects, y = B (1 - exp(-x / rate)) bytes in y / x objects.
 *
 * The reader looks up all addresses of a stack except the first one byte earlier, inside the call.
 * It expects a frame of the allocator first; ours are left out, so the first is written minus one.
 */
#include "opt/opt.h"
#include "base/real.h"
#include "prof/dump_writers.h"

struct counts {
    uint64_t objects, bytes;
};

static struct counts make_counts(const struct prof_sum *sum, uint64_t rate) {
    if (!opt.prof_unbias || rate == 0) {
        return (struct counts){sum->objects, sum->bytes};
    }
    if (sum->all_objects <= 0 || sum->all_bytes <= 0) {
        return (struct counts){0, 0};
    }
    double size = sum->all_bytes / sum->all_objects;
    double bytes = sum->all_bytes * real_one_minus_exp(size / (double)rate);
    return (struct counts){extract_round(bytes / size), extract_round(bytes)};
}

static void put_counts(struct out *out, const struct extract *extract, const struct prof_sum *live,
                       const struct prof_sum *accumulated) {
    struct counts now = make_counts(live, extract->rate);
    struct counts ever = {0};
    if (opt.prof_accum) {
        ever = make_counts(accumulated, extract->rate);
    }
    out_decimal(out, now.objects, 0);
    out_string(out, ": ");
    out_decimal(out, now.bytes, 0);
    out_string(out, " [");
    out_decimal(out, ever.objects, 0);
    out_string(out, ": ");
    out_decimal(out, ever.bytes, 0);
    out_char(out, ']');
}

static void put_all(struct out *out, const struct extract *extract, const struct prof_sum *live,
                    const struct prof_sum *accumulated) {
    out_string(out, "  t*: ");
    put_counts(out, extract, live, accumulated);
    out_char(out, '\n');
}

static void put_thread(struct out *out, uint32_t thread) {
    out_string(out, "  t");
    out_decimal(out, thread, 0);
    out_string(out, ": ");
}

/* Without accumulated counts, a line with nothing live is of no interest. */
static bool is_shown(const struct prof_sum *live, const struct prof_sum *accumulated) {
    return live->objects > 0 || (opt.prof_accum && accumulated->objects > 0);
}

/* A name stays on one line, whatever the program has put into it. */
static void put_name(struct out *out, const char *name) {
    for (; *name != '\0'; name++) {
        out_char(out, *name == '\n' || *name == '\r' ? ' ' : *name);
    }
}

static void put_threads(struct out *out, const struct extract *extract) {
    for (uint32_t i = 0; i < extract->threads; i++) {
        const struct extract_thread *thread = extract_thread(extract, i);
        if (thread->has_ended && !is_shown(&thread->live, &thread->accumulated)) {
            continue;
        }
        put_thread(out, i);
        put_counts(out, extract, &thread->live, &thread->accumulated);
        if (thread->name[0] != '\0') {
            out_char(out, ' ');
            put_name(out, thread->name);
        }
        out_char(out, '\n');
    }
}

static void put_addresses(struct out *out, const struct extract *extract,
                          const struct extract_row *row) {
    out_char(out, '@');
    for (uint32_t i = 0; i < row->depth; i++) {
        out_string(out, " 0x");
        out_hex(out, extract_address(extract, row, i) - (i == 0), 0);
    }
    out_char(out, '\n');
}

static void put_stacks(struct out *out, const struct extract *extract) {
    uint32_t next;
    for (uint32_t place = 0; place < extract->count; place = next) {
        struct prof_sum live, accumulated;
        next = extract_stack(extract, place, &live, &accumulated);
        if (!is_shown(&live, &accumulated)) {
            continue;
        }
        put_addresses(out, extract, extract_row(extract, place));
        put_all(out, extract, &live, &accumulated);
        while (place < next) {
            uint32_t thread = extract_row(extract, place)->thread;
            place = extract_stack_of_thread(extract, place, &live, &accumulated);
            if (is_shown(&live, &accumulated)) {
                put_thread(out, thread);
                put_counts(out, extract, &live, &accumulated);
                out_char(out, '\n');
            }
        }
    }
}

void dump_jemalloc_write(struct out *out, const struct extract *extract, const struct maps *maps) {
    out_string(out, "heap_v2/");
    out_decimal(out, extract->rate, 0);
    out_char(out, '\n');
    put_all(out, extract, &extract->live, &extract->accumulated);
    put_threads(out, extract);
    put_stacks(out, extract);
    if (maps->text.length > 0) {
        out_string(out, "\nMAPPED_LIBRARIES:\n");
        out_bytes(out, maps->text.bytes, maps->text.length);
    }
}
