/* SPDX-License-Identifier: MIT
 *
 * triggers.c - when a profile is written without a call that asks for it.
 *
 *      bytes allocated, freed, live     marks in prof/tell.h    at the sample that reaches one
 *      memory of the heap               limit_watch_used         when the page heap grows
 *      signal                           triggers_signal          any time
 *      clock, memory of the system      triggers_tick            background thread, else slow calls
 *                    |
 *                    v   ATTENTION_PROFILE
 *            triggers_attend at the end of the next slow call, or in the background thread
 *
 * A trigger only leaves a mark.  The file is written where no lock is held and the thread is not in
 * the profiler, so a trigger that comes in the middle of anything is deferred, never lost.  One
 * thread at a time writes.  Triggers that come together give one file, named after the first.
 *
 * Volumes are the profiler's estimates: exact where every allocation is sampled, otherwise within a
 * few samples.
 *
 * Threads     Fields marked so belong to the holder of `is_busy`.
 */
#include "control/triggers.h"

#include <errno.h>

#include "base/attention.h"
#include "base/fmt.h"
#include "base/log.h"
#include "base/os.h"
#include "control/control.h"
#include "control/events.h"
#include "control/numbered.h"
#include "control/pressure.h"
#include "control/recorder.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "prof/prof.h"

enum { MEMORY_LOOK_MS = 250, PEAK_STEP = 2 << 20, REASON_BYTES = 100 };

/* In order of precedence for the name of a file. */
enum reason { ALLOCATED, FREED, LIVE_STEPS, LIVE_ABOVE, PEAK, TIME, MEMORY, SIGNAL, REASONS };

/* The letter in jemalloc's file names: i for what recurs, u for new heights, m for what was asked
 * for. */
static const char letters[REASONS] = {'i', 'i', 'u', 'u', 'u', 'i', 'u', 'm'};

struct volumes {
    uint64_t allocated, freed, live;
};

static struct {
    _Atomic uint32_t pending; /* bits of reasons that are not volumes */
    _Atomic bool is_busy;
    _Atomic bool must_restart;
    _Atomic bool gdump;
    _Atomic size_t peak; /* bytes in spans at which prof_gdump writes the next */
    _Atomic bool has_thread;
    _Atomic bool memory_is_above;
    _Atomic uint64_t next_time_ms;   /* 0: the clock does not run */
    _Atomic uint64_t next_memory_ms; /* next look */
    _Atomic uint64_t last_dump_ms;
    /* The next profiles by volume; these belong to the holder of is_busy, as does is_above. */
    struct volumes next;
    bool is_above; /* prof_live_threshold */
} g;

/* ---------------------------------------------------------------- settings */

uint64_t triggers_interval(void) {
    if (opt.prof_alloc_interval >= 0) {
        return (uint64_t)opt.prof_alloc_interval;
    }
    if (opt.lg_prof_interval >= 0) {
        return UINT64_C(1) << opt.lg_prof_interval;
    }
    return numbered_is_running() ? GPERFTOOLS_ALLOC_INTERVAL : 0;
}

static uint64_t live_step(void) {
    if (opt.prof_live_step >= 0) {
        return (uint64_t)opt.prof_live_step;
    }
    return numbered_is_running() ? GPERFTOOLS_LIVE_STEP : 0;
}

static uint64_t plus(uint64_t volume, uint64_t step) {
    return step == 0 || step >= UINT64_MAX - volume ? UINT64_MAX : volume + step;
}

/* ---------------------------------------------------------------- marks */

static struct volumes read_volumes(void) {
    struct prof_totals totals;
    prof_read_totals(&totals);
    uint64_t allocated = (uint64_t)totals.accumulated.all_bytes;
    uint64_t live = totals.live.all_bytes > 0 ? (uint64_t)totals.live.all_bytes : 0;
    return (struct volumes){allocated, allocated > live ? allocated - live : 0, live};
}

STARTUP static void set_marks(void) {
    uint64_t threshold = opt.prof_live_threshold;
    uint64_t live = g.next.live;
    if (threshold != 0 && !g.is_above && threshold < live) {
        live = threshold + 1;
    }
    tell_marks.allocated = g.next.allocated;
    tell_marks.freed = g.next.freed;
    tell_marks.live = live;
    tell_marks.live_low = g.is_above ? threshold - threshold / 16 : 0;
}

/* A peak counts in whole steps, each of them once. */
STARTUP static void watch_peak(void) {
    g.peak = max_size(g.peak, align_up(max_size(pages_totals().used, 1), PEAK_STEP));
    limit_watch_used(g.gdump ? g.peak : SIZE_MAX);
}

