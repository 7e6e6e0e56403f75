/* SPDX-License-Identifier: MIT
 *
 * read.c - files of profiles: bringing them into memory, recognising them, and words like app.tally@peak.
 *
 * Read next   read_tally.c, read_proto.c and the others, one for each format.
 */
#include "read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "cli.h"
#include "live_dump.h"
#include "read_text.h"
#include "read_worker.h"

/* ---------------------------------------------------------------- unpacking */

/* Bytes that grow up to a limit. */
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

/* One stream; Z_STREAM_END when it was whole. */
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

static char *copy(const char *text) {
    char *twin = must_alloc(strlen(text) + 1);
    return strcpy(twin, text);
}

/* A run without moments of a process that is known only by what it has mapped. */
static struct read_run *new_run(const struct profile *profile, const char *format) {
    struct read_run *run = must_alloc(sizeof *run);
    memset(run, 0, sizeof *run);
    run->format = format;
    run->program = copy(profile->mapping_count > 0 ? profile->mappings[0].path : "");
    run->arguments = copy("");
    run->host = copy("");
    run->version = copy("");
    return run;
}

/* A run of one moment. */
static struct read_run *run_of(struct profile *profile, const char *format) {
    struct read_run *run = new_run(profile, format);
    run->moments = must_alloc(sizeof *run->moments);
    run->moments[0] = (struct read_moment){0, profile, NULL};
    run->moment_count = 1;
    run->rate = profile->period > 0 ? (uint64_t)profile->period : 0;
    run->start_wall_ns = profile->time_ns > 0 ? (uint64_t)profile->time_ns : 0;
    run->has_ended = true;
    return run;
}

static struct read_run *read_by(const struct format *format, const uint8_t *bytes, size_t length,
                                char why[READ_WHY_BYTES]) {
    struct profile *profile = format->read(bytes, length, why);
    return profile != NULL ? run_of(profile, format->name) : NULL;
}

/* The answer of a process that has looked for leaks: a run with nothing else. */
static struct read_run *run_of_leaks(const uint8_t *bytes, size_t length,
                                     char why[READ_WHY_BYTES]) {
    struct read_leaks *leaks = read_leaks(bytes, length, why);
    if (leaks == NULL) {
        return NULL;
    }
    struct read_run *run = new_run(leaks->profile, "leaks");
    run->leaks = leaks;
    return run;
}

/* What no reader needs to look at. */
static bool has_a_size(size_t length, char why[READ_WHY_BYTES]) {
    if (length == 0 || length > READ_MOST_BYTES) {
        return read_damage(why, length == 0 ? "it is empty" : "it is too large");
    }
    return true;
}

struct read_run *read_run(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]) {
    if (!has_a_size(length, why)) {
        return NULL;
    }
    if (read_is_tally(bytes, length)) {
        return read_tally(bytes, length, why);
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (formats[i].is(bytes, length)) {
            return read_by(&formats[i], bytes, length, why);
        }
    }
    read_damage(why, "it is no profile of a known format");
    return NULL;
}

struct read_run *read_run_as(const char *format, const uint8_t *bytes, size_t length,
                             char why[READ_WHY_BYTES]) {
    if (!has_a_size(length, why)) {
        return NULL;
    }
    if (strcmp(format, "tally") == 0 && read_is_tally(bytes, length)) {
        return read_tally(bytes, length, why);
    }
    if (strcmp(format, "leaks") == 0) {
        return run_of_leaks(bytes, length, why);
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, format) == 0 && formats[i].is(bytes, length)) {
            return read_by(&formats[i], bytes, length, why);
        }
    }
    read_damage(why, "it is no profile of the format %s", format);
    return NULL;
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

/* ---------------------------------------------------------------- words */

/* What stands behind the file name. */
struct suffix {
    bool is_peak, has_time, has_number;
    uint64_t t_ns, number;
};

/* "@peak", "@end", "@1.5s", "#3"; false: it means nothing. */
static bool parse_suffix(const char *text, struct suffix *suffix) {
    if (text[0] == '#') {
        char *end;
        errno = 0;
        suffix->number = strtoull(text + 1, &end, 10);
        suffix->has_number = true;
        return text[1] >= '0' && text[1] <= '9' && *end == '\0' && errno == 0;
    }
    suffix->is_peak = strcmp(text, "@peak") == 0;
    if (suffix->is_peak || strcmp(text, "@end") == 0) {
        return true;
    }
    suffix->has_time = true;
    return parse_duration(text + 1, &suffix->t_ns);
}

/* The last moment that is not later; the first, where all are. */
static uint32_t moment_at(const struct read_moment *moments, uint32_t count, uint64_t t_ns) {
    uint32_t moment = 0;
    while (moment + 1 < count && moments[moment + 1].t_ns <= t_ns) {
        moment++;
    }
    return moment;
}

/* The profile of the processor's time that was made with the moment, or at the time, that was asked for. */
static bool choose_cpu_moment(const char *path, const struct read_run *run,
                              const struct suffix *suffix, struct read_choice *choice,
                              int *status) {
    if (run->cpu_count == 0) {
        *status = complain(EXIT_BAD_INPUT,
                           "%s: the processor's time was not recorded; `tally run --cpu` does",
                           safe_text(path));
        return false;
    }
    if (suffix->is_peak) {
        *status = complain(EXIT_USAGE, "%s: the processor's time has no peak; use @TIME or #N",
                           safe_text(path));
        return false;
    }
    uint64_t t_ns = suffix->has_time     ? suffix->t_ns
                    : suffix->has_number ? run->moments[choice->moment].t_ns
                                         : UINT64_MAX;
    choice->moment = moment_at(run->cpu, run->cpu_count, t_ns);
    return true;
}

