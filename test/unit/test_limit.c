/* SPDX-License-Identifier: MIT
 *
 * test_limit.c - the limits as the page heap sees them: what is refused, and when a crossing of the
 * soft limit is noticed, attended to and noticed again.
 */
#include "heap/limit.h"

#include <errno.h>

#include "base/attention.h"
#include "base/os.h"
#include "heap/classmap.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/meta.h"
#include "opt/opt.h"
#include "unit.h"

static const size_t MIB = 1 << 20;

/* Nothing is given back behind a test's back. */
static void start(void) {
    start_heap_with("dirty_decay_ms:-1,narenas:2"); /* metadata as small on any machine */
}
TEST_SETUP(start);

static void *take(size_t bytes) {
    bool zeroed;
    return heap_alloc(bytes, &zeroed);
}

static bool is_pending(void) {
    return attention_get() & ATTENTION_SOFT_LIMIT;
}

/* What the end of a slow call does. */
static void attend(void) {
    if (attention_take(ATTENTION_SOFT_LIMIT)) {
        heap_trim();
        limit_tell_program();
    }
}

static void give(void *block) {
    struct heap_object object = heap_look(block);
    check_eq(object.verdict, HEAP_LIVE);
    check(heap_free(&object));
}

/* ---------------------------------------------------------------- what is held */

TEST(held_is_spans_and_kept_pages_and_metadata) {
    void *block = take(10 * MIB);
    struct heap_totals t = heap_totals();
    size_t spans = t.live + t.cached + t.slab_free + t.large_rest;
    check_eq(limit_held(), spans + t.dirty + t.metadata);
    give(block);
    t = heap_totals();
    check(t.dirty >= 10 * MIB);
    check_eq(limit_held(), t.live + t.cached + t.slab_free + t.large_rest + t.dirty + t.metadata);
}

TEST(held_falls_when_pages_go_back_and_not_before) {
    void *block = take(10 * MIB);
    size_t held = limit_held();
    give(block);
    check_eq(limit_held(), held);
    heap_trim();
    check(limit_held() <= held - 10 * MIB);
}

/* ---------------------------------------------------------------- the hard limit */

TEST(without_a_limit_everything_is_allowed) {
    check(!limit_is_hard());
    check(limit_allows(SIZE_MAX));
}

TEST(hard_limit_allows_up_to_itself_and_not_a_byte_more) {
    size_t held = limit_held();
    limit_set(0, held + 1000);
    check(limit_is_hard());
    check(limit_allows(1000));
    check(!limit_allows(1001));
    check(!limit_allows(SIZE_MAX));
    limit_set(0, held - 1);
    check(!limit_allows(0));
    limit_set(0, 0);
    check(limit_allows(SIZE_MAX));
}

TEST(large_request_above_the_hard_limit_fails_and_leaves_nothing_behind) {
    heap_trim();
    limit_set(0, limit_held() + 20 * MIB);
    size_t held = limit_held();
    size_t mapped = heap_totals().mapped;
    check(take((size_t)1 << 40) == NULL);
    check(take(21 * MIB) == NULL);
    check_eq(limit_held(), held);
    check_eq(heap_totals().mapped, mapped);
    void *block = take(19 * MIB);
    check(block != NULL);
    check(take(2 * MIB) == NULL);
    give(block);
    check(take(19 * MIB) != NULL);
    heap_verify();
}

TEST(kept_pages_are_reused_under_a_hard_limit_without_being_given_back) {
    limit_set(0, limit_held() + 10 * MIB);
    void *block = take(9 * MIB);
    check(block != NULL);
    for (unsigned i = 0; i < 100; i++) {
        size_t purged = pages_totals().purged;
        give(block);
        block = take(9 * MIB);
        check(block != NULL);
        check_eq(pages_totals().purged, purged);
    }
}

TEST(kept_pages_make_way_for_a_request_elsewhere) {
    void *first = take(9 * MIB);
    void *second = take(MIB);
    limit_set(0, limit_held() + MIB);
    give(first);
    check(heap_totals().dirty >= 9 * MIB);
    check(take(9 * MIB + MIB / 2) != NULL); /* Does not fit where the first one was. */
    give(second);
    heap_verify();
}

TEST(growing_in_place_respects_the_hard_limit) {
    void *block = take(3 * MIB);
    struct heap_object object = heap_look(block);
    limit_set(0, limit_held() + 64 * 1024);
    check(!heap_resize(&object, 3 * MIB + MIB / 2));
    limit_set(0, 0);
    check(heap_resize(&object, 3 * MIB + MIB / 2));
    heap_verify();
}

TEST(small_requests_fail_at_the_hard_limit_and_succeed_after_frees) {
    enum { MOST = 100000 };
    static void *objects[MOST];
    size_t hard = limit_held() + 4 * MIB;
    limit_set(0, hard);
    for (unsigned round = 0; round < 3; round++) {
        unsigned count = 0;
        while (count < MOST && (objects[count] = tally_malloc(100)) != NULL) {
            check(limit_held() <= hard);
            count++;
        }
        check(count > 20000 && count < MOST);
        check_eq(errno, ENOMEM);
        while (count > 0) {
            tally_free(objects[--count]);
        }
    }
    heap_verify();
}

