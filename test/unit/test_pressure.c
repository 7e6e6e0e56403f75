/* SPDX-License-Identifier: MIT
 *
 * test_pressure.c - when memory is said to be short: the files of the kernel are the test's own.
 */
#include "control/pressure.h"

#include <errno.h>

#include "base/os.h"
#include "unit.h"

enum { HALF = PRESSURE_ONE / 2 };

struct file {
    const char *path;
    const char *text;
};
static const struct file *files; /* up to one without a path */
static unsigned opened;

int __wrap_os_read_file(const char *path, char *text, size_t capacity);
int __wrap_os_read_file(const char *path, char *text, size_t capacity) {
    opened++;
    for (const struct file *file = files; file->path != NULL; file++) {
        if (strcmp(file->path, path) == 0) {
            size_t length = strlen(file->text) < capacity ? strlen(file->text) : capacity - 1;
            memcpy(text, file->text, length);
            text[length] = '\0';
            return (int)length;
        }
    }
    text[0] = '\0';
    return -ENOENT;
}

static bool is_short(const struct file *these, uint64_t share) {
    os_init();
    os_facts.page_bytes = 4096;
    files = these;
    return pressure_is_above(share);
}

TEST(without_files_nothing_is_short) {
    check(!is_short((struct file[]){{NULL, NULL}}, 1));
}

TEST(resident_memory_is_compared_with_the_machine) {
    static const struct file machine[] = {
        {"/proc/meminfo", "MemFree:  5 kB\nMemTotal:       4096 kB\n"},
        {"/proc/self/statm", "99999 512 7 1 0 5 0\n"},
        {NULL, NULL}};
    check(is_short(machine, HALF));
    check(!is_short(machine, HALF + 1));
}

TEST(the_cgroup_of_the_process_counts) {
    static const struct file group[] = {{"/proc/self/cgroup", "0::/a/b\n"},
                                        {"/sys/fs/cgroup/a/b/memory.max", "1000\n"},
                                        {"/sys/fs/cgroup/a/b/memory.current", "500\n"},
                                        {NULL, NULL}};
    check(is_short(group, HALF));
    check(!is_short(group, HALF + 1000));
}

TEST(a_cgroup_above_it_counts_too) {
    static const struct file group[] = {{"/proc/self/cgroup", "0::/a/b\n"},
                                        {"/sys/fs/cgroup/a/b/memory.max", "max\n"},
                                        {"/sys/fs/cgroup/a/b/memory.current", "500\n"},
                                        {"/sys/fs/cgroup/a/memory.max", "600\n"},
                                        {"/sys/fs/cgroup/a/memory.current", "500\n"},
                                        {NULL, NULL}};
    check(is_short(group, HALF));
}

TEST(a_container_sees_its_group_as_the_root) {
    static const struct file group[] = {{"/proc/self/cgroup", "0::/../../system.slice/x\n"},
                                        {"/sys/fs/cgroup/memory.max", "1000\n"},
                                        {"/sys/fs/cgroup/memory.current", "900\n"},
                                        {NULL, NULL}};
    check(is_short(group, HALF));
}

TEST(files_that_can_be_dropped_do_not_count) {
    static const struct file group[] = {
        {"/proc/self/cgroup", "0::/\n"},
        {"/sys/fs/cgroup/memory.max", "1000\n"},
        {"/sys/fs/cgroup/memory.current", "900\n"},
        {"/sys/fs/cgroup/memory.stat", "anon 400\nactive_file 5\ninactive_file 500\n"},
        {NULL, NULL}};
    check(!is_short(group, HALF));
    check(is_short(group, HALF / 2));
}

TEST(version_1_has_other_files) {
    static const struct file group[] = {
        {"/proc/self/cgroup", "5:cpu:/\n4:hugetlb,memory:/a\n"},
        {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n"},
        {"/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900\n"},
        {"/sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 300\n"},
        {NULL, NULL}};
    check(is_short(group, HALF));
    check(!is_short(group, PRESSURE_ONE * 7 / 10));
}

TEST(text_that_makes_no_sense_is_passed_over) {
    static char deep[4000];
    memset(deep, '/', sizeof deep - 1);
    memcpy(deep, "0::", 3);
    const struct file files_of_nonsense[] = {{"/proc/self/cgroup", deep},
                                             {"/proc/meminfo", "MemTotal: many kB"},
                                             {"/proc/self/statm", "1"},
                                             {NULL, NULL}};
    check(!is_short(files_of_nonsense, 1));
    const struct file lines[] = {
        {"/proc/self/cgroup", "\n\n:\n::\nmemory\n1:name=memory:\n0:memory"}, {NULL, NULL}};
    check(!is_short(lines, 1));
    check(opened > 3);
}
