/* SPDX-License-Identifier: MIT
 *
 * test_prof.c - records, contexts, totals and the peak against models that count everything themselves.
 *
 * Events are made by hand: prof_record and prof_recorded as malloc calls them, track_events.freed as the
 * heap does.  A stack is chosen by the bits of a number: each bit is a level, and its value decides from
 * which of two calls the next level is reached.
 */
#define _GNU_SOURCE
#include "prof/prof.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>

#include "opt/opt.h"
#include "base/os.h"
#include "control/events.h"
#include "prof/recent.h"
#include "prof/record.h"
#include "prof/usdt.h"
#include "unit.h"

static _Atomic long maps_left = -1; /* -1: no limit */
static void (*at_next_map)(void);
void *__real_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes) {
    if (maps_left == 0) {
        return NULL;
    }
    if (at_next_map != NULL) {
        void (*call)(void) = at_next_map;
        at_next_map = NULL;
        call();
    }
    maps_left -= maps_left > 0;
    return __real_os_map(bytes);
}

/* ---------------------------------------------------------------- events */

enum { LEVELS = 7, PATTERNS = 1 << LEVELS };

/* As if it were malloc. */
static __attribute__((noinline)) uint32_t record_here(size_t size, size_t usable) {
    uint32_t id = prof_record(size, usable, __builtin_frame_address(0));
    __asm__ volatile("" : "+r"(id));
    return id;
}

static uint32_t record_at_level(unsigned pattern, unsigned level, size_t size, size_t usable);

/* Through a pointer, so that no level is unrolled. */
static uint32_t (*volatile next_level)(unsigned, unsigned, size_t, size_t) = record_at_level;

static uint32_t record_at_level(unsigned pattern, unsigned level, size_t size, size_t usable) {
    uint32_t id;
    if (level == LEVELS) {
        id = record_here(size, usable);
        __asm__ volatile("nop; nop; nop" : "+r"(id));
    } else if (pattern >> level & 1) {
        __asm__ volatile("nop"); /* so that compilers do not make one call of the two */
        id = next_level(pattern, level + 1, size, usable);
        __asm__ volatile("nop" : "+r"(id));
    } else {
        __asm__ volatile("nop; nop");
        id = next_level(pattern, level + 1, size, usable);
        __asm__ volatile("nop; nop" : "+r"(id));
    }
    return id;
}

static char object; /* what records are about does not matter */

static uint32_t record(unsigned pattern, size_t size, size_t usable) {
    thread_mark_inside(true);
    uint32_t id = record_at_level(pattern, 0, size, usable);
    if (id != 0) {
        prof_recorded(id, &object);
    }
    thread_mark_inside(false);
    return id;
}

static uint32_t stack_of(uint32_t id) {
    return context_at(record_at(id)->context)->stack;
}

static void release(uint32_t id, size_t usable) {
    thread_mark_inside(true);
    track_events.freed(id, &object, usable);
    thread_mark_inside(false);
}

static void arm(unsigned lg_sample) {
    start_heap();
    prof_reset(lg_sample);
    prof_set_active(true);
}

/* ---------------------------------------------------------------- sums */

static void add(struct prof_sum *sum, const struct prof_sum *other) {
    sum->objects += other->objects;
    sum->bytes += other->bytes;
    sum->requested += other->requested;
    sum->all_objects += other->all_objects;
    sum->all_bytes += other->all_bytes;
}

static void check_same(const struct prof_sum *a, const struct prof_sum *b) {
    check_eq(a->objects, b->objects);
    check_eq(a->bytes, b->bytes);
    check_eq(a->requested, b->requested);
    check(fabs(a->all_objects - b->all_objects) <= 1e-5 * (1 + fabs(b->all_objects)));
    check(fabs(a->all_bytes - b->all_bytes) <= 1e-5 * (1 + fabs(b->all_bytes)));
}

/* The totals are the sums over the contexts. */
static struct prof_totals check_totals(void) {
    struct prof_totals totals;
    struct prof_sum live = {0}, accumulated = {0}, peak = {0};
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        struct prof_context context;
        if (prof_read_context(i, &context)) {
            add(&live, &context.live);
            add(&accumulated, &context.accumulated);
            add(&peak, &context.peak);
        }
    }
    prof_read_totals(&totals);
    check_same(&live, &totals.live);
    check_same(&accumulated, &totals.accumulated);
    check_same(&peak, &totals.peak);
    return totals;
}

/* ---------------------------------------------------------------- one thread, everything compared */

enum { MOST_LIVE = 3000, STEPS = 60000 };

struct live {
    uint32_t id;
    unsigned pattern;
    size_t size, usable;
    double weight;
};

struct model {
    unsigned lg_sample;
    struct live live[MOST_LIVE];
    unsigned nlive;
    struct prof_sum by_pattern[PATTERNS], accumulated[PATTERNS], at_peak[PATTERNS];
    uint32_t stacks[PATTERNS]; /* as the profiler numbers them */
    struct prof_sum total, peak;
    uint64_t peak_bytes; /* in the units of the profiler */
    uint64_t total_bytes;
};

static struct model model;

static struct prof_sum sum_of(const struct live *live) {
    return (struct prof_sum){1, live->usable, live->size, live->weight,
                             live->weight * (double)live->usable};
}

