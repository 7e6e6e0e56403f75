/* SPDX-License-Identifier: MIT
 *
 * symbolize.c - gives the locations of a profile their names.
 *
 * Locations are sorted by module; each module with locations that lack a name is the job of one worker
 * process, and as many run at once as there are processors.  A worker that dies is started once more
 * without the demangler for C++, the one part whose time nobody can bound; if that one dies too, the
 * module's locations keep their addresses and everything else goes on.
 *
 *      cache, files  ->  worker  ->  pipe  ->  image, checked  ->  functions and lines of the profile
 *
 * Read next: sym_worker.c, sym_file.c, sym_index.c.
 */
#define _GNU_SOURCE /* CPU_COUNT */
#include "names/symbolize.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "common/cli.h"
#include "names/demangle.h"
#include "names/sym_cache.h"
#include "names/sym_worker.h"

enum { WORKERS_MOST = 64, TICK_MS = 100, FRAMES_MOST = 4096, RECENT_NAMES = 4096 };

/* One location that wants a name. */
struct want {
    uint32_t module, location;
    uint64_t offset;
};

struct module {
    const struct profile_mapping *mapping; /* the first of them */
    struct want *wants;                    /* its part of all wants */
    size_t want_count;
    uint64_t *offsets; /* of those, each once */
    size_t offset_count;
    uint8_t *image; /* the worker's answer; NULL until it is there */
    size_t length, room;
    bool was_tried, is_done;
};

struct worker {
    pid_t pid;
    int pipe;
    struct module *module;
    _Atomic uint32_t *done;
};

/* A name of the module at hand, made short. */
struct short_name {
    uint32_t name;
    const char *text; /* NULL: none */
};

struct session {
    struct profile *profile;
    const struct symbolize_options *options;
    struct symbolize_result result;
    struct want *wants;
    size_t want_count;
    struct module *modules;
    uint32_t module_count;
    uint32_t *module_of; /* of each mapping */
    struct worker workers[WORKERS_MOST];
    size_t worker_count, worker_most;
    _Atomic uint32_t *counters; /* shared, one per worker */
    uint64_t offsets_done, offset_count;
    struct short_name recent[RECENT_NAMES];
    int cache;
    bool said_debuginfod;
};

/* Locations that want names. */

static bool is_same_module(const struct profile_mapping *a, const struct profile_mapping *b) {
    return strcmp(a->path, b->path) == 0 && strcmp(a->build_id, b->build_id) == 0;
}

static uint32_t hash_of(const struct profile_mapping *mapping) {
    uint64_t hash = hash_text(hash_text(HASH_TEXT, mapping->path), mapping->build_id);
    return (uint32_t)(hash ^ hash >> 32);
}

/* Numbers the mappings by module: all mappings of a file share a number. */
static void number_modules(struct session *session) {
    const struct profile *profile = session->profile;
    uint32_t size = 64;
    while (size < 2 * profile->mapping_count) {
        size *= 2;
    }
    uint32_t *table = must_alloc(size * sizeof table[0]);
    memset(table, 0xFF, size * sizeof table[0]); /* PROFILE_NONE */
    session->module_of = must_alloc((profile->mapping_count + 1) * sizeof session->module_of[0]);
    session->modules = must_alloc((profile->mapping_count + 1) * sizeof session->modules[0]);
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        const struct profile_mapping *mapping = &profile->mappings[i];
        uint32_t at = hash_of(mapping) & (size - 1);
        while (table[at] != PROFILE_NONE &&
               !is_same_module(session->modules[table[at]].mapping, mapping)) {
            at = (at + 1) & (size - 1);
        }
        if (table[at] == PROFILE_NONE) {
            table[at] = session->module_count++;
            session->modules[table[at]] = (struct module){.mapping = mapping};
        }
        session->module_of[i] = table[at];
    }
    free(table);
}

