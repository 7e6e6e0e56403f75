/* SPDX-License-Identifier: MIT
 *
 * bridge.c - sorts the mappings of a process into heap and other, and makes the lines add up.
 *
 * The page of statistics lists the address ranges of the heap.  The kernel may have joined such a
 * range with a neighbour of the program's into one mapping; then /proc/PID/pagemap says which pages
 * of it are there.
 */
#include "live/bridge.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { KIND_FILE, KIND_STACK, KIND_SHARED, KIND_ANONYMOUS };

/* One mapping of smaps. */
struct mapping {
    uint64_t start, end;
    char rights[5];
    char name[BRIDGE_NAME_BYTES];
    enum kind kind;
    uint64_t rss, huge; /* the second is part of the first */
    bool has_no_name;   /* of no file, though perhaps the zeroed end of one */
};

struct look {
    struct bridge *bridge;
    const struct target_page *page;
    int pagemap; /* -1: not readable */
    uint64_t page_bytes;
    struct mapping now, last;
    uint64_t huge; /* of the heap's memory, what is in huge pages */
};

/* Groups. */

static struct bridge_group *find_group(struct bridge *bridge, const char *name) {
    for (size_t i = 0; i < bridge->group_count; i++) {
        if (strcmp(bridge->groups[i].name, name) == 0) {
            return &bridge->groups[i];
        }
    }
    if (bridge->group_count == BRIDGE_GROUPS) {
        return &bridge->groups[BRIDGE_GROUPS - 1];
    }
    struct bridge_group *group = &bridge->groups[bridge->group_count++];
    *group = (struct bridge_group){.rss = 0};
    snprintf(group->name, sizeof group->name, "%s", name);
    return group;
}

static int compare_groups(const void *a, const void *b) {
    const struct bridge_group *one = a, *other = b;
    return (one->rss < other->rss) - (one->rss > other->rss);
}

static void add_other(struct bridge *bridge, const struct mapping *mapping, uint64_t rss) {
    if (rss == 0) {
        return;
    }
    bridge->other += rss;
    find_group(bridge, mapping->name)->rss += rss;
    uint64_t *const parts[] = {
        [KIND_FILE] = &bridge->files,
        [KIND_STACK] = &bridge->stacks,
        [KIND_SHARED] = &bridge->shared,
        [KIND_ANONYMOUS] = &bridge->anonymous,
    };
    *parts[mapping->kind] += rss;
}

/* Heap or not. */