static void subtract(struct prof_sum *sum, const struct prof_sum *other) {
    sum->objects -= other->objects;
    sum->bytes -= other->bytes;
    sum->requested -= other->requested;
    sum->all_objects -= other->all_objects;
    sum->all_bytes -= other->all_bytes;
}

/* What one sample stands for in bytes, rounded as documented: to 65536ths, then to 16ths of a byte. */
static uint64_t bytes_in_16ths(const struct live *live) {
    uint64_t weight = (uint64_t)llround(live->weight * 65536);
    return (uint64_t)llroundl((long double)weight * live->usable / 4096.0L);
}

static void model_adds(const struct live *live) {
    struct prof_sum sum = sum_of(live);
    add(&model.by_pattern[live->pattern], &sum);
    add(&model.accumulated[live->pattern], &sum);
    add(&model.total, &sum);
    model.total_bytes += bytes_in_16ths(live);
    if (model.total_bytes > model.peak_bytes) { /* the brute way: everything is copied */
        model.peak_bytes = model.total_bytes;
        model.peak = model.total;
        memcpy(model.at_peak, model.by_pattern, sizeof(model.at_peak));
    }
}

static void allocate(struct random *random) {
    struct live live = {.pattern = (unsigned)random_below(random, PATTERNS)};
    live.size = 1 + random_below(random, random_below(random, 20) == 0 ? 1 << 20 : 2000);
    live.usable = (live.size + 15) / 16 * 16;
    double rate = ldexp(1, (int)model.lg_sample);
    live.weight = rate == 1 ? 1 : 1 / -expm1(-(double)live.usable / rate);
    live.id = record(live.pattern, live.size, live.usable);
    check(live.id != 0);
    uint32_t stack = stack_of(live.id);
    check(model.stacks[live.pattern] == 0 || model.stacks[live.pattern] == stack);
    model.stacks[live.pattern] = stack;
    model.live[model.nlive++] = live;
    model_adds(&live);
}

static void free_one(struct random *random) {
    unsigned i = (unsigned)random_below(random, model.nlive);
    struct live live = model.live[i];
    model.live[i] = model.live[--model.nlive];
    struct prof_sum sum = sum_of(&live);
    subtract(&model.by_pattern[live.pattern], &sum);
    subtract(&model.total, &sum);
    model.total_bytes -= bytes_in_16ths(&live);
    release(live.id, live.usable);
}

static unsigned pattern_of(uint32_t stack) {
    for (unsigned i = 0; i < PATTERNS; i++) {
        if (model.stacks[i] == stack) {
            return i;
        }
    }
    check(!"a stack that nobody made");
    return 0;
}

static void compare_with_model(void) {
    struct prof_totals totals = check_totals();
    check_same(&totals.live, &model.total);
    check_same(&totals.peak, &model.peak);
    unsigned seen = 0;
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        struct prof_context context;
        if (prof_read_context(i, &context)) {
            unsigned pattern = pattern_of(context.stack);
            check_eq(context.thread, 0);
            check_same(&context.live, &model.by_pattern[pattern]);
            check_same(&context.accumulated, &model.accumulated[pattern]);
            check_same(&context.peak, &model.at_peak[pattern]);
            seen++;
        }
    }
    for (unsigned i = 0; i < PATTERNS; i++) {
        seen -= model.stacks[i] != 0;
    }
    check_eq(seen, 0);
}

static void run_model(unsigned lg_sample, uint64_t seed) {
    struct random random = random_start(seed, lg_sample);
    model.lg_sample = lg_sample;
    arm(lg_sample);
    for (unsigned i = 0; i < STEPS / SLOWER; i++) {
        bool grows = i / 4000 % 2 == 0;
        bool allocates = random_below(&random, 10) < (grows ? 6 : 4);
        if ((allocates || model.nlive == 0) && model.nlive < MOST_LIVE) {
            allocate(&random);
        } else {
            free_one(&random);
        }
        if (i % 997 == 0) {
            compare_with_model();
        }
    }
    while (model.nlive > 0) {
        free_one(&random);
    }
    model.total = (struct prof_sum){0};
    memset(model.by_pattern, 0, sizeof(model.by_pattern)); /* but for the rounding of the model */
    compare_with_model();
}

TEST(every_allocation_agrees_with_the_model) {
    run_model(0, 1);
}

TEST(samples_at_a_rate_agree_with_the_model) {
    run_model(12, 2);
}

TEST(samples_at_the_usual_rate_agree_with_the_model) {
    run_model(19, 3);
}

TEST(stacks_read_back_from_the_caller_of_the_event) {
    arm(0);
    uint32_t one = stack_of(record(1, 1, 16));
    uint32_t other = stack_of(record(1 << (LEVELS - 1), 1, 16));
    uintptr_t a[PROF_DEPTH_MOST], b[PROF_DEPTH_MOST];
    unsigned na = prof_read_stack(one, a, PROF_DEPTH_MOST);
    unsigned nb = prof_read_stack(other, b, PROF_DEPTH_MOST);
    check(na > LEVELS && na == nb);
    /* Innermost first: the call of prof_record, then the levels, of which two differ. */
    check_eq(a[0], b[0]);
    check(a[0] - (uintptr_t)record_at_level < 4096);
    check(a[1] != b[1] && a[LEVELS] != b[LEVELS]);
    for (unsigned i = 2; i < LEVELS; i++) {
        check_eq(a[i], b[i]);
    }
}

