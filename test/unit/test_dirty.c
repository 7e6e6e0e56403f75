/* SPDX-License-Identifier: MIT
 *
 * test_dirty.c - what is kept and when it goes: by time, by volume, by wish, and when the kernel
 * refuses.  The clock is the test's own, and so is the kernel's answer: the linker turns os_now_ms,
 * os_purge and os_purge_lazily into the functions below.
 */
#include "heap/dirty.h"

#include <errno.h>

#include "base/os.h"
#include "heap/classmap.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "heap/pages.h"
#include "opt/opt.h"
#include "unit.h"

enum { DECAY_MS = 1000, STEP_MS = 20, MIB_UNITS = (1 << 20) / UNIT_BYTES };

static struct {
    uint64_t now_ms;
    bool refuse;
    unsigned asked; /* calls of os_purge and os_purge_lazily */
    uintptr_t lazily;
} fake = {.now_ms = 5000};

int __real_os_purge(void *start, size_t bytes);
int __real_os_purge_lazily(void *start, size_t bytes);
uint64_t __wrap_os_now_ms(void);
int __wrap_os_purge(void *start, size_t bytes);
int __wrap_os_purge_lazily(void *start, size_t bytes);

uint64_t __wrap_os_now_ms(void) {
    return fake.now_ms;
}

int __wrap_os_purge(void *start, size_t bytes) {
    fake.asked++;
    return fake.refuse ? -EINVAL : __real_os_purge(start, bytes);
}

int __wrap_os_purge_lazily(void *start, size_t bytes) {
    fake.asked++;
    fake.lazily = (uintptr_t)start;
    return fake.refuse ? -EINVAL : __real_os_purge_lazily(start, bytes);
}

/* As in a process with a background thread, unless a test says otherwise. */
static void start(void) {
    start_heap_with("narenas:1,background_thread:false");
    pages_purge_all();
    dirty_has_background = true;
}
TEST_SETUP(start);

static uintptr_t take(size_t units) {
    bool zeroed;
    struct span *span = pages_take(units, 1, PAGES_MAY_GROW, &zeroed);
    check(span != NULL);
    span->kind = SPAN_LARGE;
    span->bytes = units * UNIT_BYTES;
    memset((void *)span->base, 0x5a, units * UNIT_BYTES);
    return span->base;
}

static void give(uintptr_t base, size_t units) {
    classmap_span(base)->kind = SPAN_NONE;
    pages_give_back(base, units);
    pages_verify();
}

/* Takes so many units and gives them back: they are dirty. */
static uintptr_t leave_dirty(size_t units) {
    uintptr_t base = take(units);
    give(base, units);
    return base;
}

static size_t dirty(void) {
    check_eq(pages_totals().dirty, dirty_totals().dirty * UNIT_BYTES);
    return dirty_totals().dirty;
}

static uint64_t tick_after(uint64_t ms) {
    fake.now_ms += ms;
    uint64_t wait = pages_tick();
    pages_verify();
    return wait;
}

/* ---------------------------------------------------------------- by time */

TEST(free_memory_leaves_by_and_by) {
    enum { UNITS = 10 * CHUNK_UNITS };
    tick_after(0);
    leave_dirty(UNITS);
    size_t before = dirty();
    check_eq(before, UNITS);
    for (unsigned step = 1; step <= DECAY_MS / STEP_MS; step++) {
        uint64_t wait = tick_after(STEP_MS);
        check(dirty() <= before);
        check(before - dirty() <=
              UNITS / 25); /* The curve falls by 1.875 / 50 in a step at most. */
        check_eq(wait == UINT64_MAX, dirty() == 0);
        before = dirty();
        if (step == DECAY_MS / STEP_MS / 2) {
            check(before > UNITS * 45 / 100 && before < UNITS * 55 / 100);
        }
    }
    check_eq(before, 0);
    check(dirty_totals().purged >= UNITS);
}

TEST(wait_tells_when_to_come_again) {
    tick_after(0);
    leave_dirty(100);
    unsigned ticks = 0;
    uint64_t passed = 0;
    for (uint64_t wait = pages_tick(); wait != UINT64_MAX; ticks++) {
        size_t before = dirty();
        passed += wait;
        wait = tick_after(wait);
        check(dirty() < before);
    }
    check(ticks <= DECAY_MS / STEP_MS && passed <= DECAY_MS + STEP_MS);
}

TEST(never_means_never) {
    dirty_decay_ms[CHUNK_DIRTY] = -1;
    leave_dirty(1000);
    for (unsigned day = 0; day < 10; day++) {
        check(tick_after(UINT64_C(24) * 3600 * 1000) != UINT64_MAX);
    }
    check_eq(dirty(), 1000);
    dirty_has_background = false;
    leave_dirty(2000);
    check(dirty() >= 2000);
}