TEST(descriptors_are_refused_at_the_hard_limit) {
    limit_set(0, limit_held() + 1000);
    check(meta_alloc(2000, 16) == NULL);
    check(meta_alloc(500, 16) != NULL);
    check(meta_alloc(600, 16) == NULL);
}

/* ---------------------------------------------------------------- the soft limit */

static struct {
    unsigned calls;
    size_t held;
    void *context;
} told;

static void note_call(size_t held, void *context) {
    told.calls++;
    told.held = held;
    told.context = context;
}

TEST(soft_limit_is_noticed_when_crossed_and_only_then) {
    limit_set(limit_held() + 5 * MIB, 0);
    void *below = take(4 * MIB);
    check(!limit_soft_is_exceeded() && !is_pending());
    void *above = take(4 * MIB);
    check(limit_soft_is_exceeded() && is_pending());
    attend();
    check(limit_soft_is_exceeded() && !is_pending());
    give(take(4 * MIB));
    check(!is_pending());
    give(above);
    check(!limit_soft_is_exceeded());
    above = take(4 * MIB);
    check(is_pending());
    give(below);
    give(above);
}

TEST(attending_gives_back_and_calls_once_with_what_is_still_held) {
    limit_on_soft(note_call, &told);
    limit_set(limit_held() + 5 * MIB, 0);
    void *block = take(4 * MIB);
    give(take(MIB / 2));
    void *above = take(3 * MIB);
    check(heap_totals().dirty > 0);
    attend();
    attend();
    check_eq(told.calls, 1);
    check_eq(told.context, &told);
    check_eq(told.held, limit_held());
    check_eq(heap_totals().dirty, 0);
    give(block);
    give(above);
}

TEST(above_the_soft_limit_freed_pages_are_not_kept) {
    limit_set(limit_held() + 5 * MIB, 0);
    void *keep = take(8 * MIB);
    attend();
    void *block = take(3 * MIB);
    size_t held = limit_held();
    give(block);
    check(limit_held() <= held - 3 * MIB);
    check_eq(heap_totals().dirty, 0);
    give(keep);
}

TEST(crossing_again_from_just_below_is_not_noticed) {
    limit_set(32 * MIB, 0);
    void *low = take(29 * MIB);
    void *high = take(2 * MIB + MIB / 2);
    void *top = take(MIB);
    attend();
    give(top);
    check(limit_held() <= 32 * MIB && limit_held() > 30 * MIB);
    top = take(MIB);
    check(!is_pending());
    give(top);
    give(high);
    check(limit_held() <= 30 * MIB);
    high = take(3 * MIB + MIB / 2);
    check(is_pending());
    give(high);
    give(low);
}

TEST(setting_a_soft_limit_below_what_is_held_is_a_crossing) {
    void *block = take(8 * MIB);
    limit_on_soft(note_call, NULL);
    limit_set(MIB, 0);
    check(is_pending() && limit_soft_is_exceeded());
    attend();
    limit_set(2 * MIB, 0);
    check(is_pending());
    attend();
    check_eq(told.calls, 2);
    limit_set(0, 0);
    check(!is_pending() && !limit_soft_is_exceeded());
    give(block);
}

/* Falls below the limit and crosses it again, which must not lead to a call inside the call. */
static unsigned depth, deepest;

static void cross_again(size_t held, void *context) {
    (void)held;
    depth++;
    deepest = depth > deepest ? depth : deepest;
    give(*(void **)context);
    check(!limit_soft_is_exceeded());
    *(void **)context = take(8 * MIB);
    check(is_pending());
    attend();
    check(!is_pending());
    depth--;
}

TEST(callback_that_crosses_again_is_not_called_inside_itself) {
    void *block = NULL;
    limit_set(limit_held() + 5 * MIB, 0);
    limit_on_soft(cross_again, &block);
    block = take(8 * MIB);
    attend();
    check_eq(deepest, 1);
    give(block);
}

/* ---------------------------------------------------------------- options */

TEST(limits_come_from_the_options) {
    opt_parse("limit_soft:3m,limit_hard:0x500000", "TEST_CONF");
    limit_init();
    check(limit_is_hard());
    check(limit_allows(5 * MIB - limit_held()));
    check(!limit_allows(5 * MIB - limit_held() + 1));
    void *block = take(3 * MIB);
    check(block != NULL);
    check(is_pending());
    give(block);
}

/* ---------------------------------------------------------------- a late limit of the kernel */

TEST(refusal_without_a_limit_changes_nothing) {
    if (os_facts.address_space_limited) {
        skip("the address space is limited from the start");
    }
    limit_notice_late();
    check(!os_facts.address_space_limited);
    check(!classmap_is_windowed());
}

TEST(refusal_under_a_late_limit_ends_all_reserving) {
    if (os_facts.address_space_limited) {
        skip("the address space is limited from the start");
    }
    if (SANITIZED) {
        skip("a sanitizer needs addresses without a limit");
    }
    void *block = take(3 * MIB);
    limit_address_space(400 * MIB);
    limit_notice_late();
    check(os_facts.address_space_limited);
    check(classmap_is_windowed());
    limit_notice_late();
    give(block);
    check(take(20 * MIB) != NULL);
    heap_verify();
}