/* ---------------------------------------------------------------- reset, resize, switches */

TEST(a_reset_forgets_and_what_was_forgotten_can_be_freed) {
    arm(0);
    uint32_t before[500];
    for (unsigned i = 0; i < 500; i++) {
        before[i] = record(i % PATTERNS, 10, 16);
    }
    check_eq(check_totals().live.objects, 500);
    prof_reset(0);
    struct prof_totals totals = check_totals();
    check_eq(totals.live.objects + totals.accumulated.objects + totals.peak.objects, 0);
    uint32_t after = record(3, 20, 32);
    for (unsigned i = 0; i < 500; i++) {
        release(before[i], 16);
    }
    totals = check_totals();
    check_eq(totals.live.objects, 1);
    check_eq(totals.live.bytes, 32);
    release(after, 32);
    totals = check_totals();
    check_eq(totals.live.objects, 0);
    check_eq(totals.accumulated.objects, 1);
    check_eq(totals.peak.bytes, 32);
}

TEST(a_reset_changes_the_rate_of_what_comes) {
    arm(0);
    check_eq(prof_lg_sample(), 0);
    prof_reset(30);
    check_eq(prof_lg_sample(), 30);
    check_eq(track_rate(), UINT64_C(1) << 30);
    record(0, 1000, 1024);
    struct prof_totals totals = check_totals();
    check_eq(totals.rate, UINT64_C(1) << 30);
    check(fabs(totals.live.all_bytes - 0x1p30) < 0x1p11);
    prof_reset(99);
    check_eq(prof_lg_sample(), 63);
}

TEST(a_resize_moves_bytes_and_keeps_the_chance_of_the_sample) {
    arm(20);
    uint32_t id = record(0, 900000, 1 << 20);
    struct prof_totals before = check_totals();
    track_events.resized(id, &object, &object, 1 << 20, 4 << 20);
    struct prof_totals after = check_totals();
    check_eq(after.live.objects, 1);
    check_eq(after.live.bytes, 4 << 20);
    check_eq(after.accumulated.objects, 1);
    check_eq(after.accumulated.bytes, 4 << 20);
    check(after.live.all_objects == before.live.all_objects);
    check(fabs(after.live.all_bytes - 4 * before.live.all_bytes) < 8);
    check_same(&after.peak, &after.live);
    track_events.resized(id, &object, &object, 4 << 20, 1 << 19);
    struct prof_totals shrunk = check_totals();
    check_eq(shrunk.live.bytes, 1 << 19);
    check_eq(shrunk.live.requested, 1 << 19);
    check_eq(shrunk.accumulated.bytes, 4 << 20);
    check_same(&shrunk.peak, &after.live);
    release(id, 1 << 19);
    check_eq(check_totals().live.bytes, 0);
}

TEST(a_resize_of_what_was_forgotten_changes_nothing) {
    arm(0);
    uint32_t id = record(0, 900000, 1 << 20);
    prof_reset(0);
    record(0, 10, 16); /* the same context, in its new life */
    track_events.resized(id, &object, &object, 1 << 20, 4 << 20);
    struct prof_totals totals = check_totals();
    check_eq(totals.live.bytes, 16);
    check_eq(totals.accumulated.bytes, 16);
    release(id, 4 << 20);
    check_eq(check_totals().live.bytes, 16);
}

TEST(what_could_not_be_allocated_leaves_no_trace) {
    arm(0);
    for (unsigned i = 0; i < 100; i++) {
        thread_mark_inside(true);
        uint32_t id = record_here(10, 16);
        check(id != 0);
        prof_unrecord(id);
        thread_mark_inside(false);
    }
    struct prof_totals totals = check_totals();
    check_eq(totals.accumulated.objects + totals.peak.objects, 0);
    check_eq(prof_context_count(), 0);
}

TEST(nothing_is_recorded_while_it_is_switched_off) {
    start_heap();
    check(!prof_was_armed() && !prof_is_active());
    check_eq(record(0, 10, 16), 0);
    prof_set_active(true);
    check(prof_was_armed() && prof_is_active());
    check(track_rate() == UINT64_C(1) << 19);
    uint32_t id = record(0, 10, 16);
    check(id != 0);
    check(prof_thread_is_active());
    check(prof_thread_set_active(false));
    check_eq(record(0, 10, 16), 0);
    prof_thread_set_active(true);
    check(record(0, 10, 16) != 0);
    prof_set_active(false);
    check(prof_was_armed() && !prof_is_active());
    check_eq(track_rate(), 0);
    check_eq(record(0, 10, 16), 0);
    release(id, 16); /* still followed */
    check_eq(check_totals().live.objects, 1);
}

static void *ask_if_active(void *answer) {
    *(bool *)answer = prof_thread_is_active();
    return NULL;
}

TEST(new_threads_begin_as_they_are_told) {
    arm(0);
    bool answer = true;
    prof_set_thread_active_init(false);
    run_threads(1, ask_if_active, &answer);
    check(!answer);
    prof_set_thread_active_init(true);
    run_threads(1, ask_if_active, &answer);
    check(answer);
}

/* ---------------------------------------------------------------- threads */

enum { THREADS = 4, PER_THREAD = 20000 };

struct mail {
    _Atomic uint32_t id;
    size_t usable;
};
static struct mail mail[64];
static _Atomic uint64_t expected_objects, expected_bytes, expected_accumulated;

