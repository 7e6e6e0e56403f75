/* SPDX-License-Identifier: MIT
 *
 * read_jemalloc.c - jemalloc's format heap_v2.
 *
 *      heap_v2/524288
 *        t*: 7: 13594 [0: 0]                     everything; threads by number and name
 *        t1: 4: 18430 [0: 0] worker
 *      @ 0x401136 0x40118c 0x4011b5              a stack, innermost first: return addresses
 *        t*: 4: 4096 [0: 0]                      live objects and bytes, accumulated ones
 *        t1: 1: 1024 [0: 0]
 *
 *      MAPPED_LIBRARIES:                         /proc/PID/maps
 *
 * Each line is scaled by itself, and lines of threads need not add up to the line of all, "t*".  The total
 * must be that of the "t*" lines, as jeprof has it, so these are divided among the threads in the ratio
 * of what each thread's line stands for.  A thread becomes the label "thread": its name, or its number.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cli.h"
#include "read/read_text.h"

enum { ALL_THREADS = -1 };

struct thread {
    int64_t number;
    const char *name;
};

/* One count line: whose, and what it stands for in the order of the HEAP_ types. */
struct share {
    int64_t thread;
    double estimates[HEAP_TYPES];
};

struct jemalloc {
    struct profile *profile;
    struct read_maps maps;
    struct read_stack stack;
    struct read_scale scale;
    struct text_lines lines;
    bool has_alloc;
    struct thread *threads; /* with a name; in order once the first stack is met */
    uint32_t thread_count, thread_room;
    /* Of the stack that is being read. */
    bool has_stack, has_all;
    struct read_counts all;
    struct share *shares;
    uint32_t share_count, share_room;
    char *why;
};

bool read_is_jemalloc(const uint8_t *bytes, size_t length) {
    struct text text = {(const char *)bytes, (const char *)bytes + length};
    return text_take(&text, "heap_v2/") && !text_is_empty(&text) && *text.at >= '0' &&
           *text.at <= '9';
}

/* ---------------------------------------------------------------- lines */

/* "t*: " or "t17: ", then counts; what is left of the line is a name. */
static bool take_count_line(struct text *line, int64_t *thread, struct read_counts *counts) {
    *thread = ALL_THREADS;
    text_take_blanks(line);
    if (!text_take(line, "t")) {
        return false;
    }
    if (!text_take(line, "*") && (!text_take_decimal(line, thread) || *thread < 0)) {
        return false;
    }
    if (!text_take(line, ":") || !text_take_counts(line, counts) || counts->objects < 0 ||
        counts->bytes < 0 || counts->all_objects < 0 || counts->all_bytes < 0) {
        return false;
    }
    text_trim(line);
    return true;
}

static int compare_threads(const void *a, const void *b) {
    int64_t first = ((const struct thread *)a)->number;
    int64_t second = ((const struct thread *)b)->number;
    return (first > second) - (first < second);
}

static const char *thread_name(struct jemalloc *reader, int64_t number) {
    const struct thread key = {number, NULL};
    const struct thread *found = NULL;
    if (reader->thread_count > 0) {
        found = bsearch(&key, reader->threads, reader->thread_count, sizeof key, compare_threads);
    }
    if (found != NULL) {
        return found->name;
    }
    char text[24];
    int length = snprintf(text, sizeof text, "%" PRId64, number);
    return profile_text(reader->profile, text, (size_t)length);
}

static void add_thread(struct jemalloc *reader, int64_t number, struct text name) {
    if (number == ALL_THREADS || text_is_empty(&name)) {
        return;
    }
    reader->threads = must_have_room(reader->threads, reader->thread_count, &reader->thread_room,
                                     sizeof *reader->threads);
    reader->threads[reader->thread_count++] = (struct thread){
        number, profile_text(reader->profile, name.at, (size_t)(name.end - name.at))};
}

static void add_share(struct jemalloc *reader, int64_t thread, const struct read_counts *counts) {
    reader->shares = must_have_room(reader->shares, reader->share_count, &reader->share_room,
                                    sizeof *reader->shares);
    struct share *share = &reader->shares[reader->share_count++];
    share->thread = thread;
    double live = read_factor(&reader->scale, counts->objects, counts->bytes);
    double ever = read_factor(&reader->scale, counts->all_objects, counts->all_bytes);
    share->estimates[HEAP_ALLOC_OBJECTS] = (double)counts->all_objects * ever;
    share->estimates[HEAP_ALLOC_SPACE] = (double)counts->all_bytes * ever;
    share->estimates[HEAP_INUSE_OBJECTS] = (double)counts->objects * live;
    share->estimates[HEAP_INUSE_SPACE] = (double)counts->bytes * live;
}

/* ---------------------------------------------------------------- samples */

static void add_sample(struct jemalloc *reader, const int64_t values[HEAP_TYPES],
                       const char *thread) {
    struct profile *profile = reader->profile;
    struct profile_label labels[2] = {read_size_label(profile, &reader->all)};
    if (thread != NULL) {
        labels[1] = (struct profile_label){.key = profile_text(profile, "thread", 6),
                                           .text = thread,
                                           .unit = profile_text(profile, "", 0)};
    }
    profile_add_sample(profile, reader->stack.locations, reader->stack.depth,
                       values + (reader->has_alloc ? 0 : HEAP_INUSE_OBJECTS), labels,
                       thread != NULL ? 2 : 1);
}

