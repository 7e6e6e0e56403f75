/* SPDX-License-Identifier: MIT
 *
 * stats_rows.c - reading a row of counters.def, the names that jemalloc gives to settings, and
 * the values that only the ctl tree knows.
 */
#include <stddef.h>
#include <string.h>

#include "base/fmt.h"
#include "base/os.h"
#include "control/control.h"
#include "control/stats.h"
#include "opt/opt.h"

/* ---------------------------------------------------------------- figures */

_Static_assert(sizeof(struct stats_head) == offsetof(struct arena_counts, bins),
               "stats_head is what stands before the classes");

union value stats_field(const struct ctl_member *row, const void *counts) {
    union value value = {0};
    memcpy(&value, (const char *)counts + row->offset, ctl_type_size(row->type));
    return value;
}

/* A narrow field is read at its own width, which is right for either byte order. */
uint64_t stats_number(const struct ctl_member *row, const void *counts) {
    union value value = stats_field(row, counts);
    return ctl_type_size(row->type) == sizeof(uint32_t) ? value.uint32 : value.uint64;
}

/* ---------------------------------------------------------------- names */

const char *const stats_config_names[] = {
    "cache_oblivious",
    "debug",
    "fill",
    "lazy_lock",
    "opt_safety_checks",
    "prof",
    "prof_libgcc",
    "prof_libunwind",
    "prof_frameptr",
    "stats",
    "utrace",
    "xmalloc",
    NULL,
};

const char *const stats_hpa_names[] = {
    "sec_bytes",        "sec_hits",      "sec_misses", "sec_dalloc_noflush",
    "sec_dalloc_flush", "sec_overfills", "npageslabs", "nactive",
    "ndirty",           "npurge_passes", "npurges",    "nhugifies",
    "nhugify_failures", "ndehugifies",   NULL,
};

const char *const stats_hpa_slab_names[] = {
    "npageslabs_nonhuge",
    "npageslabs_huge",
    "nactive_nonhuge",
    "nactive_huge",
    "ndirty_nonhuge",
    "ndirty_huge",
    NULL,
};

const struct stats_leaf stats_prof_leaves[] = {
    {"thread_active_init", VALUE_BOOL, NULL},
    {"active", VALUE_BOOL, NULL},
    {"gdump", VALUE_BOOL, NULL},
    {"interval", VALUE_UINT64, NULL},
    {"lg_sample", VALUE_SIZE, NULL},
    {0},
};

const struct stats_leaf stats_background_leaves[] = {
    {"num_threads", VALUE_SIZE, "Background threads"},
    {"num_runs", VALUE_UINT64, "num_runs"},
    {"run_interval", VALUE_UINT64, "run_interval"},
    {0},
};

const struct stats_leaf stats_arenas_leaves[] = {
    {"narenas", VALUE_UNSIGNED, "Arenas"},
    {"dirty_decay_ms", VALUE_SSIZE, NULL},
    {"muzzy_decay_ms", VALUE_SSIZE, NULL},
    {"quantum", VALUE_SIZE, "Quantum size"},
    {"page", VALUE_SIZE, "Page size"},
    {"hugepage", VALUE_SIZE, "Hugepage size"},
    {"tcache_max", VALUE_SIZE, "Maximum thread-cached size class"},
    {"nbins", VALUE_UNSIGNED, "Number of bin size classes"},
    {"nhbins", VALUE_UNSIGNED, "Number of thread-cache bin size classes"},
    {"nlextents", VALUE_UNSIGNED, "Number of large size classes"},
    {0},
};

const struct stats_source stats_sources[] = {
    {"global_var", "Global variable malloc_conf", true},
    {"symlink", "Symbolic link malloc.conf", true},
    {"env_var", "Environment variable MALLOC_CONF", true},
    {"global_var_2_conf_harder", "Global variable malloc_conf_2_conf_harder", false},
    {0},
};

/* ---------------------------------------------------------------- values */

union value stats_ctl(const char *node, const char *name, enum value_type type) {
    char path[96];
    fmt_text(path, sizeof(path), "%s%s%s", node, name != NULL ? "." : "", name != NULL ? name : "");
    union value value = {0};
    size_t length = ctl_type_size(type);
    if (ctl_by_name(path, &value, &length, NULL, 0) != 0) {
        return (union value){0};
    }
    return value;
}

/* A share in 16.16 bits as decimals: at least one after the point, at most 14. */
static void print_share(uint32_t share, char *text, size_t capacity) {
    if (share == UINT32_MAX) {
        fmt_text(text, capacity, "-1");
        return;
    }
    size_t length = fmt_text(text, capacity, "%u.", share >> 16), last = length;
    uint32_t rest = share & 0xffff;
    for (size_t i = length; i < length + 14; i++) {
        rest *= 10;
        text[i] = (char)('0' + (rest >> 16));
        rest &= 0xffff;
        last = text[i] != '0' ? i : last;
    }
    text[last + 1] = '\0';
}

/* The one option of 32 bits is a share, and is printed as it is written in options: as text. */
void stats_read_option(size_t row, struct stats_option *option) {
    option->type = opt_leaf(row);
    option->value = opt_read(row);
    if (option->type == VALUE_UINT32) {
        print_share(option->value.uint32, option->text, sizeof(option->text));
        option->type = VALUE_STRING;
        option->value.string = option->text;
    }
}

/* The kernel lists all modes and puts brackets around the current one. */
const char *stats_thp_mode(void) {
    char text[128];
    static const char *const modes[] = {"always", "madvise", "never"};
    if (os_read_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text)) >= 0) {
        const char *chosen = strchr(text, '[');
        for (size_t i = 0; chosen != NULL && i < sizeof(modes) / sizeof(modes[0]); i++) {
            size_t length = strlen(modes[i]);
            if (strncmp(chosen + 1, modes[i], length) == 0 && chosen[length + 1] == ']') {
                return modes[i];
            }
        }
    }
    return "not supported";
}

const char *stats_dss(unsigned arena) {
    char node[64];
    fmt_text(node, sizeof(node), "stats.arenas.%u", arena);
    const char *text = arena < SNAPSHOT_ALL ? stats_ctl(node, "dss", VALUE_STRING).string : NULL;
    return text != NULL ? text : "N/A";
}
