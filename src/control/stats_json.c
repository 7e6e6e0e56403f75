/* SPDX-License-Identifier: MIT
 *
 * stats_json.c - the statistics as one JSON object on one line, with jemalloc's keys.
 *
 * No row is left out because it is zero, so a reader finds every key at every time.  Lengths of arrays
 * are the numbers of tally's own classes.
 */
#include <string.h>

#include "base/fmt.h"
#include "control/stats.h"

/* ---------------------------------------------------------------- rows */

/* jemalloc has no such member there, or has it under another name. */
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

static void json_rows(struct emit *emit, const struct ctl_member *table, const void *counts) {
    for (const struct ctl_member *row = table; row->name != NULL; row++) {
        const char *key = key_of(table, row);
        if (key != NULL) {
            json_value(emit, key, row->type, stats_field(row, counts));
        }
    }
}

static void json_object(struct emit *emit, const char *key, const struct ctl_member *table,
                        const void *counts) {
    json_open(emit, key, '{');
    json_rows(emit, table, counts);
    json_close(emit, '{');
}

static void json_leaves(struct emit *emit, const char *node, const struct stats_leaf *leaf) {
    for (; leaf->name != NULL; leaf++) {
        json_value(emit, leaf->name, leaf->type, stats_ctl(node, leaf->name, leaf->type));
    }
}

/* ---------------------------------------------------------------- general information */

static void json_config(struct emit *emit) {
    json_open(emit, "config", '{');
    for (const char *const *name = stats_config_names; *name != NULL; name++) {
        json_value(emit, *name, VALUE_BOOL, stats_ctl("config", *name, VALUE_BOOL));
    }
    json_string(emit, "malloc_conf", stats_ctl("config", "malloc_conf", VALUE_STRING).string);
    json_close(emit, '{');
}

static void json_options(struct emit *emit) {
    json_open(emit, "opt", '{');
    for (const struct stats_source *source = stats_sources; source->name != NULL; source++) {
        const char *text = stats_ctl("opt.malloc_conf", source->name, VALUE_STRING).string;
        if (text != NULL || source->is_always_there) {
            json_string(emit, source->name, text);
        }
    }
    for (size_t row = 0; row < opt_count(); row++) {
        if (opt_leaf(row) != VALUE_NONE) {
            struct stats_option option;
            stats_read_option(row, &option);
            json_value(emit, opt_name(row), option.type, option.value);
        }
    }
    json_close(emit, '{');
}

static void json_bin_classes(struct emit *emit) {
    json_open(emit, "bin", '[');
    for (unsigned j = 0; j < BIN_CLASSES; j++) {
        const struct size_class *sc = &size_classes[j + 1];
        json_open(emit, NULL, '{');
        json_number(emit, "size", sc->size);
        json_number(emit, "nregs", sc->total);
        json_number(emit, "slab_size", sc->slab_mask + 1);
        json_number(emit, "nshards", 1);
        json_close(emit, '{');
    }
    json_close(emit, '[');
}

static void json_large_classes(struct emit *emit) {
    json_open(emit, "lextent", '[');
    for (unsigned j = 0; j < LEXTENT_CLASSES; j++) {
        json_open(emit, NULL, '{');
        json_number(emit, "size", counts_lextent_size(j));
        json_close(emit, '{');
    }
    json_close(emit, '[');
}

static void json_classes(struct emit *emit) {
    json_open(emit, "arenas", '{');
    json_leaves(emit, "arenas", stats_arenas_leaves);
    json_bin_classes(emit);
    json_large_classes(emit);
    json_close(emit, '{');
}

static void json_general(struct emit *emit) {
    json_string(emit, "version", stats_ctl("version", NULL, VALUE_STRING).string);
    json_config(emit);
    json_open(emit, "system", '{');
    json_string(emit, "thp_mode", stats_thp_mode());
    json_close(emit, '{');
    json_options(emit);
    json_open(emit, "prof", '{');
    json_leaves(emit, "prof", stats_prof_leaves);
    json_close(emit, '{');
    json_classes(emit);
}

/* ---------------------------------------------------------------- the process */

static void json_global_mutexes(struct emit *emit) {
    json_open(emit, "mutexes", '{');
    for (unsigned m = 0; m < SNAPSHOT_LOCKS; m++) {
        struct mutex_counts counts;
        snapshot_copy(&counts, snapshot_lock(m), sizeof(counts));
        json_object(emit, snapshot_lock_names[m], ctl_mutexes, &counts);
    }
    json_close(emit, '{');
}

