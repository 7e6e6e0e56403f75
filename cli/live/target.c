/* SPDX-License-Identifier: MIT
 *
 * target.c - finds processes and reads their page of statistics.
 *
 * The page is a memfd among the descriptors of the process.  Nothing in it is trusted before its
 * link name, size, mark and process id are right: a child inherits its parent's page, and a program
 * may have any descriptor.  It is read by pread and not mapped, so nobody can shrink it under us.
 */
#define _GNU_SOURCE /* struct ucred */
#include "live/target.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LISTED_MOST = 20 };

const char *target_proc_path(long pid, const char *name) {
    static char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    return path;
}

/* The number after "KEY:" in the text of a status file. */
static long last_number(const char *text, const char *key) {
    size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) != 0 || line[length] != ':') {
            continue;
        }
        const char *end = line + strcspn(line, "\n");
        while (end > line && !isdigit((unsigned char)end[-1])) {
            end--;
        }
        while (end > line && isdigit((unsigned char)end[-1])) {
            end--;
        }
        return isdigit((unsigned char)*end) ? strtol(end, NULL, 10) : -1;
    }
    return -1;
}

long target_status_number(long pid, const char *key) {
    char text[PATH_BYTES];
    return read_small(target_proc_path(pid, "status"), text, sizeof text) > 0
               ? last_number(text, key)
               : -1;
}

/* A field of /proc/PID/stat, counted from 1 as in proc(5), after the name, which may hold anything;
 * "" when there is none. */
static const char *stat_field(long pid, int number, char text[PATH_BYTES]) {
    read_small(target_proc_path(pid, "stat"), text, PATH_BYTES);
    const char *word = strrchr(text, ')');
    for (int i = 2; word != NULL && i < number; i++) {
        word = strchr(word + 1, ' ');
    }
    return word != NULL ? word + 1 : "";
}

char target_state(long pid) {
    char text[PATH_BYTES], state = *stat_field(pid, 3, text);
    return state != '\0' ? state : '?';
}

uint64_t target_start_time(long pid) {
    char text[PATH_BYTES];
    return strtoull(stat_field(pid, 22, text), NULL, 10);
}

