/* SPDX-License-Identifier: MIT
 *
 * read.c - files of profiles: bringing them into memory, recognising them, and the runs they hold.
 *
 * Read next   read_tally.c, read_proto.c and the others, one for each format.
 */
#include "read/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/cli.h"
#include "read/read_text.h"
#include "read/read_worker.h"

/* ---------------------------------------------------------------- unpacking */

/* An array of bytes that grows up to a limit. */
struct pool {
    uint8_t *bytes;
    size_t length, room, most;
};

/* False: it would be more than the limit. */
static bool pool_make_room(struct pool *pool, size_t guess) {
    if (pool->length < pool->room) {
        return true;
    }
    if (pool->room > pool->most) {
        return false;
    }
    pool->room = pool->room > 0 ? 2 * pool->room : guess;
    pool->room = pool->room > pool->most ? pool->most + 1 : pool->room; /* one more, to notice */
    pool->bytes = must_grow(pool->bytes, pool->room);
    return true;
}

/* One stream; Z_STREAM_END when it is whole. */
static int inflate_stream(z_stream *stream, struct pool *pool) {
    for (;;) {
        if (!pool_make_room(pool, 1 << 16)) {
            return Z_MEM_ERROR;
        }
        size_t room = pool->room - pool->length;
        stream->next_out = pool->bytes + pool->length;
        stream->avail_out = (uInt)(room < READ_MOST_BYTES ? room : READ_MOST_BYTES);
        size_t before = stream->avail_out;
        int result = inflate(stream, Z_NO_FLUSH);
        pool->length += before - stream->avail_out;
        if (result != Z_OK) {
            return result;
        }
    }
}

/* All members of a gzip file, or the one stream of zlib; nothing may follow. */
static bool inflate_all(z_stream *stream, enum read_stream kind, struct pool *pool,
                        char why[READ_WHY_BYTES]) {
    int result = inflate_stream(stream, pool);
    while (result == Z_STREAM_END && stream->avail_in > 0 && kind == READ_GZIP) {
        inflateReset(stream);
        result = inflate_stream(stream, pool);
    }
    if (pool->length > pool->most || result == Z_MEM_ERROR) {
        return read_damage(why, "unpacked it has more than %zu bytes", pool->most);
    }
    if (result != Z_STREAM_END || stream->avail_in > 0) {
        return read_damage(why, result == Z_BUF_ERROR ? "its compressed data were cut"
                                                      : "its compressed data are damaged");
    }
    return true;
}

uint8_t *read_inflate(enum read_stream kind, const uint8_t *bytes, size_t length, size_t most,
                      size_t *unpacked, char why[READ_WHY_BYTES]) {
    enum { WINDOW_BITS = 15, WITH_GZIP_HEADER = 16, RATIO = 100, SMALL = 1 << 20 };
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)length};
    size_t believed = length < SMALL / RATIO ? SMALL : length * RATIO;
    struct pool pool = {.most = most < believed ? most : believed};
    if (length > UINT32_MAX ||
        inflateInit2(&stream, kind == READ_GZIP ? WINDOW_BITS + WITH_GZIP_HEADER : WINDOW_BITS) !=
            Z_OK) {
        read_damage(why, "it cannot be unpacked");
        return NULL;
    }
    bool is_good = inflate_all(&stream, kind, &pool, why);
    inflateEnd(&stream);
    if (!is_good) {
        if (pool.length > believed && believed < most) {
            read_damage(why, "it grows more than %d times when it is unpacked", RATIO);
        }
        free(pool.bytes);
        return NULL;
    }
    *unpacked = pool.length;
    return pool.bytes;
}

/* ---------------------------------------------------------------- files */

static bool read_all(int fd, struct pool *pool, char why[READ_WHY_BYTES]) {
    for (;;) {
        if (!pool_make_room(pool, 1 << 16)) {
            return read_damage(why, "it has more than %zu bytes", pool->most);
        }
        ssize_t got = read(fd, pool->bytes + pool->length, pool->room - pool->length);
        if (got == 0) {
            return pool->length <= pool->most ||
                   read_damage(why, "it has more than %zu bytes", pool->most);
        }
        if (got < 0 && errno != EINTR) {
            return read_damage(why, "%s", strerror(errno));
        }
        pool->length += got > 0 ? (size_t)got : 0;
    }
}