static uint64_t least_of(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t most_of(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Bytes of [start, end) that the kernel has memory for. */
static uint64_t count_present(const struct look *look, uint64_t start, uint64_t end) {
    uint64_t entries[4096], present = 0;
    const uint64_t is_present = UINT64_C(1) << 63;
    uint64_t page = start / look->page_bytes,
             last = (end + look->page_bytes - 1) / look->page_bytes;
    while (page < last) {
        size_t wanted = (size_t)least_of(last - page, sizeof entries / sizeof entries[0]);
        ssize_t got = pread(look->pagemap, entries, wanted * sizeof entries[0],
                            (off_t)(page * sizeof entries[0]));
        if (got <= 0) {
            break;
        }
        for (size_t i = 0; i < (size_t)got / sizeof entries[0]; i++) {
            present += (entries[i] & is_present) != 0 ? look->page_bytes : 0;
        }
        page += (size_t)got / sizeof entries[0];
    }
    return present;
}

/* The part of a mapping's memory that belongs to the heap. */
static uint64_t heap_part(const struct look *look, const struct mapping *mapping) {
    uint64_t covered = 0, present = 0;
    for (size_t i = 0; i < look->page->range_count; i++) {
        uint64_t start = most_of(look->page->ranges[i].start, mapping->start);
        uint64_t end = least_of(look->page->ranges[i].end, mapping->end);
        if (start < end) {
            covered += end - start;
            present += look->pagemap >= 0 && end - start < mapping->end - mapping->start
                           ? count_present(look, start, end)
                           : mapping->rss;
        }
    }
    return covered >= mapping->end - mapping->start ? mapping->rss
                                                    : least_of(present, mapping->rss);
}

static void finish_mapping(struct look *look) {
    struct mapping *mapping = &look->now;
    if (mapping->end == 0) {
        return;
    }
    look->bridge->rss += mapping->rss;
    bool tells_ranges = look->page->range_count > 0;
    /* The heap may begin where a file or a guard page ends. */
    bool may_be_heap = mapping->kind == KIND_ANONYMOUS || mapping->has_no_name;
    uint64_t heap = !may_be_heap                      ? 0
                    : tells_ranges                    ? heap_part(look, mapping)
                    : mapping->kind == KIND_ANONYMOUS ? mapping->rss
                                                      : 0;
    look->bridge->heap += heap;
    look->huge += least_of(heap, mapping->huge);
    add_other(look->bridge, mapping, mapping->rss - heap);
    look->last = *mapping;
}

/* Mappings. */

/* A stack of a thread lies directly above its guard page. */
static bool is_above_guard(const struct look *look) {
    enum { GUARD_MOST_BYTES = 1 << 20 };
    return look->last.end == look->now.start && begins_with(look->last.rights, "---") &&
           look->last.end - look->last.start <= GUARD_MOST_BYTES &&
           look->last.kind == KIND_ANONYMOUS;
}

/* Zeroed variables, which have no bytes in the file, lie directly above the file's. */
static bool is_end_of_file(const struct look *look) {
    return look->last.end == look->now.start && look->last.kind == KIND_FILE &&
           look->last.name[0] != '[' && begins_with(look->last.rights, "rw");
}

static void classify(struct look *look, const char *path) {
    struct mapping *mapping = &look->now;
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    bool is_memory = begins_with(path, "/memfd:") || begins_with(path, "/dev/shm/") ||
                     begins_with(path, "/SYSV") || begins_with(path, "/dev/zero");
    mapping->kind = KIND_ANONYMOUS;
    mapping->has_no_name = path[0] == '\0';
    if (is_memory) {
        mapping->kind = KIND_SHARED;
        name = "shared memory";
    } else if (path[0] == '/') {
        mapping->kind = KIND_FILE;
    } else if (begins_with(path, "[stack")) {
        mapping->kind = KIND_STACK;
        name = "stacks";
    } else if (path[0] == '[' && !begins_with(path, "[heap]") && !begins_with(path, "[anon")) {
        mapping->kind = KIND_FILE; /* [vdso] and its like */
    } else if (path[0] == '\0' && is_end_of_file(look)) {
        mapping->kind = KIND_FILE;
        name = look->last.name;
    } else if (path[0] == '\0' && is_above_guard(look)) {
        mapping->kind = KIND_STACK;
        name = "stacks";
    } else if (path[0] == '\0') {
        name = "[anon]";
    }
    snprintf(mapping->name, sizeof mapping->name, "%s", name);
}

static void read_line(struct look *look, char *line) {
    uint64_t start = 0, end = 0, rss = 0;
    char rights[5] = "";
    int path = 0;
    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %n", &start, &end, rights, &path) ==
            3 &&
        path > 0) {
        finish_mapping(look);
        look->now = (struct mapping){.start = start, .end = end};
        memcpy(look->now.rights, rights, sizeof rights);
        classify(look, line + path);
    } else if (sscanf(line, "Rss: %" SCNu64 " kB", &rss) == 1) {
        look->now.rss = rss * 1024;
    } else if (sscanf(line, "AnonHugePages: %" SCNu64 " kB", &rss) == 1) {
        look->now.huge = rss * 1024;
    }
}

static bool read_mappings(struct look *look, long pid) {
    FILE *smaps = fopen(target_proc_path(pid, "smaps"), "re");
    char *line = NULL;
    size_t bytes = 0;
    if (smaps == NULL) {
        return false;
    }
    while (getline(&line, &bytes, smaps) > 0) {
        read_line(look, line);
    }
    finish_mapping(look);
    free(line);
    fclose(smaps);
    return true;
}

/* Lines of the heap. */

/*
 * A heap in very many pieces has ranges that the page has no room for, and their memory was counted
 * as that of other mappings.  The library counts it all the same: what it reports beyond what was
 * found is assumed to lie there.
 */
static void assume_untold(struct bridge *bridge, uint64_t told, uint64_t untold) {
    uint64_t missing = told > bridge->heap ? told - bridge->heap : 0;
    uint64_t moved = least_of(least_of(missing, untold), bridge->anonymous);
    for (size_t i = 0; i < bridge->group_count; i++) {
        if (strcmp(bridge->groups[i].name, "[anon]") == 0) {
            moved = least_of(moved, bridge->groups[i].rss);
            bridge->groups[i].rss -= moved;
            bridge->anonymous -= moved;
            bridge->other -= moved;
            bridge->heap += moved;
            bridge->assumed = moved;
        }
    }
}

/* Empty pages that are resident only because other parts of their huge page are in use: at most the
 * pages never used, and at most what huge pages hold. */
static uint64_t count_come_along(const struct look *look, uint64_t excess) {
    const struct stats_page *words = &look->page->words;
    uint64_t used =
        words->live + words->slab_free + words->large_rest + words->cached + words->dirty;
    uint64_t never_used = words->mapped > used ? words->mapped - used : 0;
    return least_of(excess, least_of(never_used, look->huge));
}

/* Samples of a part are no measure of the rest: what was allocated before them may be rounded otherwise. */
static bool has_every_block_recorded(const struct stats_page *words) {
    return words->profile_rate == 1 &&
           words->profile_samples >= words->live_objects - words->live_objects / 100;
}

static void add_up(const struct look *look) {
    struct bridge *bridge = look->bridge;
    const struct stats_page *words = &look->page->words;
    bridge->knows_rounding = has_every_block_recorded(words);
    bridge->requested =
        bridge->knows_rounding ? least_of(words->requested, words->live) : words->live;
    bridge->rounding = words->live - bridge->requested;
    bridge->inside = words->slab_free + words->large_rest;
    bridge->cached = words->cached;
    bridge->kept = words->dirty;
    bridge->own = words->metadata;
    uint64_t told = words->live + bridge->inside + bridge->cached + bridge->kept + bridge->own;
    assume_untold(bridge, told, words->untold);
    if (told >= bridge->heap) {
        bridge->untouched = told - bridge->heap;
    } else {
        uint64_t along = count_come_along(look, bridge->heap - told);
        bridge->kept += along;
        bridge->unexplained = bridge->heap - told - along;
        bridge->heap = told + along;
    }
}

bool bridge_build(const struct target *target, const struct target_page *page,
                  struct bridge *bridge) {
    *bridge = (struct bridge){.rss = 0};
    struct look look = {.bridge = bridge, .page = page};
    look.page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    look.pagemap = open(target_proc_path(target->pid, "pagemap"), O_RDONLY | O_CLOEXEC);
    bool is_read = read_mappings(&look, target->pid);
    int error = errno;
    if (look.pagemap >= 0) {
        close(look.pagemap);
    }
    if (!is_read || bridge->rss == 0) {
        return decline("the mappings of process %ld cannot be read: %s", target->pid,
                       is_read ? "it has ended" : strerror(error));
    }
    add_up(&look);
    qsort(bridge->groups, bridge->group_count, sizeof bridge->groups[0], compare_groups);
    return true;
}
