/* SPDX-License-Identifier: MIT
 *
 * dump.c - walks the records, chooses a writer, and says where its bytes go.
 *
 *      prof.h --> extract --+
 *                           +--> writer of a format --> out --> descriptor, file or memory
 *      /proc  --> maps -----+
 *
 * Everything a dump needs lies in memory that it takes from the kernel.  The profiler is asked for
 * one context or stack at a time; no lock is held while the bytes are written.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "opt/opt.h"
#include "out/out_file.h"
#include "prof/dump_writers.h"
#include "prof/prof.h"
#include "prof/tell.h"

/* ---------------------------------------------------------------- writing */

_Static_assert((int)DUMP_JEMALLOC == PROF_FORMAT_JEMALLOC && (int)DUMP_PROTO == PROF_FORMAT_PROTO &&
                   (int)DUMP_GPERFTOOLS == PROF_FORMAT_GPERFTOOLS,
               "the option prof_format is a format");

/* What the writers below are given.  They return 0 or -errno; the out keeps its own errors. */
struct profile {
    enum dump_format format;
    enum dump_what what;
    bool hides_addresses;
};

static bool is_proto(enum dump_format format) {
    return format == DUMP_PROTO || format == DUMP_SNAPSHOT;
}

static int write_profile(struct out *out, const void *what) {
    const struct profile *profile = what;
    struct extract extract;
    struct maps maps;
    int error = extract_read(&extract, profile->what);
    if (error != 0) {
        return error;
    }
    if (is_proto(profile->format) && profile->what == DUMP_NOW) {
        error = extract_read_pinned(&extract);
    }
    if (error != 0) {
        extract_release(&extract);
        return error;
    }
    maps_read(&maps);
    maps.hides = profile->hides_addresses;
    if (profile->format == DUMP_JEMALLOC) {
        dump_jemalloc_write(out, &extract, &maps);
    } else if (profile->format == DUMP_GPERFTOOLS) {
        dump_gperftools_write(out, &extract, &maps);
    } else {
        error = dump_proto_write(out, &extract, &maps, profile->format == DUMP_SNAPSHOT);
    }
    maps_release(&maps);
    extract_release(&extract);
    return error;
}

static int write_log(struct out *out, const void *log) {
    return dump_json_log(out, log);
}

int dump_to_descriptor(int fd, enum dump_format format, enum dump_what what) {
    return dump_to_sink((struct out_sink){out_to_descriptor, &fd, false}, format, what);
}

/* The other formats contain the maps of the process as the kernel writes them. */
int dump_to_sink(struct out_sink sink, enum dump_format format, enum dump_what what) {
    struct profile profile = {format, what, sink.hides_addresses};
    if (sink.hides_addresses && format != DUMP_PROTO) {
        return -ENOTSUP;
    }
    return out_run(sink, write_profile, &profile);
}

static void write_module(struct out *out, const struct maps *maps, const struct maps_module *module,
                         bool hides) {
    if (!hides) {
        out_hex(out, module->start, 0);
        out_char(out, '-');
        out_hex(out, module->end, 0);
        out_char(out, ' ');
    }
    out_hex(out, module->offset, 0);
    out_char(out, ' ');
    out_string(out, module->build_id[0] != '\0' ? module->build_id : "-");
    out_char(out, ' ');
    out_bytes(out, maps->text.bytes + module->path, module->path_bytes);
    out_char(out, '\n');
}

static int write_modules(struct out *out, const void *what) {
    const bool *hides = what;
    struct maps maps;
    maps_read(&maps);
    for (size_t i = 0; i < maps.count; i++) {
        write_module(out, &maps, maps_module(&maps, i), *hides);
    }
    maps_release(&maps);
    return 0;
}

int dump_modules(struct out_sink sink) {
    return out_run(sink, write_modules, &sink.hides_addresses);
}

/* ---------------------------------------------------------------- to files */

static int tell_if_done(const char *path, int error) {
    if (error == 0) {
        tell_dumped(path);
    }
    return error;
}

static bool ends_with(const char *path, const char *ending) {
    size_t length = strlen(path), tail = strlen(ending);
    return length > tail && strcmp(path + length - tail, ending) == 0;
}

enum dump_format dump_format_by_name(const char *path, enum dump_format otherwise) {
    static const struct {
        char ending[8];
        enum dump_format format;
    } endings[] = {{".heap", DUMP_JEMALLOC},    {".pb", DUMP_PROTO},
                   {".pb.gz", DUMP_PROTO},      {".tally", DUMP_PROTO},
                   {".gperf", DUMP_GPERFTOOLS}, {".hprof", DUMP_GPERFTOOLS}};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        if (ends_with(path, endings[i].ending)) {
            return endings[i].format;
        }
    }
    return otherwise;
}

