/* SPDX-License-Identifier: MIT
 *
 * stress_coverage.c - is the truth within the interval that the command shows, in 95 of 100 profiles?
 *
 * Each program below does the same every time.  Its truth is what the profiler records at a rate of 1; then it
 * runs again and again, sampled at 64 and 512 KiB from another seed each time, and the interval of each figure
 * is made as the command makes it (cli/profile/interval.c): bytes and objects that live at the end, at the peak
 * and were ever allocated, of the whole program and of the call stack that has allocated most.
 *
 * Some figures are coarse: of 8 blocks each is seen or not, so that no interval holds exactly 95 %.  It then
 * holds more.  The count of allocations is beyond any interval where most of them are tiny beside the rest.
 *
 * 25 seeds, the same ones each time; STRESS=1 takes 1000 and prints the table.
 */
#include <math.h>
#include <stdio.h>

#include "heap/fast.h"
#include "heap/heap.h"
#include "heap/thread.h"
#include "heap/track.h"
#include "prof/extract.h"
#include "prof/prof.h"
#include "profile/interval.h"
#include "unit.h"

enum { KIB = 1 << 10, MIB = 1 << 20, MOST_HELD = 1 << 18, SLICE_SEEDS = 25, WHOLE_SEEDS = 1000 };

/* ---------------------------------------------------------------- programs */

static void *held[MOST_HELD];
static unsigned held_count;

static void hold(void *block) {
    check(block != NULL && held_count < MOST_HELD);
    held[held_count++] = block;
}

static void release_all(void) {
    while (held_count > 0) {
        tally_free(held[--held_count]);
    }
}