static uint32_t due_by_volume(const struct volumes *now) {
    uint32_t due = 0;
    due |= (uint32_t)(now->allocated >= g.next.allocated) << ALLOCATED;
    due |= (uint32_t)(now->freed >= g.next.freed) << FREED;
    due |= (uint32_t)(now->live >= g.next.live) << LIVE_STEPS;
    due |= (uint32_t)(opt.prof_live_threshold != 0 && !g.is_above &&
                      now->live > opt.prof_live_threshold)
           << LIVE_ABOVE;
    due |= (uint32_t)(g.gdump && pages_totals().used > g.peak) << PEAK;
    return due;
}

/* As in gperftools, any such file starts new intervals. */
static void advance(const struct volumes *now, uint32_t due) {
    bool all = due != 0 && numbered_is_running();
    uint64_t threshold = opt.prof_live_threshold;
    if (all || due & 1 << ALLOCATED) {
        g.next.allocated = plus(now->allocated, triggers_interval());
    }
    if (all || due & 1 << FREED) {
        g.next.freed = plus(now->freed, opt.prof_free_interval);
    }
    uint64_t next_live = plus(now->live, live_step());
    if (due & 1 << LIVE_STEPS || (all && next_live > g.next.live)) {
        g.next.live = next_live;
    }
    if (threshold != 0) {
        g.is_above = now->live > (g.is_above ? threshold - threshold / 16 - 1 : threshold);
    }
}

STARTUP static void restart(void) {
    struct volumes now = read_volumes();
    g.next.allocated = plus(now.allocated, triggers_interval());
    g.next.freed = plus(now.freed, opt.prof_free_interval);
    g.next.live = plus(0, live_step());
    g.is_above = false;
}

/* ---------------------------------------------------------------- writing */

static uint64_t mib(uint64_t bytes) {
    return bytes >> 20;
}

/* In gperftools' words, which its users search for. */
static void describe(enum reason reason, const struct volumes *now, char text[REASON_BYTES]) {
    switch (reason) {
    case ALLOCATED:
        fmt_text(text, REASON_BYTES, "%lu MB allocated cumulatively, %lu MB currently in use",
                 mib(now->allocated), mib(now->live));
        break;
    case FREED:
        fmt_text(text, REASON_BYTES, "%lu MB freed cumulatively, %lu MB currently in use",
                 mib(now->freed), mib(now->live));
        break;
    case TIME:
        fmt_text(text, REASON_BYTES, "%lu sec since the last dump",
                 (os_now_ms() - g.last_dump_ms) / 1000);
        break;
    case MEMORY:
        fmt_text(text, REASON_BYTES, "memory is short, %lu MB currently in use", mib(now->live));
        break;
    case SIGNAL:
        fmt_text(text, REASON_BYTES, "signal");
        break;
    default:
        fmt_text(text, REASON_BYTES, "%lu MB currently in use", mib(now->live));
    }
}

/* An empty prefix means no files.  Other failures are reported where they happen, except for the
 * letter m, which usually has a caller to tell. */
static void write_with_letter(char letter) {
    int error = dump_automatically(letter);
    if (error != 0 && error != -EINVAL && letter == 'm') {
        dump_warn("that was asked for", error);
    }
}

static void write_profile(enum reason reason, const struct volumes *now) {
    char text[REASON_BYTES];
    if (os_facts.secure) {
        return;
    }
    if (numbered_is_running()) {
        describe(reason, now, text);
        numbered_dump(text);
    } else if (recorder_is_on()) {
        describe(reason, now, text);
        recorder_snap(text);
    } else {
        write_with_letter(letters[reason]);
    }
    g.last_dump_ms = os_now_ms();
}

/* While nothing is sampled, only what was asked for is written. */
static uint32_t allowed(void) {
    if (prof_is_active()) {
        return (1 << REASONS) - 1;
    }
    return prof_was_armed() ? 1 << SIGNAL : 0;
}

static void attend(void) {
    if (atomic_exchange(&g.must_restart, false)) {
        restart();
    }
    struct volumes now = read_volumes();
    uint32_t due = atomic_exchange(&g.pending, 0) | due_by_volume(&now);
    uint32_t heard = due & allowed();
    if (heard != 0) {
        write_profile((enum reason)__builtin_ctz(heard), &now);
    }
    advance(&now, due);
    set_marks();
    watch_peak();
}

/* If another thread is busy, the bit stays set for the next slow call of any thread. */
void triggers_attend(void) {
    if (atomic_exchange(&g.is_busy, true)) {
        return;
    }
    (void)attention_take(ATTENTION_PROFILE);
    attend();
    g.is_busy = false;
}

static void pend(enum reason reason) {
    atomic_fetch_or(&g.pending, 1u << reason);
    attention_raise(ATTENTION_PROFILE);
}

void triggers_signal(void) {
    pend(SIGNAL);
}

/* ---------------------------------------------------------------- clock and memory */

static bool needs_clock(void) {
    return opt.prof_time_interval != 0 || opt.prof_memory_share != 0;
}