static int compare_wants(const void *a, const void *b) {
    const struct want *left = a, *right = b;
    if (left->module != right->module) {
        return left->module < right->module ? -1 : 1;
    }
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static bool is_file(const struct profile_mapping *mapping) {
    return (mapping->path[0] == '/' && mapping->path[1] != '/') || mapping->build_id[0] != '\0';
}

static void collect_wants(struct session *session) {
    const struct profile *profile = session->profile;
    session->wants = must_alloc((profile->location_count + 1) * sizeof session->wants[0]);
    for (uint32_t i = 0; i < profile->location_count; i++) {
        const struct profile_location *location = &profile->locations[i];
        if (location->line_count != 0) {
            continue;
        }
        session->result.addresses++;
        if (location->mapping == PROFILE_NONE || !is_file(&profile->mappings[location->mapping])) {
            continue;
        }
        const struct profile_mapping *mapping = &profile->mappings[location->mapping];
        session->wants[session->want_count++] =
            (struct want){session->module_of[location->mapping], i,
                          location->address - mapping->start + mapping->offset};
    }
    if (session->want_count > 0) {
        qsort(session->wants, session->want_count, sizeof session->wants[0], compare_wants);
    }
}

static void share_wants(struct session *session) {
    for (size_t i = 0; i < session->want_count; i++) {
        struct module *module = &session->modules[session->wants[i].module];
        if (module->want_count++ == 0) {
            module->wants = &session->wants[i];
            session->result.modules++;
        }
    }
    for (uint32_t i = 0; i < session->module_count; i++) {
        struct module *module = &session->modules[i];
        module->offsets = must_alloc(module->want_count * sizeof module->offsets[0] + 1);
        for (size_t n = 0; n < module->want_count; n++) {
            uint64_t offset = module->wants[n].offset;
            if (n == 0 || offset != module->wants[n - 1].offset) {
                module->offsets[module->offset_count++] = offset;
            }
        }
        module->is_done = module->want_count == 0;
        session->offset_count += module->offset_count;
    }
}

/* Workers. */

static struct module *next_module(struct session *session) {
    for (uint32_t i = 0; i < session->module_count; i++) {
        struct module *module = &session->modules[i];
        bool is_running = false;
        for (size_t n = 0; n < session->worker_count; n++) {
            is_running |= session->workers[n].module == module;
        }
        if (!module->is_done && !is_running) {
            return module;
        }
    }
    return NULL;
}

static _Atomic uint32_t *free_counter(struct session *session) {
    for (size_t i = 0;; i++) {
        bool is_taken = false;
        for (size_t n = 0; n < session->worker_count; n++) {
            is_taken |= session->workers[n].done == &session->counters[i];
        }
        if (!is_taken) {
            session->counters[i] = 0;
            return &session->counters[i];
        }
    }
}

static void start_worker(struct session *session, struct module *module) {
    struct worker *worker = &session->workers[session->worker_count];
    const struct profile_mapping *mapping = module->mapping;
    struct sym_job job = {
        .module = {mapping->path, mapping->build_id, mapping->start, mapping->limit},
        .offsets = module->offsets,
        .count = module->offset_count,
        .options = session->options,
        .cache = session->cache,
        .no_cxx_names = module->was_tried,
        .done = free_counter(session),
    };
    *worker = (struct worker){.module = module, .done = job.done};
    worker->pid = sym_worker_start(&job, &worker->pipe);
    if (worker->pid < 0) {
        warn("cannot start a process to find the names of %s", safe_text(mapping->path));
        module->is_done = true;
        return;
    }
    session->worker_count++;
}

/* Reads on; false at the end. */
static bool read_more(struct worker *worker) {
    struct module *module = worker->module;
    if (module->length == module->room) {
        module->room = module->room == 0 ? 1 << 16 : module->room * 2;
        module->image = must_grow(module->image, module->room);
    }
    ssize_t n = read(worker->pipe, module->image + module->length, module->room - module->length);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return true;
    }
    module->length += n > 0 ? (size_t)n : 0;
    return n > 0 && module->length <= SYM_IMAGE_BYTES_MOST;
}

static void keep_image(struct session *session, struct module *module) {
    const struct sym_header *header = sym_image_header(module->image);
    const uint32_t wanted = SYM_HAS_DWARF | SYM_IS_NEW;
    if ((header->flags & (wanted | SYM_NO_CXX_NAMES)) == wanted) {
        sym_cache_write(session->cache, sym_image_text(module->image, header->build_id),
                        module->image, module->length);
    }
}