/* Frees some of its own, and some that others have left. */
static void *record_and_release(void *number) {
    struct random random = random_start(77, (uintptr_t)number);
    prof_thread_set_name("worker");
    for (unsigned i = 0; i < PER_THREAD / SLOWER; i++) {
        size_t usable = 16 + 16 * random_below(&random, 64);
        uint32_t id = record((unsigned)random_below(&random, PATTERNS), usable - 3, usable);
        check(id != 0);
        expected_accumulated += usable;
        struct mail *box = &mail[random_below(&random, 64)];
        uint32_t none = 0;
        switch (random_below(&random, 4)) {
        case 0: /* it stays */
            expected_objects++;
            expected_bytes += usable;
            break;
        case 1:
            release(id, usable);
            break;
        default: /* whoever comes by takes it out */
            if (atomic_compare_exchange_strong(&box->id, &none, UINT32_MAX)) {
                box->usable = usable;
                box->id = id;
            } else if (none != UINT32_MAX &&
                       atomic_compare_exchange_strong(&box->id, &none, UINT32_MAX)) {
                size_t theirs = box->usable;
                box->id = 0;
                release(none, theirs);
                release(id, usable);
            } else {
                release(id, usable);
            }
        }
    }
    prof_thread_ends();
    return NULL;
}

static void check_expected(void) {
    for (unsigned i = 0; i < 64; i++) {
        if (mail[i].id != 0) {
            release(mail[i].id, mail[i].usable);
            mail[i].id = 0;
        }
    }
    struct prof_totals totals = check_totals();
    check_eq(totals.live.objects, expected_objects);
    check_eq(totals.live.bytes, expected_bytes);
    check_eq(totals.accumulated.bytes, expected_accumulated);
    check_eq(totals.drops, 0);
}

TEST(threads_that_record_at_once_lose_nothing) {
    arm(0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        check(pthread_create(&threads[i], NULL, record_and_release, (void *)i) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check_expected();
}

static void *record_one_and_keep(void *id) {
    prof_thread_set_name("a name that is too long");
    *(uint32_t *)id = record(5, 100, 112);
    release(record(6, 100, 112), 112);
    prof_thread_ends();
    check_eq(record(5, 100, 112), 0); /* it is over */
    return NULL;
}

static bool thread_has_live(uint32_t thread, uint64_t *objects, uint64_t *accumulated) {
    bool found = false;
    *objects = *accumulated = 0;
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        struct prof_context context;
        if (prof_read_context(i, &context) && context.thread == thread) {
            *objects += context.live.objects;
            *accumulated += context.accumulated.objects;
            found = true;
        }
    }
    return found;
}

TEST(a_thread_that_ended_keeps_its_line_while_it_has_live_samples) {
    arm(0);
    uint32_t id;
    uint64_t objects, accumulated;
    char name[16];
    bool has_ended;
    run_threads(1, record_one_and_keep, &id);
    check(thread_has_live(0, &objects, &accumulated));
    check_eq(objects, 1);
    check_eq(accumulated, 1); /* the other context went to those who are gone */
    prof_read_thread(0, name, &has_ended);
    check_str(name, "a name that is ");
    check(has_ended);
    release(id, 112);
    check(!thread_has_live(0, &objects, &accumulated));
    struct prof_totals totals = check_totals();
    check_eq(totals.accumulated.objects, 2);
    check_eq(totals.peak.objects, 2);
}

static void *record_as_worker(void *name) {
    pthread_setname_np(pthread_self(), name);
    release(record(0, 1, 16), 16);
    prof_thread_ends();
    return NULL;
}

/* The sum of what threads of this name have allocated. */
static uint64_t accumulated_by(const char *name) {
    uint64_t objects = 0;
    struct prof_context context;
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        char its[16];
        bool has_ended;
        if (prof_read_context(i, &context)) {
            prof_read_thread(context.thread, its, &has_ended);
            objects += strcmp(its, name) == 0 ? context.accumulated.objects : 0;
        }
    }
    return objects;
}

TEST(what_ended_threads_have_allocated_stays_with_their_name) {
    start_heap_with("prof_sys_thread_name:true");
    prof_set_active(true);
    for (unsigned i = 0; i < 10; i++) {
        run_threads(1, record_as_worker, "worker");
        run_threads(1, record_as_worker, "logger");
    }
    run_threads(1, record_as_worker, "logger");
    check_eq(accumulated_by("worker"), 10);
    check_eq(accumulated_by("logger"), 11);
}

TEST(names_beyond_many_share_one_line) {
    start_heap_with("prof_sys_thread_name:true");
    prof_set_active(true);
    for (unsigned i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "thread %u", i);
        run_threads(1, record_as_worker, name);
    }
    check_eq(accumulated_by("thread 0"), 1);
    check_eq(accumulated_by("thread 62"), 1);
    check_eq(accumulated_by("thread 63"), 0);
    check_eq(accumulated_by(""), 137);
    check_eq(check_totals().accumulated.objects, 200);
}

TEST(many_threads_need_memory_for_few) {
    arm(0);
    uint32_t id;
    size_t before = 0;
    for (unsigned i = 0; i < 600; i++) {
        run_threads(1, record_one_and_keep, &id);
        release(id, 112);
        before = i == 300 ? prof_context_count() : before;
    }
    check_eq(prof_context_count(), before);
    check_eq(check_totals().accumulated.objects, 1200);
}

