/* SPDX-License-Identifier: MIT
 *
 * stats_text.c - the statistics as jemalloc's text: its sections, lines and tables.
 *
 * Programs look for these lines by their words and split them at blanks, so words and order are
 * jemalloc's, while widths are tally's.  A table is one function that lists its columns; it is
 * called for the titles and for each row, so no title can stand over the wrong column.  Runs of
 * rows that are all zero are printed as one line of dashes.
 */
#include <stddef.h>
#include <string.h>

#include "base/fmt.h"
#include "base/os.h"
#include "control/stats.h"
#include "heap/counts.h"
#include "opt/opt.h"

/* ---------------------------------------------------------------- tables */

/* A line of a table: its titles, or numbers. */
struct line {
    struct out *out;
    bool is_titles;
    uint64_t seconds; /* for the rates */
};

static void put_cell(struct out *out, size_t width, const char *text) {
    static const char blanks[] = "                                ";
    size_t padding = max_size(width, strlen(text) + 1) - strlen(text);
    out_text(out, "%s%s", blanks + sizeof(blanks) - 1 - min_size(padding, sizeof(blanks) - 1),
             text);
}

static void column(const struct line *line, size_t width, const char *title, uint64_t value) {
    char number[24];
    fmt_text(number, sizeof(number), "%lu", (unsigned long)value);
    put_cell(line->out, width, line->is_titles ? title : number);
}

/* A counter, and its rate per second. */
static void rated(const struct line *line, size_t width, const char *title, uint64_t value) {
    column(line, width, title, value);
    column(line, 10, "(#/sec)", value / line->seconds);
}

static uint64_t whole_seconds(uint64_t nanoseconds) {
    uint64_t seconds = nanoseconds / 1000000000;
    return seconds > 0 ? seconds : 1;
}

/* Prints dashes in place of the rows left out since the last one printed. */
static void end_gap(struct out *out, bool *gap) {
    if (*gap) {
        out_text(out, "                     ---\n");
    }
    *gap = false;
}

/* The titles of mutex rows, in the order of counters.def; the first RATED_MUTEX_ROWS have a
 * rate. */
static const char *const mutex_titles[] = {
    "n_lock_ops",    "n_waiting",   "n_spin_acq", "n_owner_switch",
    "total_wait_ns", "max_wait_ns", "max_n_thds",
};
enum { RATED_MUTEX_ROWS = 5 };

static void mutex_columns(const struct line *line, const struct mutex_counts *counts) {
    for (unsigned i = 0; i < sizeof(mutex_titles) / sizeof(mutex_titles[0]); i++) {
        uint64_t value = stats_number(&ctl_mutexes[i], counts);
        (i < RATED_MUTEX_ROWS ? rated : column)(line, 15, mutex_titles[i], value);
    }
}

static void mutex_line(struct out *out, const char *name, uint64_t seconds,
                       const struct mutex_counts *counts) {
    struct line line = {out, counts == NULL, seconds};
    static const struct mutex_counts none;
    out_text(out, "%-18s", name);
    mutex_columns(&line, counts != NULL ? counts : &none);
    out_text(out, "\n");
}

/* ---------------------------------------------------------------- general information */

static void text_value(struct out *out, const char *node, const char *name, enum value_type type,
                       union value value) {
    out_text(out, "  %s.%s: ", node, name);
    json_print(out, type, value);
}

static void text_leaves(struct out *out, const char *node, const struct stats_leaf *leaf) {
    for (; leaf->name != NULL; leaf++) {
        text_value(out, node, leaf->name, leaf->type, stats_ctl(node, leaf->name, leaf->type));
        out_text(out, "\n");
    }
}

static void text_config(struct out *out) {
    out_text(out, "Build-time option settings\n");
    for (const char *const *name = stats_config_names; *name != NULL; name++) {
        text_value(out, "config", *name, VALUE_BOOL, stats_ctl("config", *name, VALUE_BOOL));
        out_text(out, "\n");
    }
    text_value(out, "config", "malloc_conf", VALUE_STRING,
               stats_ctl("config", "malloc_conf", VALUE_STRING));
    out_text(out, "\nSystem configuration\n  system.thp_mode: \"%s\"\n", stats_thp_mode());
}