void stats_json_process(struct emit *emit, const struct stats_parts *parts) {
    if (parts->general) {
        json_general(emit);
    }
    struct total_counts totals;
    snapshot_copy(&totals, snapshot_totals(), sizeof(totals));
    json_open(emit, "stats", '{');
    json_rows(emit, ctl_totals, &totals);
    json_number(emit, "zero_reallocs", stats_ctl("stats.zero_reallocs", NULL, VALUE_SIZE).size);
    json_open(emit, "background_thread", '{');
    json_leaves(emit, "stats.background_thread", stats_background_leaves);
    json_close(emit, '{');
    if (parts->mutexes) {
        json_global_mutexes(emit);
    }
    json_close(emit, '{');
}

/* ---------------------------------------------------------------- arenas */

static void json_arena_mutexes(struct emit *emit, const struct arena_counts *counts) {
    json_open(emit, "mutexes", '{');
    for (unsigned m = 0; m < ARENA_MUTEXES; m++) {
        struct mutex_counts mutex;
        snapshot_copy(&mutex, &counts->mutexes[m], sizeof(mutex));
        json_object(emit, snapshot_arena_lock_names[m], ctl_mutexes, &mutex);
    }
    json_close(emit, '{');
}

static void json_bins(struct emit *emit, const struct bin_counts *bins, bool with_mutexes) {
    json_open(emit, "bins", '[');
    for (unsigned j = 0; j < BIN_CLASSES; j++) {
        struct bin_counts bin;
        snapshot_copy(&bin, &bins[j], sizeof(bin));
        json_open(emit, NULL, '{');
        json_rows(emit, ctl_bins, &bin);
        if (with_mutexes) {
            json_object(emit, "mutex", ctl_mutexes, &bin.mutex);
        }
        json_close(emit, '{');
    }
    json_close(emit, '[');
}

static void json_lextents(struct emit *emit, const struct lextent_counts *lextents) {
    json_open(emit, "lextents", '[');
    for (unsigned j = 0; j < LEXTENT_CLASSES; j++) {
        struct lextent_counts lextent;
        snapshot_copy(&lextent, &lextents[j], sizeof(lextent));
        json_object(emit, NULL, ctl_lextents, &lextent);
    }
    json_close(emit, '[');
}

static void json_extents(struct emit *emit, const struct extent_counts *extents) {
    json_open(emit, "extents", '[');
    for (unsigned j = 0; j < EXTENT_CLASSES; j++) {
        struct extent_counts extent;
        snapshot_copy(&extent, &extents[j], sizeof(extent));
        json_object(emit, NULL, ctl_extents, &extent);
    }
    json_close(emit, '[');
}

/* tally has no such allocator; readers expect its object. */
static void json_hpa_slabs(struct emit *emit, const char *key) {
    json_open(emit, key, '{');
    for (const char *const *name = stats_hpa_slab_names; *name != NULL; name++) {
        json_number(emit, *name, 0);
    }
    json_close(emit, '{');
}

static void json_hpa(struct emit *emit) {
    json_open(emit, "hpa_shard", '{');
    for (const char *const *name = stats_hpa_names; *name != NULL; name++) {
        json_number(emit, *name, 0);
    }
    json_hpa_slabs(emit, "slabs");
    json_hpa_slabs(emit, "full_slabs");
    json_hpa_slabs(emit, "empty_slabs");
    json_open(emit, "nonfull_slabs", '[');
    for (unsigned j = 0; j < STATS_HPA_CLASSES; j++) {
        json_hpa_slabs(emit, NULL);
    }
    json_close(emit, '[');
    json_close(emit, '{');
}

static void json_open_arena(struct emit *emit, unsigned arena) {
    char key[16];
    if (arena < SNAPSHOT_ALL) {
        char name[ARENA_NAME_BYTES];
        fmt_text(key, sizeof(key), "%u", arena);
        arena_get_name(arena, name);
        json_open(emit, key, '{');
        json_string(emit, "name", name);
    } else {
        json_open(emit, arena == SNAPSHOT_ALL ? "merged" : "destroyed", '{');
    }
    json_string(emit, "dss", stats_dss(arena));
}

void stats_json_arena(struct emit *emit, const struct stats_parts *parts, unsigned arena,
                      const struct arena_counts *counts) {
    struct stats_head head;
    snapshot_copy(&head, counts, sizeof(head));
    json_open_arena(emit, arena);
    json_rows(emit, ctl_arena_figures, &head);
    json_object(emit, "small", ctl_kinds, &head.small);
    json_object(emit, "large", ctl_kinds, &head.large);
    if (parts->mutexes) {
        json_arena_mutexes(emit, counts);
    }
    if (parts->bins) {
        json_bins(emit, counts->bins, parts->mutexes);
    }
    if (parts->large) {
        json_lextents(emit, counts->lextents);
    }
    if (parts->extents) {
        json_extents(emit, counts->extents);
    }
    if (parts->hpa) {
        json_hpa(emit);
    }
    json_close(emit, '{');
}