TEST(names_come_from_the_kernel_if_wanted) {
    start_heap_with("prof_sys_thread_name:true");
    prof_set_active(true);
    pthread_setname_np(pthread_self(), "first name");
    record(0, 1, 16);
    char name[16];
    bool has_ended;
    prof_read_thread(0, name, &has_ended);
    check_str(name, "first name");
    check(!has_ended);
    pthread_setname_np(pthread_self(), "second");
    prof_thread_get_name(name);
    check_str(name, "second");
    record(0, 1, 16);
    prof_read_thread(0, name, &has_ended);
    check_str(name, "second");
}

TEST(a_name_that_the_program_gave_wins_over_the_kernels) {
    char name[16];
    bool has_ended;
    arm(0);
    prof_name_threads();
    pthread_setname_np(pthread_self(), "of the kernel");
    record(0, 1, 16);
    prof_read_thread(0, name, &has_ended);
    check_str(name, "of the kernel");
    check(prof_thread_set_name("its own"));
    for (int i = 0; i < 1000; i++) {
        record(0, 1, 16);
    }
    prof_read_thread(0, name, &has_ended);
    check_str(name, "its own");
}

TEST(where_all_is_sampled_the_kernel_is_asked_now_and_then) {
    char name[16];
    bool has_ended;
    arm(0);
    prof_name_threads();
    pthread_setname_np(pthread_self(), "first name");
    record(0, 1, 16);
    pthread_setname_np(pthread_self(), "second");
    record(0, 1, 16);
    prof_read_thread(0, name, &has_ended);
    check_str(name, "first name");
    for (int i = 0; i < 4096 / 16; i++) {
        record(0, 1, 16);
    }
    prof_read_thread(0, name, &has_ended);
    check_str(name, "second");
}

/* ---------------------------------------------------------------- live records */

static void count_live(const struct prof_live *live, void *context) {
    uint64_t *sums = context;
    check(live->stack != 0 && live->born_ns > 0 && live->born_ns <= os_now_ns());
    check_eq(live->thread, 0);
    sums[0]++;
    sums[1] += live->requested;
    sums[2] += live->usable;
}

TEST(live_records_are_walked_one_by_one) {
    arm(0);
    static uint32_t ids[10000];
    uint64_t sums[3] = {0};
    uint32_t cursor = 0;
    check(!prof_walk_live(&cursor, count_live, sums));
    for (unsigned i = 0; i < 10000; i++) {
        ids[i] = record(i % PATTERNS, i + 1, 16 + i);
    }
    for (unsigned i = 0; i < 10000; i += 2) {
        release(ids[i], 16 + i);
    }
    cursor = 0;
    while (prof_walk_live(&cursor, count_live, sums)) {
    }
    check_eq(sums[0], 5000);
    check_eq(sums[1], 5000 * 5001);
    check_eq(sums[2], 5000 * 5001 + 5000 * 15);
}

TEST(a_live_object_costs_at_most_60_bytes) {
    if (SANITIZED) {
        skip("a sanitizer's shadow memory is counted, too");
    }
    arm(0);
    enum { OBJECTS = 400000 };
    for (unsigned i = 0; i < 1000; i++) {
        record(i % PATTERNS, 16, 16);
    }
    size_t before = test_anonymous_bytes();
    for (unsigned i = 0; i < OBJECTS; i++) {
        record(i % PATTERNS, 16, 16);
    }
    check(before > 0);
    check(test_anonymous_bytes() - before < OBJECTS * 60);
}

/* ---------------------------------------------------------------- fork */

static _Atomic bool is_enough;

static void *never_end(void *number) {
    struct random random = random_start(5, (uintptr_t)number);
    while (!is_enough) {
        uint32_t id = record((unsigned)random_below(&random, PATTERNS), 10, 16);
        if (random_below(&random, 100) > 0) {
            release(id, 16);
        }
    }
    return NULL;
}

static void use_in_child(void) {
    check_totals();
    uint32_t ids[300];
    struct prof_totals before = check_totals();
    for (unsigned i = 0; i < 300; i++) {
        ids[i] = record(i % PATTERNS, 10, 16);
        check(ids[i] != 0);
    }
    check_eq(check_totals().live.objects, before.live.objects + 300);
    for (unsigned i = 0; i < 300; i++) {
        release(ids[i], 16);
    }
    check_eq(check_totals().live.objects, before.live.objects);
    char name[16];
    bool has_ended;
    unsigned alive = 0;
    for (uint32_t i = 0; i < prof_thread_count(); i++) {
        prof_read_thread(i, name, &has_ended);
        alive += !has_ended;
    }
    check_eq(alive, 1);
}

TEST(the_child_of_a_fork_has_what_was_recorded_and_goes_on) {
    arm(0);
    uint32_t kept = record(9, 50, 64);
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++) {
        check(pthread_create(&threads[i], NULL, never_end, (void *)i) == 0);
    }
    for (unsigned i = 0; i < 200u / SLOWER; i++) {
        check_child({
            tally_free(tally_malloc(100000)); /* notices the fork, as a program does */
            prof_forked();
            use_in_child();
            release(kept, 64);
            check_totals();
        });
    }
    is_enough = true;
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    check_totals();
}

static void *lock_and_vanish(void *unused) {
    record_lock();
    return unused;
}