bool target_maps_library(long pid) {
    FILE *maps = fopen(target_proc_path(pid, "maps"), "re");
    char line[PATH_BYTES + 128];
    bool is_there = false;
    while (maps != NULL && !is_there && fgets(line, sizeof line, maps) != NULL) {
        is_there = strstr(line, "/libtally.so") != NULL;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return is_there;
}

/* The name of the program's file. */
static void read_file_name(struct target *target) {
    char path[PATH_BYTES];
    ssize_t length = readlink(target_proc_path(target->pid, "exe"), path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    char *deleted = strstr(path, " (deleted)");
    if (deleted != NULL) {
        *deleted = '\0';
    }
    const char *slash = strrchr(path, '/');
    snprintf(target->file, sizeof target->file, "%.*s", TARGET_NAME_BYTES - 1,
             slash != NULL ? slash + 1 : path);
}

/* The kernel keeps 15 characters. */
static void read_name(struct target *target) {
    char name[32];
    read_small(target_proc_path(target->pid, "comm"), name, sizeof name);
    name[strcspn(name, "\n")] = '\0';
    read_file_name(target);
    bool is_cut = strlen(name) == 15 && strncmp(name, target->file, 15) == 0;
    snprintf(target->name, sizeof target->name, "%s", is_cut ? target->file : name);
}

/* The page. */

static bool is_page(int fd, long own_pid) {
    struct stat status;
    struct stats_page page;
    return fstat(fd, &status) == 0 && status.st_size == STATS_PAGE_BYTES &&
           pread(fd, &page, sizeof page, 0) == (ssize_t)sizeof page &&
           page.magic == STATS_PAGE_MAGIC && page.bytes >= offsetof(struct stats_page, requested) &&
           page.bytes <= STATS_PAGE_RANGES_AT && page.pid == (uint32_t)own_pid;
}

static int open_page(const struct target *target) {
    static const char wanted[] = "/memfd:" STATS_PAGE_NAME;
    DIR *folder = opendir(target_proc_path(target->pid, "fd"));
    int fd = -1;
    for (struct dirent *entry; folder != NULL && fd < 0 && (entry = readdir(folder)) != NULL;) {
        char link[sizeof wanted + sizeof " (deleted)"];
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, link, sizeof link - 1);
        link[length > 0 ? length : 0] = '\0';
        if (strcmp(link, "/memfd:" STATS_PAGE_NAME " (deleted)") != 0) {
            continue;
        }
        fd = openat(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0 && !is_page(fd, target->own_pid)) {
            close(fd);
            fd = -1;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return fd;
}

/* The whole page as it lies there. */
union raw_page {
    struct stats_page words;
    char bytes[STATS_PAGE_BYTES];
};

/* The sequence before and after the words; they are whole when both are even and equal. */
static bool read_once(int fd, union raw_page *raw) {
    uint32_t before = 1, after = 0;
    off_t at = offsetof(struct stats_page, sequence);
    return pread(fd, &before, sizeof before, at) == (ssize_t)sizeof before &&
           pread(fd, raw, sizeof *raw, 0) == (ssize_t)sizeof *raw &&
           pread(fd, &after, sizeof after, at) == (ssize_t)sizeof after && before == after &&
           before % 2 == 0;
}

/* Words after the end of the library's struct do not count. */
static void copy_words(const union raw_page *raw, struct target_page *page) {
    size_t bytes = raw->words.bytes < sizeof page->words ? raw->words.bytes : sizeof page->words;
    memcpy(&page->words, raw, bytes);
    page->words.version[sizeof page->words.version - 1] = '\0';
    page->words.socket_path[sizeof page->words.socket_path - 1] = '\0';
    uint64_t ranges = page->words.ranges;
    page->range_count = ranges < STATS_PAGE_MOST_RANGES ? ranges : STATS_PAGE_MOST_RANGES;
    memcpy(page->ranges, raw->bytes + STATS_PAGE_RANGES_AT,
           page->range_count * sizeof page->ranges[0]);
}

bool target_read_page(const struct target *target, struct target_page *page) {
    enum { TRIES = 200 };
    const struct timespec moment = {0, 100000};
    union raw_page raw = {.bytes = ""};
    *page = (struct target_page){.is_torn = true};
    if (target->page_fd < 0) {
        return decline("process %ld has no page of statistics", target->pid);
    }
    for (int i = 0; i < TRIES && page->is_torn; i++) {
        page->is_torn = !read_once(target->page_fd, &raw);
        if (page->is_torn) {
            nanosleep(&moment, NULL);
        }
    }
    if (raw.words.magic != STATS_PAGE_MAGIC || raw.words.bytes > STATS_PAGE_RANGES_AT) {
        return decline("the page of statistics of process %ld is not readable", target->pid);
    }
    copy_words(&raw, page);
    return true;
}

/* Processes. */

bool target_is_alive(const struct target *target) {
    struct pollfd waiting = {.fd = target->pidfd, .events = POLLIN};
    if (target->pidfd < 0) {
        return access(target_proc_path(target->pid, "stat"), F_OK) == 0;
    }
    return poll(&waiting, 1, 0) == 0;
}

void target_close(struct target *target) {
    if (target->page_fd >= 0) {
        close(target->page_fd);
    }
    if (target->pidfd >= 0) {
        close(target->pidfd);
    }
    target->page_fd = target->pidfd = -1;
}

/* Everything there is to know; false where the process is not there. */
static bool look_at_process(long pid, struct target *target) {
    struct stat status;
    *target = (struct target){.pid = pid, .page_fd = -1};
    target->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if ((target->pidfd < 0 && errno == ESRCH) || stat(target_proc_path(pid, ""), &status) != 0) {
        target_close(target);
        return false;
    }
    target->uid = status.st_uid;
    target->own_pid = target_status_number(pid, "NSpid");
    read_name(target);
    target->page_fd = open_page(target);
    if (target_is_alive(target)) {
        return true;
    }
    target_close(target);
    return false;
}

static int compare_ids(const void *a, const void *b) {
    const struct target *one = a, *other = b;
    return (one->pid > other->pid) - (one->pid < other->pid);
}

static bool is_called(const struct target *target, const char *name) {
    return strcmp(target->name, name) == 0 || strcmp(target->file, name) == 0;
}

/* Processes of a name, or those with the library. */
static size_t list_processes(struct target **list, const char *name, bool with_pageless) {
    size_t count = 0;
    DIR *folder = opendir("/proc");
    *list = NULL;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char *end = NULL;
        long pid = strtol(entry->d_name, &end, 10);
        struct target target;
        if (pid <= 0 || *end != '\0' || !look_at_process(pid, &target)) {
            continue;
        }
        bool is_wanted = name != NULL
                             ? is_called(&target, name)
                             : target.page_fd >= 0 || (with_pageless && target_maps_library(pid));
        if (!is_wanted) {
            target_close(&target);
            continue;
        }
        *list = must_grow(*list, (count + 1) * sizeof **list);
        (*list)[count++] = target;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    if (count > 1) {
        qsort(*list, count, sizeof **list, compare_ids);
    }
    return count;
}

size_t target_list(struct target **list, bool with_pageless) {
    return list_processes(list, NULL, with_pageless);
}

static enum exit_code explain_missing_page(const struct target *target) {
    if (access(target_proc_path(target->pid, "fd"), R_OK) != 0) {
        return complain(EXIT_REFUSED,
                        "process %ld (%s) belongs to another user or is protected; ask as that "
                        "user or as root",
                        target->pid, safe_text(target->name));
    }
    if (target_maps_library(target->pid)) {
        return complain(EXIT_NO_TARGET,
                        "process %ld (%s) has the library but no page of statistics; tally doctor "
                        "%ld says why",
                        target->pid, safe_text(target->name), target->pid);
    }
    return complain(EXIT_NO_TARGET,
                    "process %ld (%s) runs without the library; start it with tally run",
                    target->pid, safe_text(target->name));
}

static enum exit_code open_by_pid(long pid, bool needs_page, struct target *target) {
    if (!look_at_process(pid, target)) {
        return complain(EXIT_NO_TARGET, "there is no process %ld", pid);
    }
    if (needs_page && target->page_fd < 0) {
        enum exit_code code = explain_missing_page(target);
        target_close(target);
        return code;
    }
    return EXIT_DONE;
}

static enum exit_code complain_of_many(const char *name, const struct target *list, size_t count) {
    complain(EXIT_NO_TARGET, "%zu processes are called %s; name one by its id:", count,
             safe_text(name));
    for (size_t i = 0; i < count && i < LISTED_MOST; i++) {
        fprintf(stderr, "  %ld  %s\n", list[i].pid, safe_text(list[i].name));
    }
    return EXIT_NO_TARGET;
}

static void keep_only(struct target *list, size_t count, const struct target *kept) {
    for (size_t i = 0; i < count; i++) {
        if (&list[i] != kept) {
            target_close(&list[i]);
        }
    }
    free(list);
}

static enum exit_code open_by_name(const char *name, bool needs_page, struct target *target) {
    struct target *list = NULL, *with_page = NULL;
    size_t count = list_processes(&list, name, false), pages = 0;
    for (size_t i = 0; i < count; i++) {
        if (list[i].page_fd >= 0) {
            with_page = &list[i];
            pages++;
        }
    }
    struct target *chosen = pages == 1 ? with_page : count == 1 && !needs_page ? &list[0] : NULL;
    enum exit_code code = EXIT_DONE;
    if (chosen != NULL) {
        *target = *chosen;
    } else if (count == 0) {
        code = complain(EXIT_NO_TARGET,
                        "no process is called %s; tally ps lists those with the "
                        "library",
                        safe_text(name));
    } else if (count == 1) {
        code = explain_missing_page(&list[0]);
    } else {
        code = complain_of_many(name, list, count);
    }
    keep_only(list, count, chosen);
    return code;
}

/* The process that listens at a socket we can see. */
static enum exit_code open_by_socket(const char *path, bool needs_page, struct target *target) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer = {.pid = 0};
    socklen_t length = sizeof peer;
    if (strlen(path) >= sizeof address.sun_path) {
        return complain(EXIT_USAGE, "the path %s is too long for a socket", safe_text(path));
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is_connected = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    int error = errno;
    if (is_connected) {
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (!is_connected) {
        return complain(error == EACCES ? EXIT_REFUSED : EXIT_NO_TARGET, "nobody answers at %s: %s",
                        safe_text(path), strerror(error));
    }
    enum exit_code code = open_by_pid(peer.pid, needs_page, target);
    target->socket = path;
    return code;
}

enum exit_code target_open(const char *word, bool needs_page, struct target *target) {
    size_t length = strlen(word);
    if (length > 0 && word[strspn(word, "0123456789")] == '\0') {
        errno = 0;
        long pid = strtol(word, NULL, 10);
        if (errno != 0 || pid <= 0 || pid > INT32_MAX) {
            return complain(EXIT_NO_TARGET, "there is no process %s", safe_text(word));
        }
        return open_by_pid(pid, needs_page, target);
    }
    if (ends_with(word, ".sock")) {
        return open_by_socket(word, needs_page, target);
    }
    return open_by_name(word, needs_page, target);
}

enum exit_code target_open_to_ask(const char *word, struct target *target) {
    return target_open(word, !ends_with(word, ".sock"), target);
}
