/* SPDX-License-Identifier: MIT
 *
 * leak_report.c - leaks told on standard error, in tally's words or in those that scripts look for.
 *
 * Names are what the loader knows, since nothing here may take long or start another program; the command
 * finds functions and lines of the rest from module and offset.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fmt.h"
#include "base/log.h"
#include "base/os.h"
#include "leak/leak.h"
#include "leak/leak_names.h"
#include "opt/opt.h"
#include "out/maps.h"
#include "out/out_file.h"
#include "prof/prof.h"

enum { LINE_BYTES = 1600, REPORTED_FRAMES = 32 };

/* Text of any length is written in pieces that end with a line. */
static void write_text(const char *format, ...) PRINTF_LIKE(1, 2);
static void write_text(const char *format, ...) {
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    fmt_text_list(line, sizeof(line), format, arguments);
    va_end(arguments);
    log_write(NULL, line);
}

/* Names of others may hold what a terminal would act on. */
static void clean(char *text) {
    for (; *text != '\0'; text++) {
        *text = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
    }
}

static const char *plural(uint64_t count) {
    return count == 1 ? "" : "s";
}

/* ---------------------------------------------------------------- stacks */

static void describe_frame(struct leak_names *names, uintptr_t address, char *text,
                           size_t capacity) {
    struct leak_place place = leak_names_find(names, address);
    if (place.module == NULL) {
        fmt_text(text, capacity, "0x%lx", address - 1);
    } else if (place.function == NULL) {
        fmt_text(text, capacity, "(%s+0x%lx)", leak_names_base(place.module), place.offset);
    } else {
        fmt_text(text, capacity, "%s (%s+0x%lx)", place.function, leak_names_base(place.module),
                 place.offset);
    }
    clean(text);
}

static void write_frame(struct leak_names *names, unsigned words, unsigned number,
                        uintptr_t address) {
    char text[LINE_BYTES - 100];
    describe_frame(names, address, text, sizeof(text));
    switch (words) {
    case LEAK_TEXT_GPERFTOOLS:
        write_text("\t@ %lx %s\n", address - 1, text);
        break;
    case LEAK_TEXT_LSAN:
        write_text("    #%u 0x%lx in %s\n", number, address - 1, text);
        break;
    default:
        write_text("    %s\n", text);
    }
}

static void write_stack(struct leak_names *names, unsigned words, const struct leak_group *group) {
    uintptr_t addresses[REPORTED_FRAMES];
    unsigned count =
        group->stack != 0 ? prof_read_stack(group->stack, addresses, REPORTED_FRAMES) : 0;
    for (unsigned i = 0; i < count; i++) {
        write_frame(names, words, i, addresses[i]);
    }
    if (group->stack == 0 && group->usable == 0) {
        write_text("    more places than are told apart\n");
    } else if (group->stack == 0) {
        write_text("    a place that was not sampled; each has up to %zu bytes\n", group->usable);
    }
}

/* ---------------------------------------------------------------- groups */

static void describe_below(const struct leak_sum *below, char *text, size_t capacity) {
    text[0] = '\0';
    if (below->objects > 0) {
        fmt_text(text, capacity, " and %lu in %lu below", below->requested, below->objects);
    }
}

static void write_group(struct leak_names *names, unsigned words, const struct leak_group *group) {
    char below[64];
    static const char *const kinds[LEAK_KINDS] = {"definite", "indirect", "possible"};
    const struct leak_sum *sum = &group->sum;
    switch (words) {
    case LEAK_TEXT_GPERFTOOLS:
        write_text("Leak of %lu bytes in %lu objects allocated from:\n", sum->requested,
                   sum->objects);
        break;
    case LEAK_TEXT_LSAN:
        write_text("\n%s leak of %lu byte(s) in %lu object(s) allocated from:\n",
                   group->kind == LEAK_INDIRECT ? "Indirect" : "Direct", sum->requested,
                   sum->objects);
        break;
    default:
        describe_below(&group->below, below, sizeof(below));
        write_text("  %s: %lu byte%s in %lu object%s%s, allocated by\n", kinds[group->kind],
                   sum->requested, plural(sum->requested), sum->objects, plural(sum->objects),
                   below);
    }
    write_stack(names, words, group);
}