TEST(clock_may_stand_still_and_go_back) {
    tick_after(0);
    leave_dirty(1000);
    for (unsigned i = 0; i < 100; i++) {
        tick_after(0);
    }
    check_eq(dirty(), 1000);
    tick_after(DECAY_MS / 4);
    size_t left = dirty();
    fake.now_ms -= 4000;
    tick_after(0);
    check_eq(dirty(), left);
    for (unsigned step = 0; step < DECAY_MS / STEP_MS; step++) {
        tick_after(STEP_MS);
    }
    check_eq(dirty(), 0);
}

TEST(clock_that_jumps_a_day_takes_what_was_there_and_nothing_newer) {
    tick_after(0);
    leave_dirty(1000);
    fake.now_ms += 24 * 3600 * 1000;
    uintptr_t base = take(3000);
    give(base, 3000); /* Looks at the clock before the units are counted. */
    check(dirty() >= 2000);
    tick_after(STEP_MS);
    check(dirty() >= 1900);
}

TEST(memory_in_use_again_is_not_given_back) {
    tick_after(0);
    for (unsigned round = 0; round < 100; round++) {
        uintptr_t base = take(1000);
        tick_after(STEP_MS);
        give(base, 1000);
        tick_after(STEP_MS);
    }
    check(dirty_totals().purged < 1000);
}

TEST(part_of_a_chunk_is_purged_from_its_end) {
    uintptr_t base = take(CHUNK_UNITS);
    struct chunk *chunk = classmap_chunk(base);
    tick_after(0);
    give(base, CHUNK_UNITS);
    tick_after(DECAY_MS / 2);
    unsigned left = chunk_count_units(chunk->touched);
    check(left > 50 && left < 80);
    check(chunk->touched == chunk_units(0, left));
}

/* ---------------------------------------------------------------- muzzy */

TEST(muzzy_memory_is_offered_first_and_taken_later) {
    dirty_decay_ms[CHUNK_MUZZY] = 3000;
    tick_after(0);
    uintptr_t base = leave_dirty(1000);
    size_t purged = dirty_totals().purged;
    tick_after(DECAY_MS / 2);
    check(dirty() > 0 && dirty_totals().muzzy > 0);
    check_eq(dirty() + dirty_totals().muzzy, 1000);
    tick_after(DECAY_MS / 2);
    check_eq(dirty(), 0);
    check(dirty_totals().muzzy > 900); /* The first ones have begun to leave. */
    check_eq(dirty_totals().muzzy + dirty_totals().purged - purged, 1000);
    check_eq(pages_totals().muzzy, dirty_totals().muzzy * UNIT_BYTES);
    check(fake.lazily >= base && fake.lazily < base + 1000 * UNIT_BYTES);
    for (unsigned step = 0; step < 50; step++) {
        tick_after(3000 / 50);
    }
    check_eq(dirty_totals().muzzy, 0);
    check_eq(dirty_totals().purged, purged + 1000);
    check_eq(pages_tick(), UINT64_MAX);
}

TEST(muzzy_memory_is_never_zero_and_counts_when_it_is_used_again) {
    dirty_decay_ms[CHUNK_MUZZY] = -1;
    tick_after(0);
    uintptr_t base = leave_dirty(100);
    tick_after(DECAY_MS);
    check_eq(dirty_totals().muzzy, 100);
    bool zeroed = true;
    struct span *span = pages_take(60, 1, PAGES_USED_BEFORE, &zeroed);
    check(span != NULL && span->base == base);
    check(!zeroed);
    check_eq(dirty_totals().muzzy, 40);
    pages_verify();
    pages_give_back(base, 60);
    check_eq(dirty(), 60);
    check_eq(dirty_totals().muzzy, 40);
    tick_after(UINT64_C(100) * DECAY_MS);
    check_eq(dirty_totals().muzzy, 100);
    check(pages_purge_all() >= 100 * UNIT_BYTES);
    check_eq(dirty() + dirty_totals().muzzy, 0);
    span = pages_take(100, 1, PAGES_IN_CHUNKS, &zeroed);
    check(span != NULL && zeroed);
}

/* ---------------------------------------------------------------- by volume */

TEST(without_a_background_thread_little_is_kept) {
    dirty_has_background = false;
    leave_dirty(64 * MIB_UNITS);
    check(dirty() <= 4 * MIB_UNITS && dirty() > 3 * MIB_UNITS);
    fake.now_ms += 2 * DECAY_MS;
    tick_after(0);
    uintptr_t slabs[1000];
    for (unsigned i = 0; i < 1000; i++) {
        slabs[i] = take(1);
    }
    for (unsigned i = 0; i < 1000; i++) {
        give(slabs[i], 1);
        check(dirty() <= 4 * MIB_UNITS);
    }
}