TEST(what_a_vanished_holder_left_is_repaired) {
    arm(0);
    uint32_t ids[1000];
    for (unsigned i = 0; i < 1000; i++) {
        ids[i] = record(i % PATTERNS, 10, 16);
    }
    for (unsigned i = 0; i < 500; i++) {
        release(ids[i], 16);
    }
    run_threads(1, lock_and_vanish, NULL); /* who is not there in the child */
    pretend_fork();
    struct prof_totals totals = check_totals();
    check_eq(totals.live.objects, 500);
    check_eq(totals.accumulated.objects, 1000);
    for (unsigned i = 500; i < 1000; i++) {
        release(ids[i], 16);
    }
    for (unsigned i = 0; i < 2000; i++) {
        check(record(i % PATTERNS, 10, 16) != 0);
    }
    check_eq(check_totals().live.objects, 2000);
}

/* ---------------------------------------------------------------- without memory */

TEST(without_memory_samples_are_dropped_and_nothing_else) {
    arm(0);
    static uint32_t ids[6000];
    for (long most = 0; most < 14; most++) {
        maps_left = most;
        struct prof_totals before = check_totals();
        for (unsigned i = 0; i < 6000; i++) {
            ids[i] = record(i % PATTERNS, 10, 16);
        }
        struct prof_totals after = check_totals();
        check_eq(after.live.objects - before.live.objects + after.drops - before.drops, 6000);
        check(most > 0 || after.drops > before.drops);
        for (unsigned i = 0; i < 6000; i++) {
            if (ids[i] != 0) {
                release(ids[i], 16);
            }
        }
        check_eq(check_totals().live.objects, before.live.objects);
        record(1, 10, 16); /* stays, so that the next round needs more */
    }
    maps_left = -1;
    check(record(2, 10, 16) != 0);
}

/* ---------------------------------------------------------------- extras */

TEST(the_last_samples_are_kept_in_order) {
    start_heap_with("prof_recent_alloc_max:3");
    prof_reset(0);
    prof_set_active(true);
    check_eq(prof_recent_max(), 3);
    uint32_t ids[6];
    for (unsigned i = 0; i < 5; i++) {
        ids[i] = record(i, 10 + i, 16 + 16 * i);
    }
    release(ids[0], 16); /* no longer among them */
    release(ids[3], 64);
    struct prof_event recent;
    uint64_t cursor = 0;
    for (unsigned i = 2; i < 5; i++) {
        check(prof_recent_walk(&cursor, &recent));
        check_eq(recent.requested, 10 + i);
        check_eq(recent.usable, 16 + 16 * i);
        check_eq(recent.is_freed, i == 3);
        check(recent.stack != 0 && recent.thread == 0 && recent.born_ns > 0);
        check((recent.freed_stack != 0) == (i == 3));
        check((recent.freed_ns >= recent.born_ns) == (i == 3));
    }
    check(!prof_recent_walk(&cursor, &recent));
    ids[5] = record(5, 77, 80);
    check(prof_recent_walk(&cursor, &recent)); /* it goes on where it was */
    check_eq(recent.requested, 77);
    prof_recent_set_max(1);
    cursor = 0;
    check(prof_recent_walk(&cursor, &recent));
    check_eq(recent.requested, 77);
    check(!prof_recent_walk(&cursor, &recent));
    prof_recent_set_max(0);
    cursor = 0;
    check(!prof_recent_walk(&cursor, &recent));
    release(ids[5], 80);
    release(ids[2], 48);
    prof_recent_set_max(-1);
    for (unsigned i = 0; i < 1000; i++) {
        record(i % PATTERNS, i, 1024);
    }
    for (unsigned i = 0; i < 1000; i++) {
        check(prof_recent_walk(&cursor, &recent));
        check_eq(recent.requested, i);
    }
    check(!prof_recent_walk(&cursor, &recent));
}

static uint32_t record_at_level(unsigned pattern, unsigned level, size_t size, size_t usable);

static void record_late(void) {
    prof_recorded(record_at_level(1, 0, 4242, 5000), &object);
}

static char recent_text[4096];

static void keep_text(void *unused, const char *text) {
    (void)unused;
    check(strlen(text) < sizeof(recent_text));
    memcpy(recent_text, text, strlen(text) + 1);
}

TEST(samples_that_come_while_the_last_are_written_are_not_among_them) {
    start_heap_with("prof_recent_alloc_max:10");
    prof_reset(0);
    prof_set_active(true);
    (void)record(1, 77, 80);
    for (unsigned i = 0; i < 2; i++) {
        at_next_map = i == 0 ? record_late : NULL;
        thread_mark_inside(true);
        check(events_write_recent(keep_text, NULL));
        thread_mark_inside(false);
        check(at_next_map == NULL);
        check(strstr(recent_text, "\"size\":77,") != NULL);
        check_eq(strstr(recent_text, "\"size\":4242,") != NULL, i == 1);
    }
}

TEST(many_samples_are_forgotten_a_few_at_a_time) {
    start_heap_with("prof_recent_alloc_max:-1");
    prof_reset(0);
    prof_set_active(true);
    for (unsigned i = 0; i < 1000; i++) {
        (void)record(1, 10, 16);
    }
    unsigned rounds = 1;
    record_lock();
    recent_set_max(0);
    for (; recent_forget_some(); rounds++) {
    }
    record_unlock();
    check(rounds >= 10);
    struct prof_event event;
    uint64_t cursor = 0;
    check(!prof_recent_walk(&cursor, &event));
}