/* Only tally's words have one for what may be a leak. */
static bool is_told(const struct leaks *leaks, uint32_t number) {
    bool is_marked = leaks->marks.length > 0 && leaks->marks.bytes[number];
    return !is_marked &&
           (leaks->result->groups[number].kind != LEAK_POSSIBLE || leaks->text == LEAK_TEXT_TALLY);
}

static uint32_t count_told(const struct leaks *leaks) {
    uint32_t told = 0;
    for (uint32_t i = 0; i < leaks->result->group_count; i++) {
        told += is_told(leaks, i);
    }
    return told;
}

static void write_groups(const struct leaks *leaks) {
    struct leak_names names = {0};
    uint32_t all = count_told(leaks), told = 0;
    uint32_t most = opt.leak_max_reports == 0 ? all : (uint32_t)opt.leak_max_reports;
    if (leaks->text == LEAK_TEXT_GPERFTOOLS) {
        write_text("The %u largest leaks:\n", all < most ? all : most);
    }
    for (uint32_t i = 0; i < leaks->result->group_count && told < most; i++) {
        if (is_told(leaks, i)) {
            write_group(&names, leaks->text, &leaks->result->groups[i]);
            told++;
        }
    }
    if (told < all && leaks->text == LEAK_TEXT_GPERFTOOLS) {
        write_text("Skipping leaks numbered %u..%u\n", told, all - 1);
    } else if (told < all) {
        write_text("  and %u more places (leak_max_reports)\n", all - told);
    }
    leak_names_release(&names);
}

static bool is_suppressed(const struct leaks *leaks, const struct leak_object *object) {
    for (uint32_t i = 0; i < leaks->marks.length; i++) {
        const struct leak_group *group = &leaks->result->groups[i];
        if (group->stack == object->stack && group->kind == object->kind &&
            (group->stack != 0 || group->usable == object->usable)) {
            return leaks->marks.bytes[i];
        }
    }
    return false;
}

static void write_objects(const struct leaks *leaks) {
    const struct leak_result *result = leaks->result;
    for (uint32_t i = 0; i < result->object_count; i++) {
        const struct leak_object *object = &result->objects[i];
        if (object->kind != LEAK_POSSIBLE && !is_suppressed(leaks, object)) {
            write_text("leaked %zu byte object %p\n", object->requested, object->at);
        }
    }
    if (result->objects_left_out > 0) {
        write_text("and %lu objects more\n", result->objects_left_out);
    }
}

/* ---------------------------------------------------------------- the whole */

/* tally's own words. */
static void write_summary(const struct leaks *leaks, const char *name) {
    const struct leak_sum *definite = &leaks->kinds[LEAK_DEFINITE];
    const struct leak_sum *indirect = &leaks->kinds[LEAK_INDIRECT];
    const struct leak_sum *possible = &leaks->kinds[LEAK_POSSIBLE];
    const struct leak_sum *reachable = &leaks->result->reachable;
    log_line("leak check %s: %lu bytes in %lu object%s lost, and %lu in %lu that only they lead to;"
             " possible: %lu in %lu; still reachable: %lu in %lu",
             name, definite->requested, definite->objects, plural(definite->objects),
             indirect->requested, indirect->objects, possible->requested, possible->objects,
             reachable->requested, reachable->objects);
    if (leaks->suppressed.objects > 0) {
        write_text(
            "  suppressed: %lu bytes in %lu object%s; what only these lead to may be among the"
            " indirect\n",
            leaks->suppressed.requested, leaks->suppressed.objects,
            plural(leaks->suppressed.objects));
    }
    if (leaks->result->unanswered > 0) {
        write_text(
            "  %lu of %lu threads keep signals away and could not be stopped: what they hold in"
            " registers was not seen, and what is lost was so twice\n",
            leaks->result->unanswered, leaks->result->threads);
    } else if (leaks->why[0] != '\0') {
        write_text("  %s\n", leaks->why);
    }
}

static void write_head(const struct leaks *leaks, const char *name) {
    struct leak_sum lost = leaks_lost(leaks);
    if (leaks->text == LEAK_TEXT_GPERFTOOLS) {
        log_line("Leak check %s detected leaks of %lu bytes in %lu objects", name, lost.requested,
                 lost.objects);
    } else if (leaks->text == LEAK_TEXT_LSAN) {
        write_text("\n=================================================================\n"
                   "==%u==ERROR: LeakSanitizer: detected memory leaks (found by tally)\n",
                   os_process_id());
    } else {
        write_summary(leaks, name);
    }
}

