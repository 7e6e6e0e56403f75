/* SPDX-License-Identifier: MIT
 *
 * leaks.c - checks as the options say, takes out what rules suppress, and writes the rest for the command.
 *
 * A rule takes a group out when a function or module of its stack matches.  What was lost with an object
 * that a rule takes out is of no interest either; which that is, the groups do not tell.  So indirect
 * leaks count as long as a definite one is left, and not beyond.
 *
 * Read next   leak_report.c, which tells it to people.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fmt.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_threads.h"
#include "contract/suppress.h"
#include "heap/heap.h"
#include "leak/leak.h"
#include "leak/leak_names.h"
#include "opt/opt.h"
#include "out/maps.h"
#include "prof/prof.h"

enum { RULES_MOST = 1 << 20, TEXT_MOST = 8 << 20 };

static struct {
    struct pile rules;         /* of the file */
    const char *program_rules; /* or NULL */
    const char *(*ask_program)(void);
} g;

/* ---------------------------------------------------------------- rules */

/* The text ends with NUL. */
static int read_rules(int fd) {
    ssize_t got = 1;
    while (got > 0 && g.rules.length < RULES_MOST) {
        if (!pile_grow(&g.rules, 4096)) {
            return -ENOMEM;
        }
        got = os_read(fd, g.rules.bytes + g.rules.length, 4095);
        g.rules.length += got > 0 ? (size_t)got : 0;
        g.rules.bytes[g.rules.length] = '\0';
    }
    return got < 0 ? (int)got : got > 0 ? -EFBIG : 0;
}

static void read_file(void) {
    if (opt.leak_suppressions[0] == '\0') {
        return;
    }
    int fd = os_open_at_once(opt.leak_suppressions);
    int error = fd;
    if (fd >= 0) {
        error = read_rules(fd);
        (void)os_close(fd);
    }
    if (error < 0) {
        log_line("leak_suppressions: cannot read %s: %s (%d)", opt.leak_suppressions,
                 out_explain(error), -error);
    }
}

/* Once; who comes meanwhile waits, for a while: the reader may have vanished in a fork. */
static void have_rules(void) {
    enum { NOT_YET, IN_WORK, DONE, WAIT_MS = 1000 };
    static _Atomic int state;
    int before = NOT_YET;
    if (atomic_compare_exchange_strong(&state, &before, IN_WORK)) {
        read_file();
        state = DONE;
    }
    for (int ms = 0; state == IN_WORK && ms < WAIT_MS; ms++) {
        os_sleep_ns(1000000);
    }
    g.program_rules = g.ask_program != NULL ? g.ask_program() : NULL;
}

STARTUP void leaks_init(const char *(*ask_program)(void)) {
    g.ask_program = ask_program;
    if (opt.leak_check != LEAK_CHECK_OFF) {
        have_rules();
    }
}

/* ---------------------------------------------------------------- a check */

static void take_from(struct leak_sum *sum, struct leak_sum *to, const struct leak_sum *part) {
    sum->objects -= part->objects;
    sum->bytes -= part->bytes;
    sum->requested -= part->requested;
    to->objects += part->objects;
    to->bytes += part->bytes;
    to->requested += part->requested;
}

static bool is_suppressed(struct leak_names *names, uint32_t stack) {
    uintptr_t addresses[PROF_DEPTH_MOST];
    struct suppress_rule rule;
    unsigned count = prof_read_stack(stack, addresses, PROF_DEPTH_MOST);
    for (unsigned i = 0; i < count; i++) {
        if ((g.rules.length > 0 &&
             leak_names_suppress(names, g.rules.bytes, addresses[i], &rule)) ||
            (g.program_rules != NULL &&
             leak_names_suppress(names, g.program_rules, addresses[i], &rule))) {
            return true;
        }
    }
    return false;
}

/* Without memory nothing is taken out. */
static void apply_rules(struct leaks *leaks) {
    const struct leak_result *result = leaks->result;
    struct leak_names names = {0};
    have_rules();
    if ((g.rules.length == 0 && g.program_rules == NULL) ||
        !pile_grow(&leaks->marks, result->group_count)) {
        return;
    }
    leaks->marks.length = result->group_count;
    for (uint32_t i = 0; i < result->group_count; i++) {
        const struct leak_group *group = &result->groups[i];
        leaks->marks.bytes[i] = group->stack != 0 && is_suppressed(&names, group->stack);
        if (leaks->marks.bytes[i]) {
            take_from(&leaks->kinds[group->kind], &leaks->suppressed, &group->sum);
        }
    }
    leak_names_release(&names);
}