/* Options that can be changed later, and where their current values are found. */
static const struct {
    const char *option;
    const char *live;
    enum value_type type;
} changing[] = {
    {"background_thread", "background_thread", VALUE_BOOL},
    {"max_background_threads", "max_background_threads", VALUE_SIZE},
    {"dirty_decay_ms", "arenas.dirty_decay_ms", VALUE_SSIZE},
    {"muzzy_decay_ms", "arenas.muzzy_decay_ms", VALUE_SSIZE},
    {"prof_active", "prof.active", VALUE_BOOL},
    {"prof_thread_active_init", "prof.thread_active_init", VALUE_BOOL},
    {"lg_prof_sample", "prof.lg_sample", VALUE_SIZE},
};

static void text_live_value(struct out *out, const char *option) {
    for (size_t i = 0; i < sizeof(changing) / sizeof(changing[0]); i++) {
        if (strcmp(changing[i].option, option) == 0) {
            out_text(out, " (%s: ", changing[i].live);
            json_print(out, changing[i].type, stats_ctl(changing[i].live, NULL, changing[i].type));
            out_text(out, ")");
        }
    }
}

static void text_options(struct out *out) {
    out_text(out, "Run-time option settings\n");
    for (const struct stats_source *source = stats_sources; source->name != NULL; source++) {
        const char *text = stats_ctl("opt.malloc_conf", source->name, VALUE_STRING).string;
        if (text != NULL || source->is_always_there) {
            out_text(out, "  %s: ", source->title);
            json_quote(out, text);
            out_text(out, "\n");
        }
    }
    for (size_t row = 0; row < opt_count(); row++) {
        if (opt_leaf(row) != VALUE_NONE) {
            struct stats_option option;
            stats_read_option(row, &option);
            text_value(out, "opt", opt_name(row), option.type, option.value);
            text_live_value(out, opt_name(row));
            out_text(out, "\n");
        }
    }
}

static void text_sizes(struct out *out) {
    for (const struct stats_leaf *leaf = stats_arenas_leaves; leaf->name != NULL; leaf++) {
        if (leaf->title != NULL) {
            out_text(out, "%s: ", leaf->title);
            json_print(out, leaf->type, stats_ctl("arenas", leaf->name, leaf->type));
            out_text(out, "\n");
        }
    }
}

static void text_general(struct out *out) {
    out_text(out, "Version: ");
    json_quote(out, stats_ctl("version", NULL, VALUE_STRING).string);
    out_text(out, "\n");
    text_config(out);
    text_options(out);
    out_text(out, "Profiling settings\n");
    text_leaves(out, "prof", stats_prof_leaves);
    text_sizes(out);
}

/* ---------------------------------------------------------------- the process */

static void text_totals(struct out *out) {
    struct total_counts t;
    snapshot_copy(&t, snapshot_totals(), sizeof(t));
    out_text(out, "Allocated: %zu, active: %zu, metadata: %zu (n_thp %zu, edata %zu, rtree %zu), ",
             t.allocated, t.active, t.metadata, t.metadata_thp, t.metadata_edata, t.metadata_rtree);
    out_text(out, "resident: %zu, mapped: %zu, retained: %zu\n", t.resident, t.mapped, t.retained);
    out_text(out, "Count of realloc(non-null-ptr, 0) calls: %zu\n",
             stats_ctl("stats.zero_reallocs", NULL, VALUE_SIZE).size);
}

static void text_background(struct out *out) {
    for (const struct stats_leaf *leaf = stats_background_leaves; leaf->name != NULL; leaf++) {
        out_text(out, "%s%s: ", leaf > stats_background_leaves ? ", " : "", leaf->title);
        json_print(out, leaf->type, stats_ctl("stats.background_thread", leaf->name, leaf->type));
    }
    out_text(out, " ns\n");
}