/* Two call stacks that allocate.  The asm keeps the compiler from leaving by a jump. */
static __attribute__((noinline)) void *allocate_here(size_t size) {
    void *block = tally_malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static __attribute__((noinline)) void *allocate_there(size_t size) {
    void *block = tally_malloc(size);
    __asm__ volatile("nop" : "+r"(block));
    return block;
}

static __attribute__((noinline)) void *resize(void *block, size_t size) {
    block = tally_realloc(block, size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static void small_blocks(struct random *random) {
    for (unsigned i = 0; i < 80000; i++) {
        hold(allocate_here(16 + random_below(random, 500)));
        if (i % 4 == 0) {
            hold(allocate_there(1000));
        }
    }
    for (unsigned i = 0; i < 30000; i++) { /* so that the peak is over */
        tally_free(held[--held_count]);
    }
}

static void large_blocks(struct random *random) {
    for (unsigned i = 0; i < 150; i++) {
        hold(allocate_here(40 * KIB + random_below(random, 500 * KIB)));
        if (i % 3 == 0) {
            hold(allocate_there(100 * KIB));
        }
    }
    for (unsigned i = 0; i < 50; i++) {
        tally_free(held[--held_count]);
    }
}

static void *copy_into(void *block, size_t bytes, size_t size) {
    void *larger = allocate_here(size);
    (void)bytes;
    tally_free(block);
    return larger;
}

static void vectors_by_copy(struct random *random) {
    for (unsigned i = 0; i < 200; i++) {
        size_t size = 64, wanted = 10 * KIB + random_below(random, 400 * KIB);
        void *block = allocate_there(size);
        for (; size < wanted; size *= 2) {
            block = copy_into(block, size, 2 * size);
        }
        hold(block);
    }
}

/* A block that grows to some size, by this factor in quarters. */
static void grow_one(size_t wanted, size_t quarters) {
    size_t size = 64;
    void *block = allocate_there(size);
    while (size < wanted) {
        size = size * quarters / 4;
        block = resize(block, size);
    }
    hold(block);
}

static void realloc_by_half(struct random *random) {
    for (unsigned i = 0; i < 120; i++) {
        grow_one(10 * KIB + random_below(random, 900 * KIB), 6);
    }
}

static void realloc_doubling(struct random *random) {
    for (unsigned i = 0; i < 120; i++) {
        grow_one(10 * KIB + random_below(random, 900 * KIB), 8);
    }
}

static void shrinking(struct random *random) {
    for (unsigned i = 0; i < 150; i++) {
        void *block = allocate_here(MIB);
        block = resize(block, 300 * KIB + random_below(random, 300 * KIB));
        hold(i % 2 == 0 ? block : resize(block, 40 * KIB));
    }
}

static void moved_by_pages(struct random *random) {
    (void)random;
    for (unsigned i = 0; i < 6; i++) {
        void *block = allocate_here(MIB);
        for (size_t size = 2; size <= 12; size++) {
            block = resize(block, size * MIB);
            hold(allocate_there(50 * KIB)); /* behind it, so that it has to move */
        }
        hold(block);
    }
}

static __attribute__((noinline)) void *allocate_aligned(size_t alignment, size_t size) {
    void *block = tally_memalign(alignment, size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static void aligned(struct random *random) {
    for (unsigned i = 0; i < 20000; i++) {
        hold(allocate_aligned((size_t)64 << random_below(random, 5),
                              1 + random_below(random, 2000)));
        hold(allocate_here(100));
    }
}

static void short_lived(struct random *random) {
    for (unsigned i = 0; i < 20000; i++) {
        hold(allocate_there(800));
    }
    for (unsigned i = 0; i < 200000; i++) {
        tally_free(allocate_here(16 + random_below(random, 300)));
    }
}

static void few_large(struct random *random) {
    (void)random;
    for (unsigned i = 0; i < 8; i++) {
        hold(allocate_here(MIB));
    }
}

static void little(struct random *random) {
    for (unsigned i = 0; i < 8000; i++) {
        hold(allocate_here(16 + random_below(random, 200)));
    }
}

/* Nodes, strings, and arrays that grow while they are read; half of all documents stay. */
static void parser(struct random *random) {
    for (unsigned document = 0; document < 200; document++) {
        unsigned before = held_count;
        size_t room = 64;
        void *array = allocate_there(room);
        unsigned values = 100 + (unsigned)random_below(random, 2000);
        for (unsigned i = 0; i < values; i++) {
            hold(allocate_here(40));
            hold(allocate_there(8 + random_below(random, 60)));
            if ((i + 1) * sizeof(void *) > room) {
                room = room * 3 / 2;
                array = resize(array, room);
            }
        }
        hold(array);
        while (document % 2 == 0 && held_count > before) {
            tally_free(held[--held_count]);
        }
    }
}

enum { THREADS = 4, BLOCKS_OF_THREAD = 20000 };
static pthread_barrier_t all_hold;
static _Atomic unsigned next_thread;

static void *hold_in_thread(void *unused) {
    (void)unused;
    void **mine = &held[next_thread++ % THREADS * BLOCKS_OF_THREAD];
    for (unsigned i = 0; i < BLOCKS_OF_THREAD; i++) {
        mine[i] = i % 2 == 0 ? allocate_here(300) : allocate_there(50);
    }
    pthread_barrier_wait(&all_hold);
    for (unsigned i = 0; i < BLOCKS_OF_THREAD / 2; i++) {
        tally_free(mine[i]);
        mine[i] = NULL;
    }
    return NULL;
}

static void threads(struct random *random) {
    (void)random;
    pthread_barrier_init(&all_hold, NULL, THREADS);
    run_threads(THREADS, hold_in_thread, NULL);
    pthread_barrier_destroy(&all_hold);
    held_count = THREADS * BLOCKS_OF_THREAD;
}

static const struct program {
    const char *name;
    void (*run)(struct random *random);
    bool is_coarse; /* few objects, or few samples: the interval holds the truth more often */
    /* Most of its allocations are tiny beside the rest, and few of them are seen: how many there were cannot be
     * told from the others. */
    bool is_skewed;
} programs[] = {
    {"small blocks", small_blocks, false, false},
    {"large blocks", large_blocks, true, false},
    {"vectors by copy", vectors_by_copy, false, true},
    {"realloc by 1.5", realloc_by_half, true, true},
    {"realloc doubling", realloc_doubling, true, true},
    {"shrinking", shrinking, true, false},
    {"moved by pages", moved_by_pages, true, false},
    {"aligned", aligned, false, false},
    {"threads", threads, false, false},
    {"short-lived", short_lived, false, false},
    {"few large", few_large, true, false},
    {"little", little, true, false},
    {"parser", parser, false, false},
};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

/* ---------------------------------------------------------------- figures */

/* Bytes and objects of each: what lives, lived at the peak, was ever allocated. */
enum { FIGURES = 6 };
static const char *const figure_names[FIGURES] = {"live bytes",      "live objects",
                                                  "peak bytes",      "peak objects",
                                                  "allocated bytes", "allocated objects"};

/* One figure of one run: the interval's facts, and what jeprof would make of the same samples. */
struct figure {
    struct interval_facts facts;
    double by_jeprof;
};

struct figures {
    struct figure all[FIGURES], top[FIGURES];
};

static void add_sum(struct figure *bytes, const struct prof_sum *sum, double rate) {
    struct figure *objects = bytes + 1;
    interval_add(&bytes->facts, interval_row(sum->all_bytes, sum->byte_variance, rate));
    interval_add(&objects->facts, interval_row(sum->all_objects, sum->object_variance, 0));
    if (sum->objects > 0) {
        double mean = (double)sum->bytes / (double)sum->objects;
        double scale = rate > 1 ? 1 / -expm1(-mean / rate) : 1;
        bytes->by_jeprof += scale * (double)sum->bytes;
        objects->by_jeprof += scale * (double)sum->objects;
    }
}

static void add_context(struct figure *figures, const struct prof_context *context, double rate) {
    add_sum(&figures[0], &context->live, rate);
    add_sum(&figures[2], &context->peak, rate);
    add_sum(&figures[4], &context->accumulated, rate);
}

/* The stacks that have most of what lives, lived at the peak, and was ever allocated. */
struct tops {
    uint32_t live, peak, allocated;
};

static void read_figures(struct figures *figures, const struct tops *tops, double rate) {
    *figures = (struct figures){0};
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        struct prof_context context;
        if (!prof_read_context(i, &context)) {
            continue;
        }
        add_context(figures->all, &context, rate);
        if (context.stack == tops->live) {
            add_sum(&figures->top[0], &context.live, rate);
        }
        if (context.stack == tops->peak) {
            add_sum(&figures->top[2], &context.peak, rate);
        }
        if (context.stack == tops->allocated) {
            add_sum(&figures->top[4], &context.accumulated, rate);
        }
    }
}

static void note_top(uint32_t *top, double *most, uint32_t stack, double bytes) {
    if (bytes > *most) {
        *top = stack;
        *most = bytes;
    }
}

static struct tops find_tops(void) {
    struct tops tops = {0};
    double live = 0, peak = 0, allocated = 0;
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        struct prof_context context;
        if (prof_read_context(i, &context)) {
            note_top(&tops.live, &live, context.stack, context.live.all_bytes);
            note_top(&tops.peak, &peak, context.stack, context.peak.all_bytes);
            note_top(&tops.allocated, &allocated, context.stack, context.accumulated.all_bytes);
        }
    }
    return tops;
}

/* Nothing is left in a cache that another rate, or another seed, has filled. */
static void run_program(const struct program *program, unsigned lg_rate, uint64_t seed) {
    thread_mark_inside(true);
    thread_flush();
    thread_flush_left();
    track_seed(seed * UINT64_C(0xd1342543de82ef95));
    prof_reset(lg_rate);
    thread_mark_inside(false);
    struct random random = random_start(1, 1);
    program->run(&random);
}

/* ---------------------------------------------------------------- judging */

struct cell {
    unsigned runs, hits;
    double errors[WHOLE_SEEDS], errors_by_jeprof[WHOLE_SEEDS];
};

static void judge(struct cell *cell, const struct figure *figure, double truth, double period) {
    struct interval interval = interval_find(&figure->facts, period);
    if (truth == 0 || isinf(interval.high)) {
        return; /* The command shows none. */
    }
    cell->errors[cell->runs] = fabs(figure->facts.sum / truth - 1);
    cell->errors_by_jeprof[cell->runs] = fabs(figure->by_jeprof / truth - 1);
    cell->hits += interval.low <= truth * (1 + 1e-9) && truth <= interval.high * (1 + 1e-9);
    cell->runs++;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* Five deviations and a little more, where the distribution is no normal one. */
static void check_cell(const struct cell *cell, const struct program *program, const char *scope,
                       unsigned figure, unsigned lg_rate) {
    double runs = cell->runs, share = cell->hits / runs;
    double least = 0.93, most = 0.97;
    double slack = 5 * sqrt(least * (1 - least) / runs) + 2 / runs;
    bool is_certain = !(program->is_skewed && figure == FIGURES - 1);
    bool is_right =
        (share >= least - slack || !is_certain) && (share <= most + slack || program->is_coarse);
    if (getenv("STRESS") != NULL) {
        printf("%s,%u,%s,%s,%u,%.1f,%.2f,%.2f\n", program->name, 1u << (lg_rate - 10), scope,
               figure_names[figure], cell->runs, 100 * share,
               100 * median((double *)cell->errors, cell->runs),
               100 * median((double *)cell->errors_by_jeprof, cell->runs));
    }
    if (!is_right) {
        printf("%s at %u KiB, %s %s: %u of %u intervals hold the truth\n", program->name,
               1u << (lg_rate - 10), scope, figure_names[figure], cell->hits, cell->runs);
    }
    fflush(stdout);
    check(is_right);
}

static void cover(const struct program *program, unsigned lg_rate, unsigned seeds) {
    static struct cell all[FIGURES], top[FIGURES];
    struct figures truth, figures;
    memset(all, 0, sizeof all);
    memset(top, 0, sizeof top);
    struct tops tops = {0};
    for (uint64_t seed = 0; seed <= seeds; seed++) { /* 0: the truth, from the same call */
        run_program(program, seed == 0 ? 0 : lg_rate, seed);
        double rate = seed == 0 ? 1 : (double)(1u << lg_rate);
        tops = seed == 0 ? find_tops() : tops;
        read_figures(seed == 0 ? &truth : &figures, &tops, rate);
        release_all();
        for (unsigned i = 0; i < FIGURES && seed > 0; i++) {
            double period = i % 2 == 0 ? rate : 0;
            judge(&all[i], &figures.all[i], truth.all[i].facts.sum, period);
            judge(&top[i], &figures.top[i], truth.top[i].facts.sum, period);
        }
    }
    for (unsigned i = 0; i < FIGURES; i++) {
        if (all[i].runs > seeds / 2) {
            check_cell(&all[i], program, "program", i, lg_rate);
        }
        if (top[i].runs > seeds / 2) {
            check_cell(&top[i], program, "top stack", i, lg_rate);
        }
    }
}

static void cover_all(unsigned lg_rate) {
    start_heap_with("narenas:1,background_thread:false");
    prof_reset(0);
    prof_set_active(true);
    unsigned seeds = getenv("STRESS") != NULL ? WHOLE_SEEDS : SLICE_SEEDS;
    for (unsigned i = 0; i < PROGRAMS; i++) {
        cover(&programs[i], lg_rate, seeds);
    }
}

TEST(intervals_hold_the_truth_at_64_kib) {
    cover_all(16);
}

TEST(intervals_hold_the_truth_at_512_kib) {
    cover_all(19);
}