/* See the top. */
static void drop_orphans(struct leaks *leaks) {
    struct leak_sum *indirect = &leaks->kinds[LEAK_INDIRECT];
    if (leaks->kinds[LEAK_DEFINITE].objects > 0 || leaks->marks.length == 0) {
        return;
    }
    for (uint32_t i = 0; i < leaks->result->group_count; i++) {
        leaks->marks.bytes[i] |= leaks->result->groups[i].kind == LEAK_INDIRECT;
    }
    struct leak_sum all = *indirect;
    take_from(indirect, &leaks->suppressed, &all);
}

bool leaks_find_by(struct leaks *leaks, const struct leak_wish *wish, bool with_rules) {
    memset(leaks, 0, sizeof(*leaks));
    leaks->text = (unsigned)opt.leak_text;
    bool is_done = leak_check(wish, &leaks->result);
    const char *why = leaks->result != NULL ? leaks->result->why
                      : thread_is_inside()  ? "a handler of signals has interrupted the allocator"
                                            : "there is no memory for a check";
    fmt_text(leaks->why, sizeof(leaks->why), "%s", why);
    if (!is_done) {
        leaks_release(leaks);
        return false;
    }
    memcpy(leaks->kinds, leaks->result->kinds, sizeof(leaks->kinds));
    if (with_rules) {
        apply_rules(leaks);
        drop_orphans(leaks);
    }
    return true;
}

static struct leak_wish wish_of_options(uint64_t since_ns) {
    return (struct leak_wish){
        .skip_threads = !opt.leak_threads,
        .skip_globals = !opt.leak_globals,
        .max_offset = opt.leak_max_offset,
        .step = opt.leak_step,
        .max_pause_ns = opt.leak_max_pause_ms * 1000000,
        .since_ns = since_ns,
    };
}

bool leaks_find(struct leaks *leaks, uint64_t since_ns) {
    struct leak_wish wish = wish_of_options(since_ns);
    return leaks_find_by(leaks, &wish, true);
}

bool leaks_find_last(struct leaks *leaks, uint64_t since_ns) {
    struct leak_wish wish = wish_of_options(since_ns);
    wish.is_last = true;
    return leaks_find_by(leaks, &wish, true);
}

void leaks_release(struct leaks *leaks) {
    if (leaks->result != NULL) {
        leak_release(leaks->result);
        leaks->result = NULL;
    }
    pile_release(&leaks->marks);
}

struct leak_sum leaks_lost(const struct leaks *leaks) {
    struct leak_sum sum = leaks->kinds[LEAK_DEFINITE];
    sum.objects += leaks->kinds[LEAK_INDIRECT].objects;
    sum.bytes += leaks->kinds[LEAK_INDIRECT].bytes;
    sum.requested += leaks->kinds[LEAK_INDIRECT].requested;
    return sum;
}

void leaks_test_alignment(const struct leaks *leaks, uint64_t since_ns) {
    struct leaks again;
    struct leak_wish wish = wish_of_options(since_ns);
    wish.step = 1;
    if (!leaks_find_by(&again, &wish, true)) {
        return;
    }
    uint64_t before = leaks_lost(leaks).objects, after = leaks_lost(&again).objects;
    if (after < before) {
        log_line("%lu of the %lu lost objects are found through pointers at odd places: pack the "
                 "structures that hold them less tightly, or set leak_step:1",
                 before - after, before);
    } else {
        log_line("pointers at odd places do not explain the leaks");
    }
    leaks_release(&again);
}

/* ---------------------------------------------------------------- for the command */

static void put_count(struct out *out, const char *name, uint64_t number) {
    out_string(out, name);
    out_char(out, ' ');
    out_decimal(out, number, 1);
    out_char(out, '\n');
}

static void put_sum_numbers(struct out *out, const struct leak_sum *sum) {
    out_decimal(out, sum->objects, 1);
    out_char(out, ' ');
    out_decimal(out, sum->bytes, 1);
    out_char(out, ' ');
    out_decimal(out, sum->requested, 1);
}

static void put_sum(struct out *out, const char *name, const struct leak_sum *sum) {
    out_string(out, name);
    out_char(out, ' ');
    put_sum_numbers(out, sum);
    out_char(out, '\n');
}

static const char *const kind_names[LEAK_KINDS] = {
    [LEAK_DEFINITE] = "definite", [LEAK_INDIRECT] = "indirect", [LEAK_POSSIBLE] = "possible"};

static void put_stack(struct out *out, uint32_t stack, const struct maps *maps) {
    uintptr_t addresses[PROF_DEPTH_MOST];
    unsigned count = stack != 0 ? prof_read_stack(stack, addresses, PROF_DEPTH_MOST) : 0;
    for (unsigned i = 0; i < count; i++) {
        size_t module = maps_find(maps, addresses[i] - 1);
        out_string(out, " 0x");
        out_hex(out, maps_tell(maps, module, addresses[i] - 1), 1);
    }
}