static void text_global_mutexes(struct out *out) {
    const struct arena_counts *all = snapshot_arena(SNAPSHOT_ALL);
    uint64_t uptime = 0;
    if (all != NULL) {
        snapshot_copy(&uptime, &all->uptime, sizeof(uptime));
    }
    uint64_t seconds = whole_seconds(uptime);
    mutex_line(out, "", seconds, NULL);
    for (unsigned m = 0; m < SNAPSHOT_LOCKS; m++) {
        struct mutex_counts counts;
        snapshot_copy(&counts, snapshot_lock(m), sizeof(counts));
        mutex_line(out, snapshot_lock_names[m], seconds, &counts);
    }
}

void stats_text_process(struct out *out, const struct stats_parts *parts) {
    if (parts->general) {
        text_general(out);
    }
    text_totals(out);
    text_background(out);
    if (parts->mutexes) {
        text_global_mutexes(out);
    }
}

/* ---------------------------------------------------------------- an arena's own figures */

static void text_heading(struct out *out, unsigned arena) {
    if (arena >= SNAPSHOT_ALL) {
        out_text(out, "%s arenas stats:\n", arena == SNAPSHOT_ALL ? "Merged" : "Destroyed");
        return;
    }
    char name[ARENA_NAME_BYTES];
    arena_get_name(arena, name);
    out_text(out, "arenas[%u]:\nname: ", arena);
    json_quote(out, name);
    out_text(out, "\n");
}

/* One line: how long pages may stay, their number, and what purging has done. */
static void decay_line(struct out *out, const char *name, ssize_t ms, size_t pages,
                       const uint64_t purges[3]) {
    struct line line = {out, name == NULL, 1};
    char time[24];
    fmt_text(time, sizeof(time), ms < 0 ? "N/A" : "%ld", (long)ms);
    out_text(out, "%9s", line.is_titles ? "decaying:" : name);
    put_cell(out, 6, line.is_titles ? "time" : time);
    column(&line, 13, "npages", pages);
    column(&line, 13, "sweeps", purges[0]);
    column(&line, 13, "madvises", purges[1]);
    column(&line, 13, "purged", purges[2]);
    out_text(out, "\n");
}

static void text_decay(struct out *out, const struct stats_head *c) {
    uint64_t dirty[] = {c->dirty_npurge, c->dirty_nmadvise, c->dirty_purged};
    uint64_t muzzy[] = {c->muzzy_npurge, c->muzzy_nmadvise, c->muzzy_purged};
    decay_line(out, NULL, 0, 0, dirty);
    decay_line(out, "dirty:", c->dirty_decay_ms, c->pdirty, dirty);
    decay_line(out, "muzzy:", c->muzzy_decay_ms, c->pmuzzy, muzzy);
}

static void kind_line(struct out *out, const char *name, uint64_t seconds,
                      const struct kind_counts *c) {
    struct line line = {out, *name == '\0', seconds};
    out_text(out, "%-18s", name);
    column(&line, 15, "allocated", c->allocated);
    rated(&line, 15, "nmalloc", c->nmalloc);
    rated(&line, 15, "ndalloc", c->ndalloc);
    rated(&line, 15, "nrequests", c->nrequests);
    rated(&line, 15, "nfill", c->nfills);
    rated(&line, 15, "nflush", c->nflushes);
    out_text(out, "\n");
}

static void text_kinds(struct out *out, const struct stats_head *c, uint64_t seconds) {
    struct kind_counts total = {
        .allocated = c->small.allocated + c->large.allocated,
        .nmalloc = c->small.nmalloc + c->large.nmalloc,
        .ndalloc = c->small.ndalloc + c->large.ndalloc,
        .nrequests = c->small.nrequests + c->large.nrequests,
        .nfills = c->small.nfills + c->large.nfills,
        .nflushes = c->small.nflushes + c->large.nflushes,
    };
    kind_line(out, "", seconds, &total);
    kind_line(out, "small:", seconds, &c->small);
    kind_line(out, "large:", seconds, &c->large);
    kind_line(out, "total:", seconds, &total);
}