static void report_none(const struct leaks *leaks, const char *name) {
    const struct leak_sum *reachable = &leaks->result->reachable;
    if (!opt.leak_say_none) {
        return;
    }
    if (leaks->text == LEAK_TEXT_GPERFTOOLS) {
        log_line("No leaks found for check \"%s\": %lu reachable objects of %lu bytes", name,
                 reachable->objects, reachable->requested);
    } else {
        write_summary(leaks, name);
    }
}

void leak_report_tell(const struct leaks *leaks, const char *name) {
    struct leak_sum lost = leaks_lost(leaks);
    if (leaks->text == LEAK_TEXT_NONE) {
        return;
    }
    if (lost.objects == 0) {
        report_none(leaks, name);
        return;
    }
    write_head(leaks, name);
    write_groups(leaks);
    if (opt.leak_list_objects) {
        write_objects(leaks);
    }
    if (leaks->text == LEAK_TEXT_LSAN) {
        write_text("\nSUMMARY: LeakSanitizer: %lu byte(s) leaked in %lu allocation(s).\n",
                   lost.requested, lost.objects);
    }
}

/* ---------------------------------------------------------------- a profile */

static void put_counts(struct out *out, const struct leak_sum *sum) {
    for (int i = 0; i < 2; i++) {
        out_decimal(out, sum->objects, 6);
        out_string(out, ": ");
        out_decimal(out, sum->requested, 8);
        out_string(out, i == 0 ? " [" : "] @");
    }
}

/* Addresses as in dump_gperftools.c. */
static void put_group(struct out *out, const struct leak_group *group) {
    uintptr_t addresses[PROF_DEPTH_MOST];
    unsigned count =
        group->stack != 0 ? prof_read_stack(group->stack, addresses, PROF_DEPTH_MOST) : 0;
    put_counts(out, &group->sum);
    for (unsigned i = 0; i < count; i++) {
        out_string(out, " 0x");
        out_hex(out, addresses[i] - (i == 0), 8);
    }
    out_string(out, count == 0 ? " 0x1\n" : "\n");
}

static int write_profile(struct out *out, const void *what) {
    const struct leaks *leaks = what;
    struct maps maps = {0};
    struct leak_sum lost = leaks_lost(leaks);
    size_t length;
    out_string(out, "heap profile: ");
    put_counts(out, &lost);
    out_string(out, " heapprofile\n");
    for (uint32_t i = 0; i < leaks->result->group_count; i++) {
        bool is_marked = leaks->marks.length > 0 && leaks->marks.bytes[i];
        if (!is_marked && leaks->result->groups[i].kind != LEAK_POSSIBLE) {
            put_group(out, &leaks->result->groups[i]);
        }
    }
    maps_read(&maps);
    out_string(out, "\nMAPPED_LIBRARIES:\n");
    for (size_t at = 0; (length = maps_next_line(&maps, at)) > 0; at += length) {
        if (maps_line_is_executable(maps.text.bytes + at, length)) {
            out_bytes(out, maps.text.bytes + at, length);
        }
    }
    maps_release(&maps);
    return 0;
}

/* "<directory>/<program>.<pid>.<check>-end.heap" */
static void name_profile(const char *name, char *path, size_t capacity) {
    char program[1024];
    int length = os_read_link("/proc/self/exe", program, sizeof(program) - 1);
    program[length > 0 ? length : 0] = '\0';
    size_t at = fmt_text(path, capacity, "%s/%s.%u.", opt.leak_dump_dir, leak_names_base(program),
                         os_process_id());
    size_t end = at + fmt_text(path + at, capacity - at, "%s", name);
    for (; at < end; at++) {
        path[at] = path[at] == '/' ? '_' : path[at];
    }
    fmt_text(path + at, capacity - at, "-end.heap");
}

/* A check of the same name that comes again has the same file: the first is kept. */
void leak_report_dump(const struct leaks *leaks, const char *name, char *path, size_t capacity) {
    path[0] = '\0';
    if (opt.leak_dump_dir[0] == '\0' || os_facts.secure) {
        return;
    }
    name_profile(name, path, capacity);
    int error = out_file_write(path, write_profile, leaks);
    if (error != 0 && error != -EEXIST) {
        dump_warn(path, error);
    }
    if (error != 0) {
        path[0] = '\0'; /* What is there may be anybody's. */
    }
}