static bool is_told(void) {
    return (attention_take(ATTENTION_PROFILE) & ATTENTION_PROFILE) != 0;
}

TEST(marks_are_in_bytes) {
    arm(0);
    (void)is_told();
    tell_marks.live = 1000;
    uint32_t first = record(1, 900, 900);
    check(!is_told());
    uint32_t second = record(1, 100, 100);
    check(is_told());
    tell_marks.live = UINT64_MAX;
    tell_marks.live_low = 500;
    release(second, 100);
    check(!is_told());
    release(first, 900);
    check(is_told());
    tell_marks.live_low = 0;
    tell_marks.allocated = 1500;
    tell_marks.freed = 1300;
    first = record(1, 400, 400);
    check(!is_told());
    release(first, 400);
    check(is_told());
}

TEST(the_log_has_what_is_freed_while_it_is_on) {
    arm(0);
    check(!prof_log_stop() && !prof_log_is_on());
    uint32_t before = record(1, 10, 16);
    release(before, 16);
    before = record(2, 10, 16);
    check(prof_log_start());
    check(!prof_log_start() && prof_log_is_on());
    uint32_t stack = stack_of(before);
    release(before, 16);
    uint32_t stays = record(3, 10, 32);
    release(record(4, 10, 48), 48);
    check(prof_log_stop());
    release(stays, 32);
    struct prof_event event;
    check(prof_log_read(0, &event));
    check_eq(event.stack, stack);
    check_eq(event.usable, 16);
    check(event.freed_stack != 0 && event.freed_ns >= event.born_ns);
    check_eq(event.thread + event.freed_thread, 0);
    check(prof_log_read(1, &event));
    check_eq(event.usable, 48);
    check(!prof_log_read(2, &event));
    check(prof_log_duration() > 0);
    prof_log_forget();
    check(!prof_log_read(0, &event));
    check(prof_log_start() && !prof_log_read(0, &event));
}

TEST(requests_are_summed_up_by_class) {
    start_heap_with("prof_stats:true");
    prof_reset(0);
    prof_set_active(true);
    struct prof_class_sum sum;
    uint32_t small = record(0, 20, 32);
    record(1, 30, 32);
    uint32_t large = record(2, 99999, 100 << 10);
    release(small, 32);
    check(prof_read_class(32, false, &sum));
    check_eq(sum.requested, 30);
    check_eq(sum.count, 1);
    check(prof_read_class(32, true, &sum));
    check_eq(sum.requested, 50);
    check_eq(sum.count, 2);
    check(prof_read_class(100 << 10, false, &sum));
    check_eq(sum.requested, 99999);
    prof_reset(0);
    release(large, 100 << 10); /* forgotten, and still subtracted */
    check(prof_read_class(100 << 10, false, &sum));
    check_eq(sum.count, 0);
    check(prof_read_class(100 << 10, true, &sum));
    check_eq(sum.count, 1);
}

TEST(without_the_option_there_are_no_sums_by_class) {
    arm(0);
    struct prof_class_sum sum;
    record(0, 20, 32);
    check(!prof_read_class(32, false, &sum));
}

/* ---------------------------------------------------------------- functions of the program */

static struct {
    unsigned samples, frees, walks;
    const void *object;
    size_t size, usable;
    unsigned count;
    uintptr_t first;
} hooked;

static void sample_hook(const void *what, size_t size, void **addresses, unsigned count,
                        size_t usable) {
    check_eq(tls.inside, 0); /* it may allocate */
    tally_free(tally_malloc(100));
    check_eq(record(0, 1, 16), 0); /* which is not sampled */
    thread_mark_inside(false);
    hooked.samples++;
    hooked.object = what;
    hooked.size = size;
    hooked.usable = usable;
    hooked.count = count;
    hooked.first = (uintptr_t)addresses[0];
    errno = 99;
}

static void sample_free_hook(const void *what, size_t usable) {
    check_eq(tls.inside, 0);
    hooked.frees++;
    hooked.object = what;
    hooked.usable = usable;
    errno = 99;
}

static void backtrace_hook(void **addresses, unsigned *count, unsigned most) {
    check(most >= 2);
    hooked.walks++;
    addresses[0] = (void *)0x1111;
    addresses[1] = (void *)0x2222;
    *count = 2;
}

enum { RESET_ROUNDS = 3000 / SLOWER };
static _Atomic unsigned reset_begun[RESET_ROUNDS], reset_done[RESET_ROUNDS];

static void wait_for_other(_Atomic unsigned *count) {
    ++*count;
    while (*count % 2 != 0) {
        sched_yield();
    }
}

static void *reset_together(void *unused) {
    static _Atomic unsigned threads;
    unsigned lg_sample = 10 + threads++;
    (void)unused;
    thread_mark_inside(true);
    for (unsigned i = 0; i < RESET_ROUNDS; i++) {
        wait_for_other(&reset_begun[i]);
        prof_reset(lg_sample);
        prof_set_active((i + lg_sample) % 2);
        wait_for_other(&reset_done[i]);
        uint64_t rate = UINT64_C(1) << prof_lg_sample();
        struct prof_totals totals;
        prof_read_totals(&totals);
        check_eq(totals.rate, rate);
        check_eq(track_rate(), prof_is_active() ? rate : 0);
    }
    thread_mark_inside(false);
    return NULL;
}