static void put_group(struct out *out, const struct leak_group *group, const struct maps *maps) {
    out_string(out, "group ");
    out_string(out, kind_names[group->kind]);
    out_char(out, ' ');
    put_sum_numbers(out, &group->sum);
    out_char(out, ' ');
    out_decimal(out, group->usable, 1);
    put_stack(out, group->stack, maps);
    out_char(out, '\n');
    if (group->below.objects > 0) {
        put_sum(out, "below", &group->below);
    }
}

static void add_to(struct leak_sum *sum, const struct leak_sum *part) {
    sum->objects += part->objects;
    sum->bytes += part->bytes;
    sum->requested += part->requested;
}

/* Readers take a text of 16 MiB, so the smallest of too many groups are told as one of each kind. */
static void put_groups(struct out *out, const struct leaks *leaks, const struct maps *maps) {
    enum { FRAME_BYTES = 20, GROUP_BYTES = 170 };
    struct leak_group rest[LEAK_KINDS] = {0};
    size_t bytes = 0;
    for (uint32_t i = 0; i < leaks->result->group_count; i++) {
        const struct leak_group *group = &leaks->result->groups[i];
        if (leaks->marks.length > 0 && leaks->marks.bytes[i]) {
            continue;
        }
        uintptr_t addresses[PROF_DEPTH_MOST];
        unsigned depth =
            group->stack != 0 ? prof_read_stack(group->stack, addresses, PROF_DEPTH_MOST) : 0;
        bytes += GROUP_BYTES + (size_t)depth * FRAME_BYTES;
        if (bytes <= TEXT_MOST) {
            put_group(out, group, maps);
        } else {
            add_to(&rest[group->kind].sum, &group->sum);
            add_to(&rest[group->kind].below, &group->below);
        }
    }
    for (int kind = 0; kind < LEAK_KINDS; kind++) {
        if (rest[kind].sum.objects > 0) {
            rest[kind].kind = (enum leak_kind)kind;
            put_group(out, &rest[kind], maps);
        }
    }
}

static void put_modules(struct out *out, const struct maps *maps) {
    for (size_t i = 0; i < maps->count; i++) {
        const struct maps_module *module = maps_module(maps, i);
        out_string(out, "module 0x");
        out_hex(out, maps_tell(maps, i, module->start), 1);
        out_string(out, " 0x");
        out_hex(out, maps_tell(maps, i, module->end), 1);
        out_string(out, " 0x");
        out_hex(out, module->offset, 1);
        out_char(out, ' ');
        out_string(out, module->build_id[0] != '\0' ? module->build_id : "-");
        out_char(out, ' ');
        out_bytes(out, maps->text.bytes + module->path, module->path_bytes);
        out_char(out, '\n');
    }
}

static void put_all(struct out *out, const struct leaks *leaks, const struct maps *maps) {
    const struct leak_result *result = leaks->result;
    out_string(out, "tally-leaks 1\n");
    put_count(out, "heap", result->heap_bytes);
    put_count(out, "roots", result->root_bytes);
    put_count(out, "threads", result->threads);
    put_count(out, "unanswered", result->unanswered);
    put_count(out, "pause_ns", result->pause_ns);
    put_count(out, "total_ns", result->total_ns);
    put_count(out, "rate", prof_was_armed() ? UINT64_C(1) << prof_lg_sample() : 0);
    for (int kind = 0; kind < LEAK_KINDS; kind++) {
        put_sum(out, kind_names[kind], &leaks->kinds[kind]);
    }
    put_sum(out, "reachable", &result->reachable);
    put_sum(out, "ignored", &result->ignored);
    put_sum(out, "suppressed", &leaks->suppressed);
    if (leaks->why[0] != '\0') {
        out_string(out, "why ");
        out_string(out, leaks->why);
        out_char(out, '\n');
    }
    put_groups(out, leaks, maps);
    put_modules(out, maps);
    out_string(out, "end\n");
}

struct text {
    const struct leaks *leaks;
    bool hides_addresses;
};

static int write_text(struct out *out, const void *what) {
    const struct text *text = what;
    struct maps maps = {0};
    maps_read(&maps);
    maps.hides = text->hides_addresses;
    put_all(out, text->leaks, &maps);
    maps_release(&maps);
    return 0;
}

int leaks_write(const struct leaks *leaks, struct out_sink sink) {
    struct text text = {leaks, sink.hides_addresses};
    return out_run(sink, write_text, &text);
}