bool triggers_want_thread(void) {
    return recorder_is_on() || (prof_is_active() && (needs_clock() || opt.prof_signal != 0));
}

/* Without a background thread every slow call looks at the clock. */
static void watch_clock(void) {
    if ((recorder_is_on() || (needs_clock() && prof_is_active())) && !g.has_thread) {
        attention_raise(ATTENTION_CLOCK);
    } else {
        (void)attention_take(ATTENTION_CLOCK);
    }
}

void triggers_set_thread(bool waits) {
    g.has_thread = waits;
    watch_clock();
}

/* True for one of the callers that come at or after `*next`, which moves on by `step`. */
static bool is_time(_Atomic uint64_t *next, uint64_t now, uint64_t step) {
    uint64_t due = atomic_load(next);
    if (due == 0) { /* The clock starts now. */
        atomic_compare_exchange_strong(next, &due, now + step);
        return false;
    }
    return now >= due && atomic_compare_exchange_strong(next, &due, now + step);
}

/* One file each time the share is reached; memory has to fall 1/16 below it before the next. */
static void look_at_memory(void) {
    uint64_t share = opt.prof_memory_share;
    bool was_above = g.memory_is_above;
    bool is_above = pressure_is_above(was_above ? share - share / 16 : share);
    g.memory_is_above = is_above;
    if (is_above && !was_above) {
        pend(MEMORY);
    }
}

uint64_t triggers_tick(void) {
    uint64_t wait_ms = UINT64_MAX;
    if (needs_clock() && prof_is_active()) {
        uint64_t now = os_now_ms();
        uint64_t interval = opt.prof_time_interval * 1000;
        if (interval != 0) {
            if (is_time(&g.next_time_ms, now, interval)) {
                pend(TIME);
            }
            uint64_t next = g.next_time_ms;
            wait_ms = next > now ? next - now : 1;
        }
        if (opt.prof_memory_share != 0) {
            if (is_time(&g.next_memory_ms, now, MEMORY_LOOK_MS)) {
                look_at_memory();
            }
            wait_ms = min_size(wait_ms, MEMORY_LOOK_MS);
        }
    }
    wait_ms = min_size(wait_ms, recorder_tick());
    if (attention_get() & ATTENTION_PROFILE) {
        triggers_attend();
    }
    return wait_ms;
}

/* ---------------------------------------------------------------- mallctl */

void triggers_restart(void) {
    g.next_time_ms = 0;
    g.must_restart = true;
    attention_raise(ATTENTION_PROFILE);
    attention_raise(ATTENTION_GROWN); /* Perhaps a thread is due. */
    watch_clock();
}

bool triggers_gdump(void) {
    return g.gdump;
}

void triggers_set_gdump(bool on) {
    g.gdump = on;
    watch_peak();
}

/* ---------------------------------------------------------------- start, end, fork */

STARTUP void triggers_init(void) {
    g.gdump = opt.prof_gdump;
    g.last_dump_ms = os_now_ms();
    numbered_init();
    if (opt.prof && opt.prof_log) {
        (void)events_log_start(NULL);
    }
    restart();
    set_marks();
    watch_peak();
    if (prof_is_active() || recorder_is_on()) {
        triggers_restart();
    }
}

STARTUP bool triggers_want_exit(void) {
    return opt.prof_final || opt.prof_log || recorder_is_on();
}

static void describe_exit(char text[REASON_BYTES]) {
    uint64_t live = read_volumes().live;
    uint64_t shown = live >= 1 << 20 ? live >> 20 : live >= 1 << 10 ? live >> 10 : live;
    fmt_text(text, REASON_BYTES, "Exiting, %lu %s in use", shown,
             live >= 1 << 20   ? "MB"
             : live >= 1 << 10 ? "kB"
                               : "bytes");
}

/* An empty prefix means no files, and the program may have stopped the log itself. */
static void write_log(void) {
    int error = prof_log_is_on() ? events_log_stop() : 0;
    if (error != 0 && error != -EINVAL) {
        log_warning("cannot write the log of allocations: %s (%d)", out_explain(error), -error);
    }
}

bool triggers_exit(void) {
    if (os_facts.secure || !prof_was_armed()) {
        return false;
    }
    if (opt.prof_log) {
        write_log();
    }
    bool has_name = true;
    if (numbered_is_running()) {
        char text[REASON_BYTES];
        describe_exit(text);
        numbered_dump(text);
    } else if (opt.prof_final && !recorder_is_on()) {
        has_name = dump_automatically('f') != -EINVAL;
    }
    return opt.prof_final && has_name && opt.prof_leak && dump_report_leaks();
}

/* What the parent was to write does not concern the child. */
STARTUP void triggers_forked(void) {
    g.pending = 0;
    g.is_busy = false;
    g.has_thread = false;
    numbered_forked();
    recorder_forked();
    triggers_restart();
}
