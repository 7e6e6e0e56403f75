/* SPDX-License-Identifier: MIT
 *
 * recording.c - the files that the library wrote during a run: the program's own, and those of others.
 *
 * A process writes STEM.PID.tally.part and gives it its name when it ends well; what a killed one
 * leaves is renamed here.  Files of earlier runs may lie under the same names and stay as they are.
 */
#define _GNU_SOURCE /* renameat2 */
#include "run/recording.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "read/read_worker.h"

enum {
    IMAGES_MOST = 1000, /* programs one process becomes by exec, each with a file */
    NS_PER_SECOND = 1000000000,
};

/* Where a file is: under its name, or under the one it has until its process ends well. */
static bool find_file(const char *path, char found[RUN_PATH_BYTES + 8]) {
    snprintf(found, RUN_PATH_BYTES + 8, "%s", path);
    if (access(found, F_OK) != 0) {
        snprintf(found, RUN_PATH_BYTES + 8, "%s.part", path);
    }
    return access(found, F_OK) == 0;
}

/* Gives its name to a file that a killed process left. */
static void settle_file(const char *path) {
    char part[RUN_PATH_BYTES + 8];
    if (find_file(path, part) && strcmp(part, path) != 0 &&
        renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE) != 0 && errno == EINVAL &&
        link(part, path) == 0) {
        unlink(part);
    }
}

/* Files of earlier runs may lie under the same names.  For one that was cut before it names its
 * process, only the time counts. */
static bool is_of_this_run(const struct read_run *run, pid_t pid, uint64_t since_ns) {
    return run->start_wall_ns >= since_ns && (run->pid == (uint64_t)pid || run->pid == 0);
}

static bool was_changed(const char *path, uint64_t since_ns) {
    struct stat file;
    return stat(path, &file) == 0 && (uint64_t)file.st_mtime >= since_ns / NS_PER_SECOND;
}

bool recording_find(const struct run_plan *plan, pid_t pid, uint64_t since_ns,
                    struct recording *found, char why[READ_WHY_BYTES]) {
    *found = (struct recording){0};
    for (unsigned i = 1; i <= IMAGES_MOST; i++) {
        struct recording next = {0};
        char file[RUN_PATH_BYTES + 8];
        run_plan_name(plan, pid, i, next.path);
        if (!find_file(next.path, file)) {
            break;
        }
        char damage[READ_WHY_BYTES] = "";
        next.run = read_confined(file, NULL, damage);
        if (next.run == NULL && found->run == NULL && was_changed(file, since_ns)) {
            snprintf(why, READ_WHY_BYTES, "%s", damage);
            *found = next;
        }
        if (next.run == NULL || !is_of_this_run(next.run, pid, since_ns)) {
            read_run_free(next.run);
            continue;
        }
        settle_file(next.path);
        if (found->run != NULL && found->run->moment_count == 0) {
            unlink(found->path);
        }
        read_run_free(found->run);
        *found = next;
    }
    return found->path[0] != '\0';
}

/* ---------------------------------------------------------------- those of others */

/* The process of STEM.PID.tally or STEM.PID.N.tally, perhaps with ".part"; 0: it is none of these. */
static pid_t process_of(const char *name, const char *stem, bool *is_part) {
    size_t length = strlen(stem);
    char *end = NULL;
    if (strncmp(name, stem, length) != 0 || name[length] != '.') {
        return 0;
    }
    long pid = strtol(name + length + 1, &end, 10);
    const char *ending = strstr(end, ".tally");
    *is_part = ending != NULL && strcmp(ending, ".tally.part") == 0;
    bool is_one = *is_part || (ending != NULL && strcmp(ending, ".tally") == 0);
    return is_one && *end == '.' && pid > 0 ? (pid_t)pid : 0;
}

/* With `settles`, names the files of dead processes; otherwise counts the named ones. */
static void visit_children(const struct run_plan *plan, pid_t own,
                           struct recording_children *children, bool settles) {
    char folder[RUN_PATH_BYTES], path[2 * RUN_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", plan->stem);
    char *name = strrchr(folder, '/') + 1; /* A stem is a whole path. */
    char stem[RUN_PATH_BYTES];
    strcpy(stem, name);
    *name = '\0';
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        struct stat file;
        bool is_part;
        pid_t pid = process_of(entry->d_name, stem, &is_part);
        if (pid == 0 || pid == own || is_part != settles) {
            continue;
        }
        int length = snprintf(path, sizeof path, "%s%s", folder, entry->d_name);
        if (is_part && kill(pid, 0) != 0 && errno == ESRCH) {
            path[length - (int)strlen(".part")] = '\0';
            settle_file(path);
        } else if (!is_part) {
            children->count += stat(path, &file) == 0 && file.st_mtime >= children->since;
        }
    }
    if (list != NULL) {
        closedir(list);
    }
}

void recording_settle_children(const struct run_plan *plan, pid_t own,
                               struct recording_children *children) {
    snprintf(children->pattern, sizeof children->pattern, "%.4000s.*.tally", plan->stem);
    visit_children(plan, own, children, true);
    visit_children(plan, own, children, false);
}
