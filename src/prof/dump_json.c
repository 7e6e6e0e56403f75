/* SPDX-License-Identifier: MIT
 *
 * dump_json.c - single allocations as JSON: jemalloc's prof_log and prof_recent.
 *
 *      {"info":{...},"threads":[...],"stack_traces":[[...],...],"allocations":[...]}
 *
 * In a log, threads and stacks are written once and allocations refer to them by their place.  So the
 * events are copied, and the numbers of threads and stacks collected, sorted and made unique.
 */
#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "opt/opt.h"
#include "base/os.h"
#include "prof/dump_writers.h"

/* ---------------------------------------------------------------- pieces */

/* ,"key": the comma where `first` is false. */
static void put_key(struct out *out, const char *key, bool first) {
    out_string(out, first ? "\"" : ",\"");
    out_string(out, key);
    out_string(out, "\":");
}

static void put_number(struct out *out, const char *key, uint64_t value, bool first) {
    put_key(out, key, first);
    out_decimal(out, value, 0);
}

/* Names are bytes of the program; the text stays JSON whatever they are. */
static void put_quoted(struct out *out, const char *text) {
    out_char(out, '"');
    while (*text != '\0') {
        size_t length = fmt_utf8_length(text);
        if (length == 0 || (unsigned char)*text < ' ' || *text == 0x7f) {
            out_string(out, "\\ufffd");
            length = 1;
        } else {
            if (*text == '"' || *text == '\\') {
                out_char(out, '\\');
            }
            out_bytes(out, text, length);
        }
        text += length;
    }
    out_char(out, '"');
}

static void put_text(struct out *out, const char *key, const char *text, bool first) {
    put_key(out, key, first);
    put_quoted(out, text);
}

static void put_thread_name(struct out *out, const char *key, uint32_t thread) {
    char name[16];
    bool has_ended;
    prof_read_thread(thread, name, &has_ended);
    put_text(out, key, name, false);
}

static void put_stack(struct out *out, uint32_t stack) {
    uintptr_t addresses[PROF_DEPTH_MOST];
    unsigned depth = prof_read_stack(stack, addresses, PROF_DEPTH_MOST);
    out_char(out, '[');
    for (unsigned i = 0; i < depth; i++) {
        out_string(out, i == 0 ? "\"0x" : ",\"0x");
        out_hex(out, addresses[i], 0);
        out_char(out, '"');
    }
    out_char(out, ']');
}

/* ---------------------------------------------------------------- sets of numbers */

/* Numbers, each once, in ascending order after set_finish. */
struct set {
    struct pile pile;
    size_t count;
};

static uint32_t *numbers(const struct set *set) {
    return (uint32_t *)(void *)set->pile.bytes;
}

static bool set_add(struct set *set, uint32_t number) {
    if (set->count > 0 && numbers(set)[set->count - 1] == number) {
        return true;
    }
    if (!pile_grow(&set->pile, sizeof(number))) {
        return false;
    }
    numbers(set)[set->count++] = number;
    set->pile.length += sizeof(number);
    return true;
}

/* Lets the number at `at` sink until none below it is larger. */
static void sink(uint32_t *heap, size_t at, size_t count) {
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && heap[child + 1] > heap[child];
        if (heap[child] <= heap[at]) {
            return;
        }
        uint32_t smaller = heap[at];
        heap[at] = heap[child];
        heap[child] = smaller;
    }
}

static void set_finish(struct set *set) {
    uint32_t *heap = numbers(set);
    for (size_t i = set->count / 2; i > 0; i--) {
        sink(heap, i - 1, set->count);
    }
    for (size_t left = set->count; left > 1; left--) {
        uint32_t largest = heap[0];
        heap[0] = heap[left - 1];
        heap[left - 1] = largest;
        sink(heap, 0, left - 1);
    }
    size_t unique = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (unique == 0 || heap[unique - 1] != heap[i]) {
            heap[unique++] = heap[i];
        }
    }
    set->count = unique;
}