int read_open(const char *path, char why[READ_WHY_BYTES]) {
    struct stat status;
    if (strcmp(path, "-") == 0) {
        return STDIN_FILENO;
    }
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        read_damage(why, "%s", strerror(errno));
        return -1;
    }
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        read_damage(why, S_ISDIR(status.st_mode)
                             ? "it is a folder"
                             : "it is no regular file; what comes from a pipe is read as -");
        close(fd);
        return -1;
    }
    return fd;
}

uint8_t *read_descriptor(int fd, size_t *length, char why[READ_WHY_BYTES]) {
    struct pool pool = {.most = READ_MOST_BYTES};
    bool is_good = read_all(fd, &pool, why);
    if (is_good && pool.length >= 2 && pool.bytes[0] == 0x1f && pool.bytes[1] == 0x8b) {
        uint8_t *packed = pool.bytes;
        pool.bytes =
            read_inflate(READ_GZIP, packed, pool.length, READ_MOST_BYTES, &pool.length, why);
        free(packed);
        is_good = pool.bytes != NULL;
    }
    if (!is_good) {
        free(pool.bytes);
        return NULL;
    }
    *length = pool.length;
    return pool.bytes;
}

/* ---------------------------------------------------------------- runs */

static const struct format {
    const char *name;
    bool (*is)(const uint8_t *bytes, size_t length);
    struct profile *(*read)(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]);
} formats[] = {
    {"jemalloc", read_is_jemalloc, read_jemalloc},
    {"gperftools", read_is_gperftools, read_gperftools},
    {"gperftools-cpu", read_is_gperftools_cpu, read_gperftools_cpu},
    {"pprof", read_is_proto, read_proto},
    {"folded", read_is_folded, read_folded},
};

const char *read_format(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return formats[i].name;
        }
    }
    return strcmp(name, "tally") == 0 ? "tally" : strcmp(name, "leaks") == 0 ? "leaks" : NULL;
}

struct read_run *read_run_new(const char *format, const char *program) {
    struct read_run *run = must_zeroed(sizeof *run);
    run->format = format;
    run->program = must_copy(program);
    run->arguments = must_copy("");
    run->host = must_copy("");
    run->version = must_copy("");
    return run;
}

/* The program's path, from the mappings of a profile. */
static const char *program_of(const struct profile *profile) {
    return profile->mapping_count > 0 ? profile->mappings[0].path : "";
}

struct read_run *read_run_of(struct profile *profile, const char *format) {
    struct read_run *run = read_run_new(format, program_of(profile));
    run->moments = must_alloc(sizeof *run->moments);
    run->moments[0] = (struct read_moment){0, profile, NULL};
    run->moment_count = 1;
    run->rate = profile->period > 0 ? (uint64_t)profile->period : 0;
    run->start_wall_ns = profile->time_ns > 0 ? (uint64_t)profile->time_ns : 0;
    run->has_ended = true;
    return run;
}

/* The answer of a process that searched for leaks: a run with nothing else. */
static struct read_run *run_of_leaks(const uint8_t *bytes, size_t length,
                                     char why[READ_WHY_BYTES]) {
    struct read_leaks *leaks = read_leaks(bytes, length, why);
    if (leaks == NULL) {
        return NULL;
    }
    struct read_run *run = read_run_new("leaks", program_of(leaks->profile));
    run->leaks = leaks;
    return run;
}