static void byte_line(struct out *out, const char *name, uint64_t bytes) {
    char title[40];
    fmt_text(title, sizeof(title), "%s:", name);
    out_text(out, "%-22s%15lu\n", title, (unsigned long)bytes);
}

/* Bytes are the rows of counters.def from `mapped` on. */
static void text_bytes(struct out *out, const struct stats_head *c) {
    byte_line(out, "active", c->pactive * os_facts.page_bytes);
    const struct ctl_member *row = ctl_arena_figures;
    while (row->name != NULL && strcmp(row->name, "mapped") != 0) {
        row++;
    }
    for (; row->name != NULL; row++) {
        byte_line(out, row->name, stats_number(row, c));
    }
}

static void text_arena_mutexes(struct out *out, const struct arena_counts *c, uint64_t seconds) {
    mutex_line(out, "", seconds, NULL);
    for (unsigned m = 0; m < ARENA_MUTEXES; m++) {
        struct mutex_counts mutex;
        snapshot_copy(&mutex, &c->mutexes[m], sizeof(mutex));
        mutex_line(out, snapshot_arena_lock_names[m], seconds, &mutex);
    }
}

/* ---------------------------------------------------------------- classes */

static bool is_zero(const void *counts, size_t bytes) {
    const char *at = counts;
    while (bytes > 0 && *at == 0) {
        at++;
        bytes--;
    }
    return bytes == 0;
}

/* The part of a class's slabs that is handed out, with three decimals. */
static void put_utilisation(const struct line *line, const struct bin_counts *c, unsigned regs) {
    char text[16] = "1";
    uint64_t available = c->curslabs * regs;
    if (c->curregs < available) {
        fmt_text(text, sizeof(text), "0.%03u", (unsigned)(c->curregs * 1000 / available));
    }
    put_cell(line->out, 6, line->is_titles ? "util" : text);
}

static void bin_line(const struct line *line, unsigned j, const struct bin_counts *c,
                     bool with_mutex) {
    const struct size_class *sc = &size_classes[j + 1];
    out_text(line->out, "%-8s", line->is_titles ? "bins:" : "");
    column(line, 12, "size", sc->size);
    column(line, 5, "ind", j);
    column(line, 14, "allocated", c->curregs * sc->size);
    rated(line, 14, "nmalloc", c->nmalloc);
    rated(line, 14, "ndalloc", c->ndalloc);
    rated(line, 14, "nrequests", c->nrequests);
    column(line, 9, "nshards", 1);
    column(line, 13, "curregs", c->curregs);
    column(line, 13, "curslabs", c->curslabs);
    column(line, 15, "nonfull_slabs", c->nonfull_slabs);
    column(line, 6, "regs", sc->total);
    column(line, 5, "pgs", (sc->slab_mask + 1) / os_facts.page_bytes);
    put_utilisation(line, c, sc->total);
    rated(line, 14, "nfills", c->nfills);
    rated(line, 14, "nflushes", c->nflushes);
    column(line, 14, "nslabs", c->nslabs);
    rated(line, 14, "nreslabs", c->nreslabs);
    if (with_mutex) {
        mutex_columns(line, &c->mutex);
    }
    out_text(line->out, "\n");
}

static void text_bins(struct out *out, const struct bin_counts *bins, uint64_t seconds,
                      bool with_mutexes) {
    struct line titles = {out, true, seconds}, numbers = {out, false, seconds};
    bool gap = false;
    struct bin_counts bin = {0};
    bin_line(&titles, 0, &bin, with_mutexes);
    for (unsigned j = 0; j < BIN_CLASSES; j++) {
        snapshot_copy(&bin, &bins[j], sizeof(bin));
        if (is_zero(&bin, offsetof(struct bin_counts, mutex))) {
            gap = true;
            continue;
        }
        end_gap(out, &gap);
        bin_line(&numbers, j, &bin, with_mutexes);
    }
    end_gap(out, &gap);
}

