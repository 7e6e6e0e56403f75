/* SPDX-License-Identifier: MIT
 *
 * stats_json.c - the statistics as one JSON object on one line, with jemalloc's keys.
 *
 * Rows of zeros are printed too, so that a reader always finds every key.  Arrays have the lengths
 * of tally's own tables of classes.
 */
#include <string.h>

#include "base/fmt.h"
#include "control/stats.h"
#include "heap/counts.h"
#include "opt/opt.h"

/* ---------------------------------------------------------------- rows */

/* The key of a row: jemalloc leaves some out, and calls some by another name. */
static const char *key_of(const struct ctl_member *table, const struct ctl_member *row) {
    if (table == ctl_arena_figures && strcmp(row->name, "uptime") == 0) {
        return "uptime_ns";
    }
    if (table == ctl_bins && strcmp(row->name, "nslabs") == 0) {
        return NULL;
    }
    if (table == ctl_lextents && strcmp(row->name, "curlextents") != 0) {
        return NULL;
    }
    return row->name;
}

static void json_rows(struct out *out, const struct ctl_member *table, const void *counts) {
    for (const struct ctl_member *row = table; row->name != NULL; row++) {
        const char *key = key_of(table, row);
        if (key != NULL) {
            json_value(out, key, row->type, stats_field(row, counts));
        }
    }
}

static void json_object(struct out *out, const char *key, const struct ctl_member *table,
                        const void *counts) {
    json_open(out, key, '{');
    json_rows(out, table, counts);
    json_close(out, '{');
}

static void json_leaves(struct out *out, const char *node, const struct stats_leaf *leaf) {
    for (; leaf->name != NULL; leaf++) {
        json_value(out, leaf->name, leaf->type, stats_ctl(node, leaf->name, leaf->type));
    }
}

/* ---------------------------------------------------------------- general information */

static void json_config(struct out *out) {
    json_open(out, "config", '{');
    for (const char *const *name = stats_config_names; *name != NULL; name++) {
        json_value(out, *name, VALUE_BOOL, stats_ctl("config", *name, VALUE_BOOL));
    }
    json_string(out, "malloc_conf", stats_ctl("config", "malloc_conf", VALUE_STRING).string);
    json_close(out, '{');
}

static void json_options(struct out *out) {
    json_open(out, "opt", '{');
    for (const struct stats_source *source = stats_sources; source->name != NULL; source++) {
        const char *text = stats_ctl("opt.malloc_conf", source->name, VALUE_STRING).string;
        if (text != NULL || source->is_always_there) {
            json_string(out, source->name, text);
        }
    }
    for (size_t row = 0; row < opt_count(); row++) {
        if (opt_leaf(row) != VALUE_NONE) {
            struct stats_option option;
            stats_read_option(row, &option);
            json_value(out, opt_name(row), option.type, option.value);
        }
    }
    json_close(out, '{');
}

static void json_bin_classes(struct out *out) {
    json_open(out, "bin", '[');
    for (unsigned j = 0; j < BIN_CLASSES; j++) {
        const struct size_class *sc = &size_classes[j + 1];
        json_open(out, NULL, '{');
        json_number(out, "size", sc->size);
        json_number(out, "nregs", sc->total);
        json_number(out, "slab_size", sc->slab_mask + 1);
        json_number(out, "nshards", 1);
        json_close(out, '{');
    }
    json_close(out, '[');
}

static void json_large_classes(struct out *out) {
    json_open(out, "lextent", '[');
    for (unsigned j = 0; j < LEXTENT_CLASSES; j++) {
        json_open(out, NULL, '{');
        json_number(out, "size", counts_lextent_size(j));
        json_close(out, '{');
    }
    json_close(out, '[');
}

static void json_classes(struct out *out) {
    json_open(out, "arenas", '{');
    json_leaves(out, "arenas", stats_arenas_leaves);
    json_bin_classes(out);
    json_large_classes(out);
    json_close(out, '{');
}

static void json_general(struct out *out) {
    json_string(out, "version", stats_ctl("version", NULL, VALUE_STRING).string);
    json_config(out);
    json_open(out, "system", '{');
    json_string(out, "thp_mode", stats_thp_mode());
    json_close(out, '{');
    json_options(out);
    json_open(out, "prof", '{');
    json_leaves(out, "prof", stats_prof_leaves);
    json_close(out, '{');
    json_classes(out);
}

/* ---------------------------------------------------------------- the process */

static void json_global_mutexes(struct out *out) {
    json_open(out, "mutexes", '{');
    for (unsigned m = 0; m < SNAPSHOT_LOCKS; m++) {
        struct mutex_counts counts;
        snapshot_copy(&counts, snapshot_lock(m), sizeof(counts));
        json_object(out, snapshot_lock_names[m], ctl_mutexes, &counts);
    }
    json_close(out, '{');
}