struct read_run *read_run_as(const char *name, const uint8_t *bytes, size_t length,
                             char why[READ_WHY_BYTES]) {
    if (length == 0 || length > READ_MOST_BYTES) {
        read_damage(why, length == 0 ? "it is empty" : "it is too large");
        return NULL;
    }
    if ((name == NULL || strcmp(name, "tally") == 0) && read_is_tally(bytes, length)) {
        return read_tally(bytes, length, why);
    }
    if (name != NULL && strcmp(name, "leaks") == 0) {
        return run_of_leaks(bytes, length, why);
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const struct format *format = &formats[i];
        if ((name == NULL || strcmp(format->name, name) == 0) && format->is(bytes, length)) {
            struct profile *profile = format->read(bytes, length, why);
            return profile != NULL ? read_run_of(profile, format->name) : NULL;
        }
    }
    read_damage(why, "it is no profile of %s%s", name == NULL ? "a known format" : "the format ",
                name == NULL ? "" : name);
    return NULL;
}

struct read_run *read_run(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]) {
    return read_run_as(NULL, bytes, length, why);
}

void read_run_free(struct read_run *run) {
    if (run == NULL) {
        return;
    }
    for (uint32_t i = 0; i < run->moment_count; i++) {
        profile_free(run->moments[i].profile);
        free(run->moments[i].payload);
    }
    for (uint32_t i = 0; i < run->cpu_count; i++) {
        profile_free(run->cpu[i].profile);
        free(run->cpu[i].payload);
    }
    for (uint32_t i = 0; i < run->note_count; i++) {
        free((void *)run->notes[i].text);
    }
    if (run->worker != NULL) {
        read_worker_end(run->worker);
    }
    profile_free(run->peak);
    read_leaks_free(run->leaks);
    free((void *)run->program);
    free((void *)run->arguments);
    free((void *)run->host);
    free((void *)run->version);
    free(run->moments);
    free(run->cpu);
    free(run->points);
    free(run->notes);
    free(run);
}

static struct profile *make_profile(const struct read_run *run, bool is_cpu, uint32_t moment,
                                    char why[READ_WHY_BYTES]) {
    struct read_moment *one = is_cpu ? &run->cpu[moment] : &run->moments[moment];
    if (one->profile == NULL) {
        one->profile = run->worker != NULL ? read_worker_moment(run->worker, is_cpu, moment, why)
                                           : read_tally_payload(one->payload, why);
    }
    if (one->profile != NULL && one->profile->time_ns == 0 && run->start_wall_ns > 0) {
        one->profile->time_ns = (int64_t)(run->start_wall_ns + one->t_ns);
    }
    return one->profile;
}

struct profile *read_moment(struct read_run *run, uint32_t moment, char why[READ_WHY_BYTES]) {
    return make_profile(run, false, moment, why);
}

struct profile *read_cpu_moment(struct read_run *run, uint32_t moment, char why[READ_WHY_BYTES]) {
    return make_profile(run, true, moment, why);
}

const char *read_reach(const struct read_run *run, uint64_t *t_ns) {
    *t_ns = run->moment_count > 0 ? run->moments[run->moment_count - 1].t_ns : 0;
    return !run->has_ended  ? "the program was killed, still runs, or could write no more"
           : run->lacks_end ? "its last snapshot could not be written"
                            : NULL;
}

bool read_is_cpu(const char *metric) {
    return metric != NULL && (strcmp(metric, "cpu") == 0 || strcmp(metric, "samples") == 0 ||
                              strcmp(metric, "wall") == 0);
}

/* The values of one type become those of another. */
static bool replace_type(struct profile *profile, const char *to_name, const char *from_name) {
    uint32_t to = profile_find_type(profile, to_name);
    uint32_t from = profile_find_type(profile, from_name);
    if (to == PROFILE_NONE || from == PROFILE_NONE) {
        return false;
    }
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        profile->values[(size_t)i * profile->type_count + to] = profile_value(profile, i, from);
    }
    return true;
}

struct profile *read_peak(struct read_run *run) {
    if (run->peak == NULL && run->moment_count > 0) {
        const struct profile *last = run->moments[run->moment_count - 1].profile;
        struct profile *peak = profile_new();
        profile_add_profile(peak, last, 1);
        if (replace_type(peak, "inuse_space", "peak_space") &&
            replace_type(peak, "inuse_objects", "peak_objects")) {
            peak->default_type = profile_find_type(peak, "inuse_space");
            run->peak = peak;
        } else {
            profile_free(peak);
        }
    }
    return run->peak;
}
