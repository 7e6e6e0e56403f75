/* SPDX-License-Identifier: MIT
 *
 * out_file.c - files that are complete or not there, under names that are free.
 *
 * A profile is written under a temporary name in its directory, created exclusively and for the
 * owner alone, and gets its name at the end, if that is still free: a link that somebody has put
 * there is neither followed nor replaced, a full disk leaves nothing behind, and a program that is
 * killed half-way leaves no file that looks complete.
 *
 * A name that the program gives may be that of a file it has made for the purpose, and perhaps has open.  It gets
 * its bytes in place, at once: they are collected in memory first.
 *
 * Threads     The prefix has a lock, held for the time of a copy; so have files that are written in place, for the
 *             time of writing, or two threads would mix their profiles.  Counters are atomic.
 */
#include "out/out_file.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fmt.h"
#include "base/lock.h"
#include "opt/opt.h"
#include "base/os.h"

static struct {
    struct lock lock;
    bool is_set;                  /* guarded by lock: there is a prefix other than the option's */
    _Atomic uint32_t sequence;    /* of all dumps */
    _Atomic uint32_t of_kind[26]; /* of those of one kind, by letter */
    _Atomic uint32_t logs;
    _Atomic uint32_t temporaries;
    struct lock in_place; /* one thread writes a file that was there */
} g = {.lock = LOCK_OF_RANK(RANK_DUMP), .in_place = LOCK_OF_RANK(RANK_IN_PLACE)};

/* Guarded by the lock.  Not part of g: data with initial values takes space in the file, too. */
SPARSE static char set_prefix[OUT_FILE_PREFIX_BYTES];

/* ---------------------------------------------------------------- creation */

/* A name in the directory of `path`, however long the last part of `path` is. */
static bool make_temporary(char *name, const char *path) {
    size_t directory = strlen(path);
    while (directory > 0 && path[directory - 1] != '/') {
        directory--;
    }
    if (directory > OUT_FILE_PREFIX_BYTES) {
        return false;
    }
    memcpy(name, path, directory);
    fmt_text(name + directory, OUT_FILE_NAME_BYTES - directory, ".tally-%u-%u.part",
             os_process_id(), atomic_fetch_add_explicit(&g.temporaries, 1, memory_order_relaxed));
    return true;
}

int out_file_begin(struct out_file *file, const char *path) {
    /* Better now than at the end. */
    return path[0] != '\0' && os_exists(path) ? -EEXIST : out_file_begin_anew(file, path);
}

int out_file_begin_anew(struct out_file *file, const char *path) {
    enum { TRIES = 100 }; /* Leftovers of a killed process of our pid are skipped. */
    if (path[0] == '\0') {
        return -ENOENT;
    }
    file->fd = -EEXIST;
    for (int i = 0; i < TRIES && file->fd == -EEXIST; i++) {
        if (!make_temporary(file->temporary, path)) {
            return -ENAMETOOLONG;
        }
        file->fd = os_create(file->temporary);
    }
    return file->fd < 0 ? file->fd : 0;
}

static int end(struct out_file *file, const char *path, int error,
               int (*name)(const char *from, const char *to)) {
    int closed = os_close(file->fd); /* Some file systems notice only here that there is no room. */
    error = error != 0 ? error : closed;
    if (error == 0) {
        error = name(file->temporary, path);
    }
    if (error != 0) {
        os_remove(file->temporary);
    }
    return error;
}

int out_file_end(struct out_file *file, const char *path, int error) {
    return end(file, path, error, os_rename);
}

int out_file_replace(struct out_file *file, const char *path, int error) {
    return end(file, path, error, os_replace);
}

int out_file_write(const char *path, int (*fill)(struct out *out, const void *what),
                   const void *what) {
    size_t bytes = align_up(sizeof(struct out_file), os_facts.page_bytes);
    struct out_file *file = os_map(bytes); /* A thread's stack may be small. */
    if (file == NULL) {
        return -ENOMEM;
    }
    int error = out_file_begin(file, path);
    if (error == 0) {
        error = out_run((struct out_sink){out_to_file, &file->fd, false}, fill, what);
        error = out_file_end(file, path, error);
    }
    os_unmap(file, bytes);
    return error;
}

/* ---------------------------------------------------------------- names that were given */

/* Whoever vanished in a fork has nothing left half done in this process. */
static int overwrite(int fd, const struct pile *pile) {
    (void)lock_acquire(&g.in_place);
    int error = os_check_room(fd, pile->length);
    if (error == 0) {
        error = os_truncate(fd, 0);
        error = error != 0 ? error : os_write_all(fd, pile->bytes, pile->length);
        if (error != 0) {
            (void)os_truncate(fd, 0);
        }
    }
    lock_release(&g.in_place);
    return error;
}

static int write_opened(int fd, bool is_file, int (*fill)(struct out *out, const void *what),
                        const void *what) {
    struct pile pile = {0};
    int error = out_run((struct out_sink){out_to_pile, &pile, false}, fill, what);
    if (error == 0) {
        error = is_file ? overwrite(fd, &pile) : os_write_all(fd, pile.bytes, pile.length);
    }
    pile_release(&pile);
    return error;
}

int out_file_write_given(const char *path, int (*fill)(struct out *out, const void *what),
                         const void *what) {
    bool is_file;
    int fd = os_open_given(path, &is_file);
    if (fd < 0) {
        return fd == -ENOENT ? out_file_write(path, fill, what) : fd;
    }
    int error = write_opened(fd, is_file, fill, what);
    int closed = os_close(fd);
    return error != 0 ? error : closed;
}