/* The place of a number that is there. */
static size_t set_place(const struct set *set, uint32_t number) {
    size_t low = 0, high = set->count;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (numbers(set)[middle] <= number) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---------------------------------------------------------------- prof_log */

struct log_content {
    struct pile events;
    size_t count;
    struct set stacks, threads;
};

static bool keep_event(struct log_content *content, const struct prof_event *event) {
    struct pile *events = &content->events;
    if (!pile_grow(events, sizeof(*event)) || !set_add(&content->stacks, event->stack) ||
        !set_add(&content->stacks, event->freed_stack) ||
        !set_add(&content->threads, event->thread) ||
        !set_add(&content->threads, event->freed_thread)) {
        return false;
    }
    memcpy(events->bytes + events->length, event, sizeof(*event));
    events->length += sizeof(*event);
    content->count++;
    return true;
}

static void put_info(struct out *out, const struct dump_log *log) {
    static const char *const resolutions[] = {"default", "high"};
    put_key(out, "info", true);
    out_char(out, '{');
    put_number(out, "duration", log->duration_ns, true);
    put_text(out, "version", log->version, false);
    put_number(out, "lg_sample_rate", prof_lg_sample(), false);
    put_text(out, "prof_time_resolution", resolutions[opt.prof_time_resolution], false);
    put_number(out, "pid", os_process_id(), false);
    out_char(out, '}');
}

static void put_threads(struct out *out, const struct set *threads) {
    put_key(out, "threads", false);
    out_char(out, '[');
    for (size_t i = 0; i < threads->count; i++) {
        out_string(out, i == 0 ? "{" : ",{");
        put_number(out, "thr_uid", numbers(threads)[i], true);
        put_thread_name(out, "thr_name", numbers(threads)[i]);
        out_char(out, '}');
    }
    out_char(out, ']');
}

static void put_stacks(struct out *out, const struct set *stacks) {
    put_key(out, "stack_traces", false);
    out_char(out, '[');
    for (size_t i = 0; i < stacks->count; i++) {
        if (i > 0) {
            out_char(out, ',');
        }
        put_stack(out, numbers(stacks)[i]);
    }
    out_char(out, ']');
}

static void put_allocation(struct out *out, const struct log_content *content,
                           const struct prof_event *event) {
    put_number(out, "alloc_thread", set_place(&content->threads, event->thread), true);
    put_number(out, "free_thread", set_place(&content->threads, event->freed_thread), false);
    put_number(out, "alloc_trace", set_place(&content->stacks, event->stack), false);
    put_number(out, "free_trace", set_place(&content->stacks, event->freed_stack), false);
    put_number(out, "alloc_timestamp", event->born_ns, false);
    put_number(out, "free_timestamp", event->freed_ns, false);
    put_number(out, "usize", event->usable, false);
}

static void put_log(struct out *out, const struct dump_log *log,
                    const struct log_content *content) {
    const struct prof_event *events = (const struct prof_event *)(void *)content->events.bytes;
    out_char(out, '{');
    put_info(out, log);
    put_threads(out, &content->threads);
    put_stacks(out, &content->stacks);
    put_key(out, "allocations", false);
    out_char(out, '[');
    for (size_t i = 0; i < content->count; i++) {
        out_string(out, i == 0 ? "{" : ",{");
        put_allocation(out, content, &events[i]);
        out_char(out, '}');
    }
    out_string(out, "]}");
}

int dump_write_log(struct out *out, const struct dump_log *log) {
    struct log_content content = {0};
    struct prof_event event;
    int error = 0;
    while (error == 0 && log->events.next(log->events.context, &event)) {
        error = keep_event(&content, &event) ? 0 : -ENOMEM;
    }
    if (error == 0) {
        set_finish(&content.stacks);
        set_finish(&content.threads);
        put_log(out, log, &content);
    }
    pile_release(&content.events);
    pile_release(&content.stacks.pile);
    pile_release(&content.threads.pile);
    return error;
}

/* ---------------------------------------------------------------- prof_recent */

/* The four members about an allocation or its end; keys are "alloc" or "dalloc" and an ending. */
struct side {
    const char *uid, *name, *time, *trace;
    uint32_t thread, stack;
    uint64_t ns;
};

static void put_side(struct out *out, const struct side *side) {
    char name[16];
    bool has_ended;
    put_number(out, side->uid, side->thread, false);
    prof_read_thread(side->thread, name, &has_ended);
    if (name[0] != '\0') {
        put_text(out, side->name, name, false);
    }
    put_number(out, side->time, side->ns, false);
    put_key(out, side->trace, false);
    put_stack(out, side->stack);
}

static void put_recent(struct out *out, const struct prof_event *event) {
    put_number(out, "size", event->requested, true);
    put_number(out, "usize", event->usable, false);
    put_key(out, "released", false);
    out_string(out, event->is_freed ? "true" : "false");
    put_side(out, &(struct side){"alloc_thread_uid", "alloc_thread_name", "alloc_time",
                                 "alloc_trace", event->thread, event->stack, event->born_ns});
    if (event->end_is_known) {
        put_side(out, &(struct side){"dalloc_thread_uid", "dalloc_thread_name", "dalloc_time",
                                     "dalloc_trace", event->freed_thread, event->freed_stack,
                                     event->freed_ns});
    }
}

void dump_write_recent(struct out *out, struct dump_events events, int64_t most) {
    struct prof_totals totals;
    prof_read_totals(&totals);
    out_char(out, '{');
    put_number(out, "sample_interval", totals.rate, true);
    put_key(out, "recent_alloc_max", false);
    if (most < 0) {
        out_char(out, '-');
    }
    out_decimal(out, most < 0 ? -(uint64_t)most : (uint64_t)most, 0);
    put_key(out, "recent_alloc", false);
    out_char(out, '[');
    struct prof_event event;
    for (bool first = true; events.next(events.context, &event); first = false) {
        out_string(out, first ? "{" : ",{");
        put_recent(out, &event);
        out_char(out, '}');
    }
    out_string(out, "]}");
}