void stats_json_process(struct out *out, const struct stats_parts *parts) {
    if (parts->general) {
        json_general(out);
    }
    struct total_counts totals;
    snapshot_copy(&totals, snapshot_totals(), sizeof(totals));
    json_open(out, "stats", '{');
    json_rows(out, ctl_totals, &totals);
    json_number(out, "zero_reallocs", stats_ctl("stats.zero_reallocs", NULL, VALUE_SIZE).size);
    json_open(out, "background_thread", '{');
    json_leaves(out, "stats.background_thread", stats_background_leaves);
    json_close(out, '{');
    if (parts->mutexes) {
        json_global_mutexes(out);
    }
    json_close(out, '{');
}

/* ---------------------------------------------------------------- arenas */

static void json_arena_mutexes(struct out *out, const struct arena_counts *counts) {
    json_open(out, "mutexes", '{');
    for (unsigned m = 0; m < ARENA_MUTEXES; m++) {
        struct mutex_counts mutex;
        snapshot_copy(&mutex, &counts->mutexes[m], sizeof(mutex));
        json_object(out, snapshot_arena_lock_names[m], ctl_mutexes, &mutex);
    }
    json_close(out, '{');
}

static void json_bins(struct out *out, const struct bin_counts *bins, bool with_mutexes) {
    json_open(out, "bins", '[');
    for (unsigned j = 0; j < BIN_CLASSES; j++) {
        struct bin_counts bin;
        snapshot_copy(&bin, &bins[j], sizeof(bin));
        json_open(out, NULL, '{');
        json_rows(out, ctl_bins, &bin);
        if (with_mutexes) {
            json_object(out, "mutex", ctl_mutexes, &bin.mutex);
        }
        json_close(out, '{');
    }
    json_close(out, '[');
}

static void json_lextents(struct out *out, const struct lextent_counts *lextents) {
    json_open(out, "lextents", '[');
    for (unsigned j = 0; j < LEXTENT_CLASSES; j++) {
        struct lextent_counts lextent;
        snapshot_copy(&lextent, &lextents[j], sizeof(lextent));
        json_object(out, NULL, ctl_lextents, &lextent);
    }
    json_close(out, '[');
}

static void json_extents(struct out *out, const struct extent_counts *extents) {
    json_open(out, "extents", '[');
    for (unsigned j = 0; j < EXTENT_CLASSES; j++) {
        struct extent_counts extent;
        snapshot_copy(&extent, &extents[j], sizeof(extent));
        json_object(out, NULL, ctl_extents, &extent);
    }
    json_close(out, '[');
}

/* tally has no such allocator; readers expect its object. */
static void json_hpa_slabs(struct out *out, const char *key) {
    json_open(out, key, '{');
    for (const char *const *name = stats_hpa_slab_names; *name != NULL; name++) {
        json_number(out, *name, 0);
    }
    json_close(out, '{');
}

static void json_hpa(struct out *out) {
    json_open(out, "hpa_shard", '{');
    for (const char *const *name = stats_hpa_names; *name != NULL; name++) {
        json_number(out, *name, 0);
    }
    json_hpa_slabs(out, "slabs");
    json_hpa_slabs(out, "full_slabs");
    json_hpa_slabs(out, "empty_slabs");
    json_open(out, "nonfull_slabs", '[');
    for (unsigned j = 0; j < STATS_HPA_CLASSES; j++) {
        json_hpa_slabs(out, NULL);
    }
    json_close(out, '[');
    json_close(out, '{');
}

static void json_open_arena(struct out *out, unsigned arena) {
    char key[16];
    if (arena < SNAPSHOT_ALL) {
        char name[ARENA_NAME_BYTES];
        fmt_text(key, sizeof(key), "%u", arena);
        arena_get_name(arena, name);
        json_open(out, key, '{');
        json_string(out, "name", name);
    } else {
        json_open(out, arena == SNAPSHOT_ALL ? "merged" : "destroyed", '{');
    }
    json_string(out, "dss", stats_dss(arena));
}

void stats_json_arena(struct out *out, const struct stats_parts *parts, unsigned arena,
                      const struct arena_counts *counts) {
    struct stats_head head;
    snapshot_copy(&head, counts, sizeof(head));
    json_open_arena(out, arena);
    json_rows(out, ctl_arena_figures, &head);
    json_object(out, "small", ctl_kinds, &head.small);
    json_object(out, "large", ctl_kinds, &head.large);
    if (parts->mutexes) {
        json_arena_mutexes(out, counts);
    }
    if (parts->bins) {
        json_bins(out, counts->bins, parts->mutexes);
    }
    if (parts->large) {
        json_lextents(out, counts->lextents);
    }
    if (parts->extents) {
        json_extents(out, counts->extents);
    }
    if (parts->hpa) {
        json_hpa(out);
    }
    json_close(out, '{');
}
