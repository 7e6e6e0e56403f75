/* SPDX-License-Identifier: MIT
 *
 * dump_json.c - single allocations as JSON: jemalloc's prof_log and prof_recent.
 *
 *      {"info":{...},"threads":[...],"stack_traces":[[...],...],"allocations":[...]}
 *
 * In a log, threads and stacks are written once and allocations refer to them by their place.  So
 * the events are copied, and the numbers of threads and stacks collected, sorted and made unique.
 */
#include <errno.h>
#include <string.h>

#include "opt/opt.h"
#include "base/os.h"
#include "out/json.h"
#include "prof/dump_writers.h"

/* ---------------------------------------------------------------- pieces */

static void put_thread_name(struct out *out, const char *key, uint32_t thread) {
    char name[16];
    bool has_ended;
    prof_read_thread(thread, name, &has_ended);
    json_string(out, key, name);
}

static void put_stack(struct out *out, const char *key, uint32_t stack) {
    uintptr_t addresses[PROF_DEPTH_MOST];
    unsigned depth = prof_read_stack(stack, addresses, PROF_DEPTH_MOST);
    json_open(out, key, '[');
    for (unsigned i = 0; i < depth; i++) {
        json_hex(out, NULL, addresses[i]);
    }
    json_close(out, '[');
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

/* The place of a number, which must be in the set. */
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
    json_open(out, "info", '{');
    json_number(out, "duration", log->duration_ns);
    json_string(out, "version", log->version);
    json_number(out, "lg_sample_rate", prof_lg_sample());
    json_string(out, "prof_time_resolution", opt_word(&opt.prof_time_resolution));
    json_number(out, "pid", os_process_id());
    json_close(out, '{');
}

static void put_threads(struct out *out, const struct set *threads) {
    json_open(out, "threads", '[');
    for (size_t i = 0; i < threads->count; i++) {
        json_open(out, NULL, '{');
        json_number(out, "thr_uid", numbers(threads)[i]);
        put_thread_name(out, "thr_name", numbers(threads)[i]);
        json_close(out, '{');
    }
    json_close(out, '[');
}

static void put_stacks(struct out *out, const struct set *stacks) {
    json_open(out, "stack_traces", '[');
    for (size_t i = 0; i < stacks->count; i++) {
        put_stack(out, NULL, numbers(stacks)[i]);
    }
    json_close(out, '[');
}

static void put_allocation(struct out *out, const struct log_content *content,
                           const struct prof_event *event) {
    json_open(out, NULL, '{');
    json_number(out, "alloc_thread", set_place(&content->threads, event->thread));
    json_number(out, "free_thread", set_place(&content->threads, event->freed_thread));
    json_number(out, "alloc_trace", set_place(&content->stacks, event->stack));
    json_number(out, "free_trace", set_place(&content->stacks, event->freed_stack));
    json_number(out, "alloc_timestamp", event->born_ns);
    json_number(out, "free_timestamp", event->freed_ns);
    json_number(out, "usize", event->usable);
    json_close(out, '{');
}

static void put_log(struct out *out, const struct dump_log *log,
                    const struct log_content *content) {
    const struct prof_event *events = (const struct prof_event *)(void *)content->events.bytes;
    json_open(out, NULL, '{');
    put_info(out, log);
    put_threads(out, &content->threads);
    put_stacks(out, &content->stacks);
    json_open(out, "allocations", '[');
    for (size_t i = 0; i < content->count; i++) {
        put_allocation(out, content, &events[i]);
    }
    json_close(out, '[');
    json_close(out, '{');
}

int dump_json_log(struct out *out, const struct dump_log *log) {
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
    json_number(out, side->uid, side->thread);
    prof_read_thread(side->thread, name, &has_ended);
    if (name[0] != '\0') {
        json_string(out, side->name, name);
    }
    json_number(out, side->time, side->ns);
    put_stack(out, side->trace, side->stack);
}

static void put_recent(struct out *out, const struct prof_event *event) {
    json_open(out, NULL, '{');
    json_number(out, "size", event->requested);
    json_number(out, "usize", event->usable);
    json_value(out, "released", VALUE_BOOL, (union value){.boolean = event->is_freed});
    put_side(out, &(struct side){"alloc_thread_uid", "alloc_thread_name", "alloc_time",
                                 "alloc_trace", event->thread, event->stack, event->born_ns});
    if (event->end_is_known) {
        put_side(out, &(struct side){"dalloc_thread_uid", "dalloc_thread_name", "dalloc_time",
                                     "dalloc_trace", event->freed_thread, event->freed_stack,
                                     event->freed_ns});
    }
    json_close(out, '{');
}

void dump_json_recent(struct out *out, struct dump_events events, int64_t most) {
    struct prof_totals totals;
    struct prof_event event;
    prof_read_totals(&totals);
    json_open(out, NULL, '{');
    json_number(out, "sample_interval", totals.rate);
    json_value(out, "recent_alloc_max", VALUE_INT64, (union value){.int64 = most});
    json_open(out, "recent_alloc", '[');
    while (events.next(events.context, &event)) {
        put_recent(out, &event);
    }
    json_close(out, '[');
    json_close(out, '{');
}
