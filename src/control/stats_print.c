/* SPDX-License-Identifier: MIT
 *
 * stats_print.c - the statistics: which parts are wanted, in which order they come, as text or JSON.
 *
 * Text is framed by jemalloc's first and last line and has its sections in its order.  Our summary
 * for people stands right behind the first line, so that a reader who looks for that line at the
 * beginning finds it there, and one who looks for lines by their text finds those too.
 *
 * Threads     Counters are read first (snapshot.h).  No lock is held while the program is called;
 *             when somebody else has them read again meanwhile, later parts are of later counts.
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

/* Prints what belongs to one arena, or to several as one. */
typedef void arena_printer(struct emit *emit, const struct stats_parts *parts, unsigned arena,
                           const struct arena_counts *counts);

/* Another thread may have the counters read anew at any time, and an arena may be gone then. */
static void print_arena(struct emit *emit, const struct stats_parts *parts, unsigned arena,
                        arena_printer *print) {
    const struct arena_counts *counts = snapshot_arena(arena);
    if (counts != NULL) {
        print(emit, parts, arena, counts);
    }
}

static unsigned count_arenas(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < snapshot_arenas(); i++) {
        count += snapshot_arena(i) != NULL;
    }
    return count;
}

/* The sum of one arena would be that arena once more; it is printed if nothing else is. */
static void print_arenas(struct emit *emit, const struct stats_parts *parts, arena_printer *print) {
    if (parts->merged && (count_arenas() > 1 || !parts->arenas)) {
        print_arena(emit, parts, SNAPSHOT_ALL, print);
    }
    if (parts->destroyed) {
        print_arena(emit, parts, SNAPSHOT_DESTROYED, print);
    }
    for (unsigned i = 0; parts->arenas && i < snapshot_arenas(); i++) {
        print_arena(emit, parts, i, print);
    }
}

static void print_json(struct emit *emit, const struct stats_parts *parts) {
    json_open(emit, NULL, '{');
    json_open(emit, "jemalloc", '{');
    stats_json_process(emit, parts);
    if (parts->merged || parts->destroyed || parts->arenas) {
        json_open(emit, "stats.arenas", '{');
        print_arenas(emit, parts, stats_json_arena);
        json_close(emit, '{');
    }
    json_close(emit, '{');
    json_close(emit, '{');
    emit_text(emit, "\n");
}

static void print_text(struct emit *emit, const struct stats_parts *parts) {
    emit_text(emit, "___ Begin jemalloc statistics ___\n");
    stats_summary(emit, parts->bins);
    stats_text_process(emit, parts);
    print_arenas(emit, parts, stats_text_arena);
    emit_text(emit, "--- End jemalloc statistics ---\n");
}

void stats_print(void (*write)(void *opaque, const char *text), void *opaque, const char *letters) {
    const char *wanted = letters != NULL ? letters : "";
    struct stats_parts parts = parts_without(wanted);
    struct emit emit;
    emit_begin(&emit, write != NULL ? write : log_write, opaque);
    snapshot_refresh();
    if (strchr(wanted, 'J') != NULL) {
        print_json(&emit, &parts);
    } else {
        print_text(&emit, &parts);
    }
    emit_end(&emit);
}