TEST(large_heap_keeps_a_sixteenth) {
    dirty_has_background = false;
    uintptr_t live = take(160 * MIB_UNITS);
    leave_dirty(40 * MIB_UNITS);
    check(dirty() <= 10 * MIB_UNITS && dirty() > 9 * MIB_UNITS);
    give(live, 160 * MIB_UNITS);
    check(dirty() <= 4 * MIB_UNITS);
}

static size_t saw_tooth(unsigned rounds) {
    size_t purged = dirty_totals().purged;
    for (unsigned round = 0; round < rounds; round++) {
        leave_dirty(64 * MIB_UNITS);
        fake.now_ms += 5;
    }
    return dirty_totals().purged - purged;
}

/* Little work that reaches the clock. */
static void calm_down(unsigned decay_times) {
    for (unsigned i = 0; i < decay_times * 10; i++) {
        fake.now_ms += DECAY_MS / 10;
        leave_dirty(16);
    }
}

TEST(saw_tooth_pays_once_and_a_calm_program_is_bounded_again) {
    dirty_has_background = false;
    check(!dirty_keeps_much);
    check(saw_tooth(3) >= 55 * MIB_UNITS);
    check(saw_tooth(300) < 5 * MIB_UNITS); /* 1.5 s: the curve may take a little */
    check(dirty() > 55 * MIB_UNITS);
    check(dirty_keeps_much);
    calm_down(12);
    check(!dirty_keeps_much);
    leave_dirty(64 * MIB_UNITS);
    check(dirty() <= 5 * MIB_UNITS);
}

/* What was purged early and is needed much later is no reason to keep more. */
TEST(need_after_a_decay_time_is_no_regret) {
    dirty_has_background = false;
    for (unsigned round = 0; round < 10; round++) {
        leave_dirty(64 * MIB_UNITS);
        check(dirty() <= 4 * MIB_UNITS);
        fake.now_ms += 2 * DECAY_MS;
        tick_after(0);
    }
}

/* ---------------------------------------------------------------- the rest */

TEST(refused_memory_stays_and_is_tried_again_after_a_second) {
    tick_after(0);
    leave_dirty(1000);
    fake.refuse = true;
    fake.asked = 0;
    tick_after(DECAY_MS);
    check_eq(dirty(), 1000);
    unsigned asked = fake.asked;
    check(asked > 0);
    for (unsigned i = 0; i < 9; i++) {
        check(tick_after(100) >= 100);
    }
    check_eq(fake.asked, asked);
    tick_after(101);
    check(fake.asked > asked);
    fake.refuse = false;
    tick_after(1001);
    check_eq(dirty(), 0);
}

TEST(refused_excess_does_not_make_every_free_ask_again) {
    dirty_has_background = false;
    fake.refuse = true;
    leave_dirty(64 * MIB_UNITS);
    check_eq(dirty(), 64 * MIB_UNITS);
    fake.asked = 0;
    for (unsigned i = 0; i < 100; i++) {
        leave_dirty(32);
    }
    check_eq(fake.asked, 0);
}

TEST(spans_of_a_chunk_without_memory_are_given_back) {
    enum { SLABS = 3 * CHUNK_UNITS };
    uintptr_t slabs[SLABS];
    for (unsigned i = 0; i < SLABS; i++) {
        slabs[i] = take(1);
    }
    struct chunk *chunk = classmap_chunk(slabs[SLABS / 2]); /* used by these slabs alone */
    chunk->span[CHUNK_UNITS / 2].bits[0] = 77;
    for (unsigned i = 0; i < SLABS; i++) {
        give(slabs[i], 1);
    }
    check_eq(chunk->span[CHUNK_UNITS / 2].bits[0], 77);
    pages_purge_all();
    check_eq(chunk->used, 0);
    check_eq(chunk->span[CHUNK_UNITS / 2].bits[0], 0);
    heap_verify();
}

TEST(random_use_keeps_every_invariant) {
    struct random random = random_start(32, 0);
    static uintptr_t held[300];
    static size_t units[300];
    dirty_decay_ms[CHUNK_MUZZY] = 500;
    for (unsigned step = 0; step < 5000 / SLOWER; step++) {
        unsigned i = (unsigned)random_below(&random, 300);
        if (held[i] != 0) {
            give(held[i], units[i]);
            held[i] = 0;
        } else {
            units[i] = 1 + random_below(&random, random_below(&random, 20) == 0 ? 300 : 10);
            held[i] = take(units[i]);
        }
        if (random_below(&random, 50) == 0) {
            tick_after(random_below(&random, 200));
        }
        fake.refuse = random_below(&random, 20) == 0;
        dirty_has_background = random_below(&random, 2) == 0;
    }
    fake.refuse = false;
    pages_purge_all();
    check_eq(dirty() + dirty_totals().muzzy, 0);
    pages_verify();
}
