/* SPDX-License-Identifier: MIT
 *
 * ctl_family.c - names that come from tables other than ctl.def.
 *
 * A path of ctl.def may hold a word such as <option> or <bin>: it stands for every name of a table,
 * options.def or a part of counters.def.  So one row gives a counter or an option its leaf.
 */
#include <string.h>

#include "control/ctl.h"
#include "control/snapshot.h"
#include "heap/counts.h"
#include "opt/opt.h"

enum {
    TYPE_size_t = VALUE_SIZE,
    TYPE_uint64_t = VALUE_UINT64,
    TYPE_uint32_t = VALUE_UINT32,
    TYPE_unsigned = VALUE_UNSIGNED,
    TYPE_ssize_t = VALUE_SSIZE,
};

/* clang-format off */
#define MEMBER(of, name, kind, help) {#name, (enum value_type)TYPE_##kind, offsetof(struct of, name), HELP(help)},

#define TOTAL(name, type, merge, help) MEMBER(total_counts, name, type, help)
const struct ctl_member ctl_totals[] = {
#include "heap/counters.def"
    {0}};
#undef TOTAL
#define ARENA(name, type, merge, help) MEMBER(arena_counts, name, type, help)
const struct ctl_member ctl_arena_figures[] = {
#include "heap/counters.def"
    {0}};
#undef ARENA
#define KIND(name, type, merge, help) MEMBER(kind_counts, name, type, help)
const struct ctl_member ctl_kinds[] = {
#include "heap/counters.def"
    {0}};
#undef KIND
#define BIN(name, type, merge, help) MEMBER(bin_counts, name, type, help)
const struct ctl_member ctl_bins[] = {
#include "heap/counters.def"
    {0}};
#undef BIN
#define LEXTENT(name, type, merge, help) MEMBER(lextent_counts, name, type, help)
const struct ctl_member ctl_lextents[] = {
#include "heap/counters.def"
    {0}};
#undef LEXTENT
#define EXTENT(name, type, merge, help) MEMBER(extent_counts, name, type, help)
const struct ctl_member ctl_extents[] = {
#include "heap/counters.def"
    {0}};
#undef EXTENT
#define MUTEX(name, type, merge, help) MEMBER(mutex_counts, name, type, help)
const struct ctl_member ctl_mutexes[] = {
#include "heap/counters.def"
    {0}};
#undef MUTEX
/* clang-format on */

/* The members are a table, an array of names, or the options. */
struct family {
    const char *placeholder;
    const struct ctl_member *members;
    const char *const *names;
    size_t count;
};

static const struct family families[] = {
    {"<option>", NULL, NULL, 0},
    {"<total>", ctl_totals, NULL, sizeof(ctl_totals) / sizeof(struct ctl_member) - 1},
    {"<figure>", ctl_arena_figures, NULL,
     sizeof(ctl_arena_figures) / sizeof(struct ctl_member) - 1},
    {"<kind>", ctl_kinds, NULL, sizeof(ctl_kinds) / sizeof(struct ctl_member) - 1},
    {"<bin>", ctl_bins, NULL, sizeof(ctl_bins) / sizeof(struct ctl_member) - 1},
    {"<lextent>", ctl_lextents, NULL, sizeof(ctl_lextents) / sizeof(struct ctl_member) - 1},
    {"<extent>", ctl_extents, NULL, sizeof(ctl_extents) / sizeof(struct ctl_member) - 1},
    {"<mutex>", ctl_mutexes, NULL, sizeof(ctl_mutexes) / sizeof(struct ctl_member) - 1},
    {"<lock>", NULL, snapshot_lock_names, SNAPSHOT_LOCKS},
    {"<arena_lock>", NULL, snapshot_arena_lock_names, ARENA_MUTEXES},
};

int ctl_family_find(const char *placeholder, size_t length) {
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (strlen(families[i].placeholder) == length &&
            memcmp(families[i].placeholder, placeholder, length) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static bool is_options(const struct family *family) {
    return family->members == NULL && family->names == NULL;
}

size_t ctl_family_count(int family) {
    return is_options(&families[family]) ? opt_count() : families[family].count;
}

static struct ctl_member option_member(size_t row) {
    enum value_type leaf = opt_leaf(row);
    const char *name = leaf == VALUE_NONE ? NULL : opt_name(row);
    return (struct ctl_member){name, leaf, row, opt_help(row)};
}

struct ctl_member ctl_family_member(int number, size_t member) {
    const struct family *family = &families[number];
    if (member >= ctl_family_count(number)) {
        return (struct ctl_member){0};
    }
    if (is_options(family)) {
        return option_member(member);
    }
    if (family->names != NULL) {
        return (struct ctl_member){.name = family->names[member], .help = ""};
    }
    return family->members[member];
}

bool ctl_option(const char *name, union value *value) {
    for (size_t row = 0; row < opt_count(); row++) {
        if (opt_leaf(row) != VALUE_NONE && strcmp(opt_name(row), name) == 0) {
            *value = opt_read(row);
            return true;
        }
    }
    return false;
}