/* The values of all, cut into a piece per thread: only borders are rounded, so nothing is lost. */
static void add_shares(struct jemalloc *reader, const int64_t values[HEAP_TYPES]) {
    double sums[HEAP_TYPES] = {0}, before[HEAP_TYPES] = {0};
    int64_t given[HEAP_TYPES] = {0};
    for (size_t i = 0; i < reader->share_count; i++) {
        for (int type = 0; type < HEAP_TYPES; type++) {
            sums[type] += reader->shares[i].estimates[type];
        }
    }
    for (size_t i = 0; i < reader->share_count; i++) {
        int64_t piece[HEAP_TYPES];
        for (int type = 0; type < HEAP_TYPES; type++) {
            before[type] += reader->shares[i].estimates[type];
            bool is_last = i + 1 == reader->share_count;
            int64_t border = values[type];
            if (!is_last && sums[type] > 0 && before[type] < sums[type]) {
                border = (int64_t)((double)values[type] * (before[type] / sums[type]) + 0.5);
            } else if (!is_last && sums[type] <= 0) {
                border = 0;
            }
            piece[type] = border - given[type];
            given[type] = border;
        }
        add_sample(reader, piece, thread_name(reader, reader->shares[i].thread));
    }
}

/* The stack before this line is complete. */
static bool end_stack(struct jemalloc *reader) {
    if (!reader->has_stack) {
        return true;
    }
    if (!reader->has_all) {
        return read_damage(reader->why, "line %" PRIu64 ": the stack before it has no counts",
                           reader->lines.number);
    }
    int64_t values[HEAP_TYPES];
    read_scale_line(&reader->scale, &reader->all, values);
    if (reader->share_count > 0) {
        add_shares(reader, values);
    } else {
        add_sample(reader, values, NULL);
    }
    return true;
}

static bool begin_stack(struct jemalloc *reader, struct text addresses) {
    if (!end_stack(reader)) {
        return false;
    }
    if (!reader->has_stack && reader->thread_count > 0) {
        qsort(reader->threads, reader->thread_count, sizeof *reader->threads, compare_threads);
    }
    reader->has_stack = true;
    reader->has_all = false;
    reader->share_count = 0;
    if (!read_stack_take(&reader->stack, addresses)) {
        return read_damage(reader->why, "line %" PRIu64 " has something else than addresses",
                           reader->lines.number);
    }
    return true;
}

static bool take_counts_of_stack(struct jemalloc *reader, struct text line) {
    int64_t thread;
    struct read_counts counts;
    if (!take_count_line(&line, &thread, &counts)) {
        return read_damage(reader->why, "line %" PRIu64 " has neither a stack nor counts",
                           reader->lines.number);
    }
    if (!reader->has_stack) {
        add_thread(reader, thread, line);
    } else if (thread != ALL_THREADS) {
        add_share(reader, thread, &counts);
    } else {
        reader->all = counts;
        reader->has_all = true;
    }
    return true;
}

/* ---------------------------------------------------------------- the file */

/* Are there accumulated counts?  If not, their types are left out. */
static bool has_accumulated(struct text text) {
    struct text_lines lines = {text, 0};
    struct text line;
    while (text_next_line(&lines, &line)) {
        int64_t thread;
        struct read_counts counts;
        if (take_count_line(&line, &thread, &counts) &&
            (counts.all_objects != 0 || counts.all_bytes != 0)) {
            return true;
        }
    }
    return false;
}

static bool take_header(struct jemalloc *reader) {
    struct text line;
    int64_t rate = 0;
    if (!text_next_line(&reader->lines, &line) || !text_take(&line, "heap_v2/") ||
        !text_take_decimal(&line, &rate) || rate < 0) {
        return read_damage(reader->why, "the first line has no sampling rate");
    }
    reader->profile->period = rate > 0 ? rate : 1;
    reader->scale.rate = (double)rate;
    reader->scale.sampling = READ_POISSON; /* at a rate of 1, too: writers allow for it */
    return true;
}

static bool take_lines(struct jemalloc *reader) {
    struct text line;
    if (!take_header(reader)) {
        return false;
    }
    while (text_next_line(&reader->lines, &line)) {
        text_trim(&line);
        bool is_stack = text_take(&line, "@");
        if (!is_stack && text_is_empty(&line)) {
            continue;
        }
        if (!(is_stack ? begin_stack(reader, line) : take_counts_of_stack(reader, line))) {
            return false;
        }
    }
    return end_stack(reader);
}

struct profile *read_jemalloc(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]) {
    struct text text = {(const char *)bytes, (const char *)bytes + length};
    struct jemalloc reader = {.profile = profile_new(), .why = why};
    reader.stack = (struct read_stack){.profile = reader.profile, .maps = &reader.maps};
    reader.profile->source = profile_text(reader.profile, "jemalloc", 8);
    struct text maps = text_split_maps(&text);
    read_maps_take(&reader.maps, reader.profile, maps);
    reader.has_alloc = has_accumulated(text);
    read_add_heap_types(reader.profile, reader.has_alloc);
    reader.lines.rest = text;
    bool is_good = take_lines(&reader);
    read_maps_free(&reader.maps);
    free(reader.stack.locations);
    free(reader.threads);
    free(reader.shares);
    return read_result(reader.profile, is_good);
}
