/* SPDX-License-Identifier: MIT
 *
 * dump.h - what the profiler knows, as a file.
 *
 * Threads     All functions may be called from any thread, inside and with no lock held; they allocate
 *             nothing from the heap and stop nobody.  Errors are negative errno values.
 */
#pragma once

#include "base/common.h"
#include "prof/event.h"

enum dump_format { DUMP_JEMALLOC, DUMP_PROTO, DUMP_GPERFTOOLS };
enum dump_what { DUMP_NOW, DUMP_PEAK };

/* To a descriptor that the caller has opened. */
int dump_to_descriptor(int fd, enum dump_format format, enum dump_what what);

/* To whoever takes the pieces: 0 or -errno.  Without addresses it is profile.proto or -ENOTSUP; places are
 * then told by module, offset and build id. */
struct dump_sink {
    int (*take)(void *target, const char *bytes, size_t length);
    void *target;
    bool hides_addresses;
};
int dump_to_sink(struct dump_sink sink, enum dump_format format, enum dump_what what);

/* The modules of the process, one line each: start, end, offset, build id or -, path.  Without addresses the
 * first two are left out. */
int dump_modules(struct dump_sink sink);

/* To a new file of mode 0600, completely or not at all; -EEXIST when there is one of this name. */
int dump_to_file(const char *path, enum dump_format format, enum dump_what what);

/* What the ending of a name asks for: .heap jemalloc's format, .gperf or .hprof gperftools', .pb, .pb.gz or
 * .tally profile.proto; any other is `otherwise`. */
enum dump_format dump_format_by_name(const char *path, enum dump_format otherwise);

/*
 * To a file with the next automatic name of jemalloc's scheme: <prefix>.<pid>.<seq>.<kind><n>.heap with
 * kind i, m, u or f.  -EINVAL when the prefix is empty.  Numbers <seq> whose file exists, from an
 * earlier process of this pid, are passed over.  Other failures are a line in the log, except for kind
 * m, whose caller gets the error.
 */
int dump_automatically(char kind);

/* What went wrong, in words, where a user can do something about it. */
const char *dump_explain(int error);

/* A line in the log: this profile could not be written for this error. */
void dump_warn(const char *path, int error);

/* The prefix of automatic names; replaces opt.prof_prefix.  False when it is too long. */
bool dump_set_prefix(const char *prefix);

/* The same text in memory of its own, with a NUL behind it, for GetHeapProfile; NULL without memory.
 * dump_release frees it. */
char *dump_to_memory(enum dump_format format, enum dump_what what, size_t *length);
void dump_release(char *text, size_t length);

/*
 * jemalloc's summary of leaks: what lives, if anything does, in one line, and where to read more in
 * another; one more when opt.prof_leak_error is set.  True then: the process is to end with status 1.
 */
bool dump_report_leaks(void);

/* ---------------------------------------------------------------- single allocations as JSON */

/* Where they come from, oldest first; false when there are no more. */
struct dump_events {
    bool (*next)(void *context, struct prof_event *event);
    void *context;
};

/*
 * jemalloc's prof_log: the events, of which all ends are known.  To a new file, as above; path
 * NULL: <prefix>.<pid>.<n>.json.
 */
struct dump_log {
    struct dump_events events;
    uint64_t duration_ns;
    const char *version;
};
int dump_log(const char *path, const struct dump_log *log);

/* jemalloc's prof_recent, in memory as above; `most` is how many events would be kept, -1 all. */
char *dump_recent(struct dump_events events, int64_t most, size_t *length);
