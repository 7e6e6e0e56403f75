/* SPDX-License-Identifier: MIT
 *
 * pressure.c - how near the process is to the memory it may use.
 *
 *      cgroup version 2   /proc/self/cgroup says 0::/a/b   memory.current   memory.max
 *      version 1          4:memory:/a/b                    memory.usage_in_bytes   .limit_in_bytes
 *
 * Every group between the process and the root may have a limit.  In a container the path may be
 * the host's, of which only the last part, or nothing, exists.  Files that do not open are skipped,
 * and the walk ends at the root of what is mounted, which is the container's own group.
 */
#include "control/pressure.h"

#include <string.h>

#include "base/fmt.h"
#include "base/os.h"

enum { PATH_BYTES = 512, NAME_BYTES = 64, TEXT_BYTES = 4096, NUMBER_BYTES = 32, MOST_LEVELS = 32 };

/* The files of one version. */
struct version {
    const char *root;
    const char *used;
    const char *limit;
    const char *cache; /* line of memory.stat with what the kernel can drop */
};
static const struct version version2 = {"/sys/fs/cgroup", "memory.current", "memory.max",
                                        "inactive_file "};
static const struct version version1 = {"/sys/fs/cgroup/memory", "memory.usage_in_bytes",
                                        "memory.limit_in_bytes", "total_inactive_file "};

/* The number at the beginning of a text; false for a word such as "max". */
static bool parse(const char *text, uint64_t *number) {
    size_t length = strspn(text, "0123456789");
    return length > 0 && fmt_parse_number(text, length, number);
}

/* The number that follows a word and blanks at the beginning of a line. */
static bool parse_after(const char *text, const char *word, uint64_t *number) {
    size_t length = strlen(word);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, length) == 0) {
            line += length;
            return parse(line + strspn(line, " \t"), number);
        }
    }
    return false;
}

static bool is_reached(uint64_t used, uint64_t limit, uint64_t share) {
    return (double)used * PRESSURE_ONE >= (double)limit * (double)share;
}

/* ---------------------------------------------------------------- the machine */

/* The second number of the file is the number of resident pages. */
size_t pressure_resident_bytes(void) {
    char text[128];
    uint64_t pages;
    if (os_read_file("/proc/self/statm", text, sizeof(text)) <= 0) {
        return 0;
    }
    const char *second = strchr(text, ' ');
    return second != NULL && parse(second + 1, &pages) ? pages * os_facts.page_bytes : 0;
}

static bool machine_is_short(uint64_t share) {
    char text[TEXT_BYTES];
    uint64_t total_kib;
    size_t resident = pressure_resident_bytes();
    return resident != 0 && os_read_file("/proc/meminfo", text, sizeof(text)) > 0 &&
           parse_after(text, "MemTotal:", &total_kib) &&
           is_reached(resident, total_kib << 10, share);
}

/* ---------------------------------------------------------------- cgroups */

static bool read_number(const char *folder, const char *name, uint64_t *number) {
    char path[PATH_BYTES + NAME_BYTES];
    char text[NUMBER_BYTES];
    fmt_text(path, sizeof(path), "%s/%s", folder, name);
    return os_read_file(path, text, sizeof(text)) > 0 && parse(text, number);
}

static uint64_t droppable(const char *folder, const struct version *version) {
    char path[PATH_BYTES + NAME_BYTES];
    char text[TEXT_BYTES];
    uint64_t bytes = 0;
    fmt_text(path, sizeof(path), "%s/memory.stat", folder);
    return os_read_file(path, text, sizeof(text)) > 0 && parse_after(text, version->cache, &bytes)
               ? bytes
               : 0;
}

static bool group_is_short(const char *folder, const struct version *version, uint64_t share) {
    uint64_t limit;
    uint64_t used;
    if (!read_number(folder, version->limit, &limit) ||
        !read_number(folder, version->used, &used) || !is_reached(used, limit, share)) {
        return false;
    }
    /* The most expensive file is read only where it can change the answer. */
    uint64_t cache = droppable(folder, version);
    return is_reached(used > cache ? used - cache : 0, limit, share);
}

/* The group of this path and all above it. */
static bool groups_are_short(const char *group, const struct version *version, uint64_t share) {
    char folder[PATH_BYTES];
    size_t root = strlen(version->root);
    size_t length = strcspn(group, "\n");
    if (root + length >= sizeof(folder)) {
        return false;
    }
    memcpy(folder, version->root, root);
    memcpy(folder + root, group, length);
    length += root;
    for (unsigned i = 0; i < MOST_LEVELS; i++) {
        while (length > root && folder[length - 1] == '/') {
            length--;
        }
        folder[length] = '\0';
        if (group_is_short(folder, version, share)) {
            return true;
        }
        if (length == root) {
            break;
        }
        while (length > root && folder[length - 1] != '/') {
            length--;
        }
    }
    return false;
}

/* A line of /proc/self/cgroup is number:controllers:path. */
static bool line_is_short(const char *line, uint64_t share) {
    if (strncmp(line, "0::", 3) == 0) {
        return groups_are_short(line + 3, &version2, share);
    }
    const char *names = strchr(line, ':');
    const char *path = names != NULL ? strchr(names + 1, ':') : NULL;
    const char *memory = names != NULL ? strstr(names, "memory:") : NULL;
    return path != NULL && memory != NULL && memory < path &&
           groups_are_short(path + 1, &version1, share);
}

static bool cgroup_is_short(uint64_t share) {
    char text[TEXT_BYTES];
    if (os_read_file("/proc/self/cgroup", text, sizeof(text)) <= 0) {
        return false;
    }
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (line_is_short(line, share)) {
            return true;
        }
    }
    return false;
}

bool pressure_is_above(uint64_t share) {
    return machine_is_short(share) || cgroup_is_short(share);
}