TEST(rate_and_weights_agree_whoever_sets_them_at_once) {
    arm(0);
    run_threads(2, reset_together, NULL);
}

static uint32_t freed_by_hook;
static bool hook_sees_its_stack;

static void free_in_hook(const void *at, size_t size, void **addresses, unsigned count,
                         size_t usable) {
    (void)at;
    (void)size;
    (void)usable;
    void *copy[PROF_DEPTH_MOST];
    memcpy(copy, addresses, count * sizeof(copy[0]));
    release(freed_by_hook, 32);
    hook_sees_its_stack = memcmp(copy, addresses, count * sizeof(copy[0])) == 0;
}

TEST(stack_given_to_a_function_of_the_program_stays_while_that_frees) {
    start_heap_with("prof_recent_alloc_max:10");
    prof_reset(0);
    prof_set_active(true);
    freed_by_hook = record(0x55, 20, 32);
    tell_hooks.sample = free_in_hook;
    uint32_t id = record(0x2a, 10, 16);
    tell_hooks.sample = NULL;
    check(hook_sees_its_stack);
    release(id, 16);
}

TEST(functions_of_the_program_are_called) {
    arm(0);
    errno = 5;
    tell_hooks.sample = sample_hook;
    tell_hooks.sample_free = sample_free_hook;
    uint32_t id = record(1, 33, 48);
    check_eq(hooked.samples, 1);
    check(hooked.object == &object && hooked.size == 33 && hooked.usable == 48);
    uintptr_t first;
    prof_read_stack(stack_of(id), &first, 1);
    check(hooked.count > LEVELS && hooked.first == first);
    release(id, 48);
    check_eq(hooked.frees, 1);
    check_eq(hooked.usable, 48);
    tell_hooks.backtrace = backtrace_hook;
    id = record(1, 33, 48);
    check_eq(hooked.walks, 1);
    check_eq(hooked.count, 2);
    check_eq(hooked.first, 0x1111);
    tell_hooks.sample = NULL;
    tell_hooks.sample_free = NULL;
    tell_hooks.backtrace = NULL;
    record(1, 33, 48);
    release(id, 48);
    check_eq(hooked.samples + hooked.frees + hooked.walks, 2 + 1 + 1);
    check_eq(errno, 5);
}

/* ---------------------------------------------------------------- agents */

/* As the kernel does it. */
static void set_agents(uint16_t alloc_agents, uint16_t free_agents) {
    memcpy((char *)&bin_unusual + BIN_ALLOC_AGENTS, &alloc_agents, sizeof alloc_agents);
    memcpy((char *)&bin_unusual + BIN_FREE_AGENTS, &free_agents, sizeof free_agents);
}

static void call_slowly(void) {
    tally_free(tally_malloc(1 << 20));
}

TEST(agents_arm_the_sampler_at_the_next_slow_call_and_leave_nothing) {
    start_heap();
    for (unsigned which = 0; which < 2; which++) {
        check_eq(track_rate(), 0);
        set_agents(which == 0, which == 1);
        call_slowly();
        check_eq(track_rate(), UINT64_C(1) << opt.lg_prof_sample);
        check(!prof_is_active() && !prof_was_armed());
        set_agents(0, 0);
        call_slowly();
        check_eq(track_rate(), 0);
        check_eq(bin_get_unusual(), 0);
    }
}

TEST(agents_change_nothing_for_a_profiler_that_is_on) {
    arm(12);
    set_agents(1, 1);
    call_slowly();
    prof_set_active(false);
    check_eq(track_rate(), 1 << 12);
    check_eq(record(0, 100, 112), PROF_UNRECORDED);
    release(PROF_UNRECORDED, 112);
    prof_set_active(true);
    uint32_t id = record(0, 100, 112);
    check(id != 0 && id != PROF_UNRECORDED);
    release(id, 112);
    set_agents(0, 0);
    call_slowly();
    check_eq(track_rate(), 1 << 12);
    check_eq(bin_get_unusual(), BIN_SAMPLING);
}

/* The sum over many samples of an object is what they stand for; each is a multiple of the rate. */
TEST(weights_for_agents_are_right_in_the_mean) {
    enum { DRAWS = 20000 };
    static const struct {
        size_t sampled, usable;
        unsigned lg_rate;
    } cases[] = {{16, 16, 19},           {4096, 4096, 12},  {100000, 100000, 15},
                 {1 << 20, 1 << 20, 19}, {4096, 40960, 12}, {64 << 20, 64 << 20, 19}};
    start_heap();
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double rate = (double)(UINT64_C(1) << cases[i].lg_rate);
        double chance = -expm1(-(double)cases[i].sampled / rate);
        double sum = 0;
        for (unsigned draw = 0; draw < DRAWS; draw++) {
            uint64_t weight =
                usdt_weight(cases[i].sampled, cases[i].usable, UINT64_C(1) << cases[i].lg_rate);
            check(weight > 0 && weight % (UINT64_C(1) << cases[i].lg_rate) == 0);
            sum += (double)weight;
        }
        double wanted = (double)cases[i].usable / chance * DRAWS;
        check(fabs(sum - wanted) < 6 * rate * 0.5 * sqrt(DRAWS)); /* each is off by less than one */
    }
    check_eq(usdt_weight(12345, 12345, 1), 12345);
}