static int fill_nothing(struct out *out, const void *what) {
    (void)out;
    (void)what;
    return -ECANCELED;
}

int out_file_judge(const char *path) {
    bool is_file;
    struct os_identity found;
    int fd = os_open_given(path, &is_file);
    if (fd == -ENOENT) {
        int error = out_file_write(path, fill_nothing, NULL);
        return error == -ECANCELED ? OUT_TARGET_NEW : error;
    }
    int error = fd < 0 ? fd : os_identify(fd, &found);
    if (fd >= 0) {
        os_close(fd);
    }
    if (error != 0) {
        return error;
    }
    return !is_file ? OUT_TARGET_STREAM : found.bytes > 0 ? OUT_TARGET_FILLED : OUT_TARGET_EMPTY;
}

/* ---------------------------------------------------------------- prefix */

/* The holder may have vanished in a fork in the middle of a copy. */
static void enter(void) {
    if (lock_acquire(&g.lock) == LOCK_ABANDONED) {
        g.is_set = false;
    }
}

bool out_file_set_prefix(const char *prefix) {
    size_t length = strlen(prefix);
    if (length >= OUT_FILE_PREFIX_BYTES) {
        return false;
    }
    enter();
    memcpy(set_prefix, prefix, length + 1);
    g.is_set = true;
    lock_release(&g.lock);
    return true;
}

/* Returns the length. */
static size_t copy_prefix(char *to) {
    enter();
    const char *prefix = g.is_set ? set_prefix : opt.prof_prefix;
    size_t length = strlen(prefix);
    memcpy(to, prefix, length + 1);
    lock_release(&g.lock);
    return length;
}

/* ---------------------------------------------------------------- names */

/* The number of the pid namespace out of "pid:[4026531836]", or nothing. */
static size_t put_namespace(char *path, size_t capacity) {
    char text[64];
    int length = os_read_link("/proc/self/ns/pid", text, sizeof(text));
    size_t at = fmt_text(path, capacity, ".");
    for (int i = 0; i < length; i++) {
        if (text[i] >= '0' && text[i] <= '9' && at + 1 < capacity) {
            path[at++] = text[i];
        }
    }
    path[at] = '\0';
    return at;
}

/* 20260131T235959Z: days are counted from 1 March of year 0, so that a leap day ends its year; five
 * months have 153 days. */
size_t out_file_put_time(char *path, size_t capacity) {
    if (!opt.prof_time_in_name) {
        path[0] = '\0';
        return 0;
    }
    uint64_t seconds = os_wall_ns() / 1000000000;
    uint64_t days = seconds / 86400 + 719468;
    uint64_t era = days / 146097, of_era = days % 146097;
    uint64_t years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    uint64_t of_year = of_era - (365 * years + years / 4 - years / 100);
    uint64_t from_march = (5 * of_year + 2) / 153;
    unsigned day = (unsigned)(of_year - (153 * from_march + 2) / 5 + 1);
    unsigned month = (unsigned)(from_march < 10 ? from_march + 3 : from_march - 9);
    unsigned year = (unsigned)(era * 400 + years + (month <= 2));
    unsigned of_day = (unsigned)(seconds % 86400);
    return fmt_text(path, capacity, ".%04u%02u%02uT%02u%02u%02uZ", year, month, day, of_day / 3600,
                    of_day / 60 % 60, of_day % 60);
}

/* <prefix>[.<namespace>].<pid>; its length, 0 when the prefix is empty. */
static size_t put_process(char *path) {
    size_t length = copy_prefix(path);
    if (length == 0) {
        return 0;
    }
    if (opt.prof_pid_namespace) {
        length += put_namespace(path + length, OUT_FILE_NAME_BYTES - length);
    }
    return length + fmt_text(path + length, OUT_FILE_NAME_BYTES - length, ".%u", os_process_id());
}

enum { TAKEN_MOST = 100000 };

static uint32_t count(_Atomic uint32_t *counter) {
    return atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static const char *ending(void) {
    static const char *const endings[] = {[PROF_FORMAT_JEMALLOC] = ".heap",
                                          [PROF_FORMAT_PROTO] = ".pb.gz",
                                          [PROF_FORMAT_GPERFTOOLS] = ".hprof"};
    return endings[opt.prof_format];
}

bool out_file_name_dump(char *path, char kind) {
    size_t start = put_process(path);
    if (start == 0) {
        return false;
    }
    char number[16] = "";
    if (kind != 'f') {
        fmt_text(number, sizeof(number), "%u", count(&g.of_kind[kind - 'a']));
    }
    for (int i = 0; i < TAKEN_MOST; i++) {
        size_t length = start + fmt_text(path + start, OUT_FILE_NAME_BYTES - start, ".%u.%c%s",
                                         count(&g.sequence), kind, number);
        length += out_file_put_time(path + length, OUT_FILE_NAME_BYTES - length);
        fmt_text(path + length, OUT_FILE_NAME_BYTES - length, "%s", ending());
        if (!os_exists(path)) {
            break;
        }
    }
    return true;
}

bool out_file_name_log(char *path) {
    size_t start = put_process(path);
    for (int i = 0; start > 0 && i < TAKEN_MOST; i++) {
        fmt_text(path + start, OUT_FILE_NAME_BYTES - start, ".%u.json", count(&g.logs));
        if (!os_exists(path)) {
            break;
        }
    }
    return start > 0;
}