int dump_to_file(const char *path, enum dump_format format, enum dump_what what) {
    struct profile profile = {format, what, false};
    return tell_if_done(path, out_file_write(path, write_profile, &profile));
}

int dump_to_given(const char *path, enum dump_format format, enum dump_what what) {
    struct profile profile = {format, what, false};
    return tell_if_done(path, out_file_write_given(path, write_profile, &profile));
}

void dump_warn(const char *path, int error) {
    log_warning("cannot write the heap profile %s: %s (%d)", path, out_explain(error), -error);
}

/* A name is not put on the thread's stack, which may be small. */
static char *map_name(void) {
    return os_map(align_up(OUT_FILE_NAME_BYTES, os_facts.page_bytes));
}

static void unmap_name(char *path) {
    os_unmap(path, align_up(OUT_FILE_NAME_BYTES, os_facts.page_bytes));
}

int dump_automatically(char kind) {
    char *path = map_name();
    if (path == NULL) {
        return -ENOMEM;
    }
    int error = -EINVAL;
    if (out_file_name_dump(path, kind)) {
        error = dump_to_file(path, (enum dump_format)opt.prof_format, DUMP_NOW);
        if (error != 0 && kind != 'm') {
            dump_warn(path, error);
        }
    }
    unmap_name(path);
    return error;
}

int dump_log(const char *path, const struct dump_log *log) {
    if (path != NULL) {
        return tell_if_done(path, out_file_write_given(path, write_log, log));
    }
    char *name = map_name();
    if (name == NULL) {
        return -ENOMEM;
    }
    int error = -EINVAL;
    if (out_file_name_log(name)) {
        error = tell_if_done(name, out_file_write(name, write_log, log));
    }
    unmap_name(name);
    return error;
}

/* ---------------------------------------------------------------- to memory */

/* Bytes in front of the text; they hold the length of the whole, which dump_release needs. */
enum { FRONT_BYTES = 64 };

static char *write_to_memory(int (*fill)(struct out *out, const void *what), const void *what,
                             size_t *length) {
    struct pile pile = {0};
    int error = -ENOMEM;
    if (pile_grow(&pile, FRONT_BYTES)) {
        pile.length = FRONT_BYTES;
        error = out_run((struct out_sink){out_to_pile, &pile, false}, fill, what);
    }
    if (error != 0 || !pile_grow(&pile, 1)) {
        pile_release(&pile);
        return NULL;
    }
    pile.bytes[pile.length] = '\0';
    memcpy(pile.bytes, &pile, sizeof(pile));
    *length = pile.length - FRONT_BYTES;
    return pile.bytes + FRONT_BYTES;
}

char *dump_to_memory(enum dump_format format, enum dump_what what, size_t *length) {
    struct profile profile = {format, what, false};
    return write_to_memory(write_profile, &profile, length);
}

void dump_release(char *text, size_t length) {
    struct pile pile;
    memcpy(&pile, text - FRONT_BYTES, sizeof(pile));
    assert(pile.length == length + FRONT_BYTES);
    (void)length;
    pile_release(&pile);
}

struct recent {
    struct dump_events events;
    int64_t most;
};

static int write_recent(struct out *out, const void *what) {
    const struct recent *recent = what;
    dump_json_recent(out, recent->events, recent->most);
    return 0;
}

char *dump_recent(struct dump_events events, int64_t most, size_t *length) {
    struct recent recent = {events, most};
    return write_to_memory(write_recent, &recent, length);
}

/* ---------------------------------------------------------------- leaks */

static const char *plural(uint64_t number) {
    return number == 1 ? "" : "s";
}

/* The number of stacks with live objects. */
static uint64_t count_live_stacks(const struct extract *extract) {
    uint64_t stacks = 0;
    for (uint32_t place = 0; place < extract->count;) {
        struct prof_sum live, accumulated;
        place = extract_stack(extract, place, &live, &accumulated);
        stacks += live.objects > 0;
    }
    return stacks;
}

bool dump_report_leaks(void) {
    struct extract extract;
    if (extract_read(&extract, DUMP_NOW) != 0) {
        log_warning("no memory for the summary of leaks");
        return false;
    }
    uint64_t bytes = extract_round(extract.live.all_bytes);
    uint64_t objects = extract_round(extract.live.all_objects);
    uint64_t contexts = count_live_stacks(&extract);
    extract_release(&extract);
    if (contexts == 0) {
        return false;
    }
    log_line("Leak approximation summary: ~%lu byte%s, ~%lu object%s, >= %lu context%s", bytes,
             plural(bytes), objects, plural(objects), contexts, plural(contexts));
    log_line("Run jeprof on dump output for leak detail");
    if (opt.prof_leak_error) {
        log_line("Exiting with error code because memory leaks were detected");
    }
    return opt.prof_leak_error != 0;
}
