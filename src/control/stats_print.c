/* SPDX-License-Identifier: MIT
 *
 * stats_print.c - the statistics: which parts are wanted, in which order they come, as text or
 * JSON.
 *
 * The text begins and ends with jemalloc's first and last line and has jemalloc's sections in
 * order.  tally's summary follows the first line, so that programs which expect that line at the
 * beginning find it, as do programs which search for lines by their text.
 *
 * Threads     Counters are read first (snapshot.h).  No lock is held while the program's function
 *             is called; if another thread refreshes the counters meanwhile, later parts show later
 *             counts.
 */
#include <string.h>

#include "base/log.h"
#include "control/control.h"
#include "control/stats.h"

static struct stats_parts parts_without(const char *letters) {
    return (struct stats_parts){
        .general = strchr(letters, 'g') == NULL,
        .merged = strchr(letters, 'm') == NULL,
        .destroyed = strchr(letters, 'd') == NULL,
        .arenas = strchr(letters, 'a') == NULL,
        .bins = strchr(letters, 'b') == NULL,
        .large = strchr(letters, 'l') == NULL,
        .mutexes = strchr(letters, 'x') == NULL,
        .extents = strchr(letters, 'e') == NULL,
        .hpa = strchr(letters, 'h') == NULL,
    };
}

/* Prints the statistics of one arena, or of several together. */
typedef void arena_printer(struct out *out, const struct stats_parts *parts, unsigned arena,
                           const struct arena_counts *counts);

/* Another thread may refresh the counters at any time, and an arena may be gone then. */
static void print_arena(struct out *out, const struct stats_parts *parts, unsigned arena,
                        arena_printer *print) {
    const struct arena_counts *counts = snapshot_arena(arena);
    if (counts != NULL) {
        print(out, parts, arena, counts);
    }
}

static unsigned count_arenas(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < snapshot_arenas(); i++) {
        count += snapshot_arena(i) != NULL;
    }
    return count;
}

/* With one arena, the sum would repeat it; it is printed only if nothing else is. */
static void print_arenas(struct out *out, const struct stats_parts *parts, arena_printer *print) {
    if (parts->merged && (count_arenas() > 1 || !parts->arenas)) {
        print_arena(out, parts, SNAPSHOT_ALL, print);
    }
    if (parts->destroyed) {
        print_arena(out, parts, SNAPSHOT_DESTROYED, print);
    }
    for (unsigned i = 0; parts->arenas && i < snapshot_arenas(); i++) {
        print_arena(out, parts, i, print);
    }
}

static void print_json(struct out *out, const struct stats_parts *parts) {
    json_open(out, NULL, '{');
    json_open(out, "jemalloc", '{');
    stats_json_process(out, parts);
    if (parts->merged || parts->destroyed || parts->arenas) {
        json_open(out, "stats.arenas", '{');
        print_arenas(out, parts, stats_json_arena);
        json_close(out, '{');
    }
    json_close(out, '{');
    json_close(out, '{');
    out_text(out, "\n");
}

static void print_text(struct out *out, const struct stats_parts *parts) {
    out_text(out, "___ Begin jemalloc statistics ___\n");
    stats_summary(out, parts->bins);
    stats_text_process(out, parts);
    print_arenas(out, parts, stats_text_arena);
    out_text(out, "--- End jemalloc statistics ---\n");
}

/* The program's function, and the text it gets next. */
struct reader {
    void (*write)(void *opaque, const char *text);
    void *opaque;
    char buffer[4096];
};

/* The program may do anything in `write`, so it is called outside of the allocator. */
static int pass_on(void *target, const char *bytes, size_t length) {
    struct reader *reader = target;
    assert(bytes == reader->buffer && length < sizeof(reader->buffer));
    reader->buffer[length] = '\0';
    struct thread_outside before = thread_go_outside();
    reader->write(reader->opaque, reader->buffer);
    thread_come_back(before);
    return 0;
}

/* The buffer is on the caller's stack: it needs no memory, and two threads that print do not
 * mix. */
void stats_print(void (*write)(void *opaque, const char *text), void *opaque, const char *letters) {
    const char *wanted = letters != NULL ? letters : "";
    struct stats_parts parts = parts_without(wanted);
    struct reader reader = {.write = write != NULL ? write : log_write, .opaque = opaque};
    struct out out;
    out_begin(&out, (struct out_sink){pass_on, &reader, false}, reader.buffer,
              sizeof(reader.buffer) - 1);
    snapshot_refresh();
    if (strchr(wanted, 'J') != NULL) {
        print_json(&out, &parts);
    } else {
        print_text(&out, &parts);
    }
    out_end(&out);
}