/* False, after a sentence, where the run has no such moment. */
static bool choose_moment(const char *path, const struct read_run *run, const struct suffix *suffix,
                          struct read_choice *choice, int *status) {
    choice->is_peak = suffix->is_peak;
    choice->is_cpu = choice->wants_cpu && strcmp(run->format, "tally") == 0;
    choice->moment = run->moment_count > 0 ? run->moment_count - 1 : PROFILE_NONE;
    if (suffix->has_number && suffix->number - 1 < run->moment_count) {
        choice->moment = (uint32_t)(suffix->number - 1);
    } else if (suffix->has_number) {
        *status = complain(EXIT_BAD_INPUT, "%s: its snapshots are #1 to #%u", safe_text(path),
                           run->moment_count);
        return false;
    } else if (suffix->has_time && run->moment_count > 0) {
        choice->moment = moment_at(run->moments, run->moment_count, suffix->t_ns);
    }
    return !choice->is_cpu || choose_cpu_moment(path, run, suffix, choice, status);
}

/* Cuts "app.tally@peak" in two, unless there is a file of this name; the path is the caller's.  NULL after a
 * sentence. */
static char *cut_word(const char *word, struct suffix *suffix, int *status) {
    char *path = copy(word);
    char *mark = strrchr(path, '@'), *number = strrchr(path, '#');
    mark = mark == NULL || (number != NULL && number > mark) ? number : mark;
    memset(suffix, 0, sizeof *suffix);
    if (mark == NULL || mark == path || access(word, F_OK) == 0) {
        return path;
    }
    if (!parse_suffix(mark, suffix)) {
        *status = complain(EXIT_USAGE, "%s: behind the file name stands @TIME, @peak, @end or #N",
                           safe_text(word));
        free(path);
        return NULL;
    }
    *mark = '\0';
    return path;
}

static struct read_run *read_path(const char *path, const char *format, int *status) {
    char why[READ_WHY_BYTES];
    struct read_run *run = read_confined(path, format, why);
    if (run == NULL) {
        *status = complain(EXIT_BAD_INPUT, "%s: %s", safe_text(path), safe_text(why));
    } else if (run->lost_bytes > 0) {
        warn(cli_salvage ? "%s: %llu bytes of it are damaged and are left out"
                         : "%s: its last %llu bytes are no whole frame and are left out",
             safe_text(path), (unsigned long long)run->lost_bytes);
    }
    return run;
}

/* "pid:TARGET" is a run of one moment, which is now; of its past it knows the peak. */
static struct read_run *read_process(const char *word, struct suffix *suffix, bool wants_cpu,
                                     int *status) {
    if (suffix->has_time || suffix->has_number) {
        *status = complain(EXIT_USAGE, "%s: a running process is looked at now or @peak",
                           safe_text(word));
        return NULL;
    }
    enum live_kind kind = wants_cpu ? LIVE_CPU : suffix->is_peak ? LIVE_PEAK : LIVE_HEAP;
    struct profile *profile = live_dump_argument(word, kind, status);
    suffix->is_peak = false; /* it is what the moment has */
    return profile != NULL ? run_of(profile, "pprof") : NULL;
}

struct read_run *read_argument_run(const char *word, struct read_choice *choice, int *status) {
    struct suffix suffix;
    char *path = cut_word(word, &suffix, status);
    if (path == NULL) {
        return NULL;
    }
    struct read_run *run = strncmp(word, "pid:", 4) == 0
                               ? read_process(path, &suffix, choice->wants_cpu, status)
                               : read_path(path, choice->format, status);
    choice->is_given = strcmp(path, word) != 0;
    if (run != NULL && !choose_moment(path, run, &suffix, choice, status)) {
        read_run_free(run);
        run = NULL;
    }
    free(path);
    return run;
}

struct profile *read_chosen(struct read_run *run, const struct read_choice *choice,
                            const char *word, int *status) {
    char why[READ_WHY_BYTES];
    struct profile *profile = NULL;
    if (choice->moment == PROFILE_NONE) {
        read_damage(why, "it has no whole snapshot");
    } else if (choice->is_cpu) {
        profile = read_cpu_moment(run, choice->moment, why);
    } else if (choice->is_peak) {
        profile = read_peak(run);
        read_damage(why, "it does not say what was in use at its peak");
    } else {
        profile = read_moment(run, choice->moment, why);
    }
    if (profile == NULL) {
        *status = complain(EXIT_BAD_INPUT, "%s: %s", safe_text(word), safe_text(why));
    }
    return profile;
}

struct profile *read_argument(const char *word, bool wants_cpu, int *status) {
    struct read_choice choice = {.wants_cpu = wants_cpu};
    struct read_run *run = read_argument_run(word, &choice, status);
    if (run == NULL) {
        return NULL;
    }
    struct profile *profile = read_chosen(run, &choice, word, status);
    if (profile != NULL) { /* it leaves the run */
        *(choice.is_cpu    ? &run->cpu[choice.moment].profile
          : choice.is_peak ? &run->peak
                           : &run->moments[choice.moment].profile) = NULL;
    }
    read_run_free(run);
    return profile;
}