static void lextent_line(const struct line *line, unsigned j, const struct lextent_counts *c) {
    out_text(line->out, "%-8s", line->is_titles ? "large:" : "");
    column(line, 20, "size", counts_lextent_size(j));
    column(line, 5, "ind", BIN_CLASSES + j);
    column(line, 20, "allocated", c->curlextents * counts_lextent_size(j));
    rated(line, 14, "nmalloc", c->nmalloc);
    rated(line, 14, "ndalloc", c->ndalloc);
    rated(line, 14, "nrequests", c->nrequests);
    column(line, 13, "curlextents", c->curlextents);
    out_text(line->out, "\n");
}

static void text_large(struct out *out, const struct lextent_counts *lextents, uint64_t seconds) {
    struct line titles = {out, true, seconds}, numbers = {out, false, seconds};
    bool gap = false;
    struct lextent_counts lextent = {0};
    lextent_line(&titles, 0, &lextent);
    for (unsigned j = 0; j < LEXTENT_CLASSES; j++) {
        snapshot_copy(&lextent, &lextents[j], sizeof(lextent));
        if (is_zero(&lextent, sizeof(lextent))) {
            gap = true;
            continue;
        }
        end_gap(out, &gap);
        lextent_line(&numbers, j, &lextent);
    }
    end_gap(out, &gap);
}

static void extent_line(const struct line *line, unsigned j, const struct extent_counts *c) {
    out_text(line->out, "%-8s", line->is_titles ? "extents:" : "");
    column(line, 20, "size", counts_extent_size(j));
    column(line, 5, "ind", j);
    column(line, 13, "ndirty", c->ndirty);
    column(line, 14, "dirty", c->dirty_bytes);
    column(line, 13, "nmuzzy", c->nmuzzy);
    column(line, 14, "muzzy", c->muzzy_bytes);
    column(line, 13, "nretained", c->nretained);
    column(line, 14, "retained", c->retained_bytes);
    column(line, 13, "ntotal", c->ndirty + c->nmuzzy + c->nretained);
    column(line, 14, "total", c->dirty_bytes + c->muzzy_bytes + c->retained_bytes);
    out_text(line->out, "\n");
}

static void text_extents(struct out *out, const struct extent_counts *extents) {
    struct line titles = {out, true, 1}, numbers = {out, false, 1};
    bool gap = false;
    struct extent_counts extent = {0};
    extent_line(&titles, 0, &extent);
    for (unsigned j = 0; j < EXTENT_CLASSES; j++) {
        snapshot_copy(&extent, &extents[j], sizeof(extent));
        if (is_zero(&extent, sizeof(extent))) {
            gap = true;
            continue;
        }
        end_gap(out, &gap);
        extent_line(&numbers, j, &extent);
    }
    end_gap(out, &gap);
}

/* tally has no such allocator; readers expect its block. */
static void text_hpa(struct out *out) {
    out_text(out, "HPA shard stats:\n");
    for (const char *const *name = stats_hpa_names; *name != NULL; name++) {
        out_text(out, "  %s: 0\n", *name);
    }
}

/* ---------------------------------------------------------------- arenas */

void stats_text_arena(struct out *out, const struct stats_parts *parts, unsigned arena,
                      const struct arena_counts *counts) {
    struct stats_head head;
    snapshot_copy(&head, counts, sizeof(head));
    uint64_t seconds = whole_seconds(head.uptime);
    text_heading(out, arena);
    out_text(out, "assigned threads: %u\n", head.nthreads);
    out_text(out, "uptime: %lu\n", (unsigned long)head.uptime);
    out_text(out, "dss allocation precedence: ");
    json_quote(out, stats_dss(arena));
    out_text(out, "\n");
    text_decay(out, &head);
    text_kinds(out, &head, seconds);
    text_bytes(out, &head);
    if (parts->mutexes) {
        text_arena_mutexes(out, counts, seconds);
    }
    if (parts->bins) {
        text_bins(out, counts->bins, seconds, parts->mutexes);
    }
    if (parts->large) {
        text_large(out, counts->lextents, seconds);
    }
    if (parts->extents) {
        text_extents(out, counts->extents);
    }
    if (parts->hpa) {
        text_hpa(out);
    }
}