static void end_worker(struct session *session, size_t number) {
    struct worker worker = session->workers[number];
    struct module *module = worker.module;
    session->workers[number] = session->workers[--session->worker_count];
    close(worker.pipe);
    int status = 0; /* stays 0 where SIGCHLD is ignored: the image has a checksum anyway */
    while (waitpid(worker.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (status == 0 && sym_image_check(module->image, module->length)) {
        module->is_done = true;
        keep_image(session, module);
    } else {
        free(module->image);
        module->image = NULL;
        module->length = module->room = 0;
        module->is_done = module->was_tried;
        module->was_tried = true;
        if (module->is_done) {
            warn("the symbols of %s cannot be read; its addresses stay without names",
                 safe_text(module->mapping->path));
        }
    }
    session->offsets_done += module->is_done ? module->offset_count : 0;
}

static void show_progress(const struct session *session) {
    uint64_t done = session->offsets_done;
    for (size_t i = 0; i < session->worker_count; i++) {
        uint32_t its = *session->workers[i].done;
        size_t most = session->workers[i].module->offset_count;
        done += its < most ? its : most;
    }
    progress("finding names", done, session->offset_count);
}

static void wait_for_workers(struct session *session) {
    struct pollfd polls[WORKERS_MOST];
    for (size_t i = 0; i < session->worker_count; i++) {
        polls[i] = (struct pollfd){.fd = session->workers[i].pipe, .events = POLLIN};
    }
    size_t count = session->worker_count;
    if (poll(polls, count, TICK_MS) < 0) {
        return;
    }
    for (size_t i = count; i-- > 0;) { /* backwards: when one ends, the last takes its place */
        if (polls[i].revents != 0 && !read_more(&session->workers[i])) {
            end_worker(session, i);
        }
    }
}

static size_t processor_count(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : count > WORKERS_MOST ? WORKERS_MOST : (size_t)count;
}

static void run_workers(struct session *session) {
    session->worker_most = processor_count();
    size_t bytes = WORKERS_MOST * sizeof session->counters[0];
    session->counters =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (session->counters == MAP_FAILED) {
        return;
    }
    for (;;) {
        struct module *module;
        while (session->worker_count < session->worker_most &&
               (module = next_module(session)) != NULL) {
            start_worker(session, module);
        }
        if (session->worker_count == 0) {
            break;
        }
        wait_for_workers(session);
        show_progress(session);
    }
    progress_end();
    munmap((void *)session->counters, bytes);
}

/* Names. */

static const char *kept(struct profile *profile, const char *text) {
    return profile_text(profile, text, strlen(text));
}

/* A short name is made once, unless another takes its place among the recent ones. */
static const char *short_name(struct session *session, const void *image, uint32_t name) {
    static char shorter[DEMANGLE_OUT_BYTES];
    struct short_name *recent = &session->recent[hash_masked(name, RECENT_NAMES - 1)];
    if (recent->text == NULL || recent->name != name) {
        demangle_shorten(sym_image_text(image, name), shorter);
        *recent = (struct short_name){name, kept(session->profile, shorter)};
    }
    return recent->text;
}

static const char *shown_name(struct session *session, const void *image,
                              const struct sym_frame *frame) {
    switch (session->options->names) {
    case NAMES_RAW:
        return kept(session->profile, sym_image_text(image, frame->system_name));
    case NAMES_FULL:
        return kept(session->profile, sym_image_text(image, frame->name));
    case NAMES_SHORT:
        break;
    }
    return short_name(session, image, frame->name);
}

static uint32_t function_of(struct session *session, const void *image,
                            const struct sym_frame *frame) {
    struct profile *profile = session->profile;
    struct profile_function function = {
        .name = shown_name(session, image, frame),
        .system_name = kept(profile, sym_image_text(image, frame->system_name)),
        .file = kept(profile, sym_image_text(image, frame->file)),
        .start_line = frame->start_line,
    };
    return profile_add_function(profile, function);
}

/* One location.  Without inlined calls, everything belongs to the outermost function. */
static void name_location(struct session *session, const void *image, const struct sym_place *place,
                          uint32_t location) {
    struct profile_line lines[FRAMES_MOST];
    const struct sym_frame *frames = sym_image_frames(image, place);
    uint32_t count = place->frame_count < FRAMES_MOST ? place->frame_count : FRAMES_MOST;
    uint32_t first = session->options->no_inlines ? count - 1 : 0;
    if (count == 0) {
        return;
    }
    for (uint32_t i = first; i < count; i++) {
        lines[i - first] =
            (struct profile_line){function_of(session, image, &frames[i]), frames[i].line};
    }
    profile_set_lines(session->profile, location, lines, count - first);
    session->result.named++;
    session->result.with_line += frames[first].line != 0;
    session->profile->mappings[session->profile->locations[location].mapping].has_functions = true;
}

static void tell(struct session *session, const struct module *module) {
    const struct sym_header *header = sym_image_header(module->image);
    const char *path = module->mapping->path;
    if ((header->flags & SYM_NO_DEBUGINFOD) != 0 && !session->said_debuginfod) {
        session->said_debuginfod = true;
        warn("libdebuginfod.so.1 is not installed, so no debug information was fetched");
    }
    if ((header->flags & SYM_HAS_FILE) != 0) {
        detail("%s: %s addresses, named by its %s%s", safe_text(path),
               grouped_text((int64_t)module->offset_count),
               (header->flags & SYM_HAS_DWARF) != 0 ? "debug information" : "table of symbols",
               (header->flags & SYM_IS_NEW) != 0 ? "" : ", out of the cache");
        return;
    }
    session->result.modules_missing++;
    if (header->other_path != 0) {
        session->result.modules_of_other_build++;
        const char *id = sym_image_text(module->image, header->other_id);
        warn("%s has build-id %s, the profile was made with %s: not used",
             safe_text(sym_image_text(module->image, header->other_path)),
             id[0] == '\0' ? "none" : id, safe_text(module->mapping->build_id));
    } else if (path[0] == '[') { /* the kernel's code in each process, which rarely has a file */
        detail("%s has no file: its addresses stay without names", safe_text(path));
    } else {
        note("%s is not there or no ELF file: its addresses stay without names", safe_text(path));
    }
}

static void apply(struct session *session, struct module *module) {
    if (module->want_count == 0) {
        return;
    }
    if (module->image == NULL) {
        session->result.modules_missing++;
        return;
    }
    tell(session, module);
    memset(session->recent, 0, sizeof session->recent);
    for (size_t i = 0; i < module->want_count; i++) {
        const struct sym_place *place = sym_image_find(module->image, module->wants[i].offset);
        if (place != NULL) {
            name_location(session, module->image, place, module->wants[i].location);
        }
    }
}

struct symbolize_result symbolize(struct profile *profile,
                                  const struct symbolize_options *options) {
    struct session *session = must_zeroed(sizeof *session);
    session->profile = profile;
    session->options = options;
    if (!options->use_debuginfod) {
        unsetenv("DEBUGINFOD_URLS"); /* libdw's own client stays quiet, too */
    } else if (getenv("DEBUGINFOD_URLS") == NULL ||
               strstr(getenv("DEBUGINFOD_URLS"), "https://") == NULL) {
        warn("--debuginfod needs a server in DEBUGINFOD_URLS that begins with https://");
    }
    number_modules(session);
    collect_wants(session);
    share_wants(session);
    session->cache = options->no_cache || session->want_count == 0 ? -1 : sym_cache_open();
    run_workers(session);
    for (uint32_t i = 0; i < session->module_count; i++) {
        apply(session, &session->modules[i]);
        free(session->modules[i].offsets);
        free(session->modules[i].image);
    }
    if (session->cache >= 0) {
        close(session->cache);
    }
    struct symbolize_result result = session->result;
    free(session->wants);
    free(session->modules);
    free(session->module_of);
    free(session);
    return result;
}
