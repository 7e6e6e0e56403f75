/* SPDX-License-Identifier: MIT
 *
 * stats_page.c - writes the page of counters that stats_page.h describes, now and then.
 *
 * There is no thread or timer for it: the page is renewed by slow calls of the program, and those
 * pay for it only when a bit of the attention word is set (base/attention.h).  The bit is set by:
 *
 *      every look at the clock of the page heap    heap/dirty.c    when it is time
 *      every 16th visit of a depot or bin          heap/cache.c    the same
 *      the same places, and heap/pages.c           when what is in use has moved by a step
 *      the bit itself, by staying set              here: unless slow calls are many
 *
 * In a program that makes few slow calls the bit stays set, each slow call reads the clock, and the
 * page is never more than 100 ms older than the last slow call.  In a program that makes many, the
 * bit is cleared after CALLS_PER_TICK calls within a tick of the clock, until one of the others
 * above sets it again.
 *
 * Any call may be the program's last.  So whatever moves by a step, a part of what is live, is shown at
 * once, as long as there is credit, which time brings.  A slow call that is not shown sets the word
 * `behind`, so that a reader knows.  The background thread, where there is one, then renews the page within
 * a second; it goes on once a second until nothing has moved, and rests until the next slow call wakes it.
 *
 * The page and everything about it lie in memory that is empty in a forked child, so a child cannot
 * write to its parent's page, however it was made.  It makes its own at a slow call: most children
 * exec before they come to that.
 *
 * Threads     One thread at a time renews the page; others do not wait for it.
 * Cost        Some microseconds ten times a second, and for each step.  A heap whose figures take longer to
 *             read is read less often, so that each of the two never exceeds half a percent.
 */
#include <string.h>

#include <tally/tally.h>

#include "base/attention.h"
#include "base/hash.h"
#include "base/os.h"
#include "base/os_confined.h"
#include "base/os_shared.h"
#include "contract/stats_page.h"
#include "control/control.h"
#include "cpu/cpu.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "prof/prof.h"

enum { NS_PER_MS = 1000000 };
enum { PERIOD_MS = 100, CALLS_PER_TICK = 64, COST_SHARE = 200 };
enum { YOUNG_MS = 1000 }; /* many programs set up what they need, and then sleep */
enum { TICK_MS = 1000 };  /* of the background thread */
/* Renewals before it is time may take so long at once, and the usual share of time later. */
enum { CREDIT_NS = 2 * NS_PER_MS };
/* A step is this share of what is live: with all of the credit below the hundredth of RSS that may be
 * unexplained; more with less, so that the second half of it suffices for a program that frees a GiB
 * and stops. */
enum { STEP_LEAST = 512 << 10, STEP_SHARE_MOST = 128, STEP_SHARE_LEAST = 8 };
enum { TURN_WAITS = 1000 };
enum { GROWTH_SHARE = 128 }; /* of the heap: new memory beyond is shown whatever the credit */

/* Totals as the page shows them.  They never fall, though the counters of a reset arena start
 * anew. */
struct lasting {
    uint64_t allocated, freed; /* bytes */
    uint64_t nmalloc, nfree;   /* objects */
};

/* Zeros in a child that has not made a page of its own. */
struct own {
    struct stats_page *_Atomic page; /* NULL: there is none */
    _Atomic bool is_busy;
    _Atomic bool is_wanted;        /* a thread waits for is_busy: others give way */
    _Atomic uint32_t calls;        /* of stats_page_attend in this tick of the clock */
    _Atomic uint64_t tick_ms;      /* the tick */
    _Atomic uint64_t refreshed_ms; /* last refresh that was due by the clock */
    _Atomic uint32_t period_ms;    /* until the next */
    _Atomic uint64_t mapped;       /* when the ranges were read */
    _Atomic uint64_t refused;
    _Atomic uint64_t credit_ns; /* for renewals before it is time */
    _Atomic uint64_t credit_ms; /* when it was last added to */
    _Atomic uint64_t cost_ns;   /* of a refresh */
    _Atomic uint64_t moves;     /* allocations and frees at the last refresh */
    _Atomic bool is_behind;     /* a slow call was not shown since the last refresh began */
    _Atomic bool is_at_rest;    /* the background thread does not look any more */
    /* The background thread's. */
    uint64_t ticked_ms, ticked_moves;
    /* The rest belongs to the holder of is_busy. */
    uint32_t sequence;
    uint64_t born_ms;
    uint64_t metadata; /* as `mapped` */
    uint64_t ranges, untold;
    struct thread_sums sums;
    struct heap_traffic traffic; /* when the sums of all threads were read */
    struct lasting lasting;
};
_Static_assert(sizeof(struct own) <= sizeof(attention_page.rest), "one page");

static struct own *own(void) {
    return (struct own *)attention_page.rest;
}

/* The page of this process, or of its parent until a child has made its own. */
static struct os_shared shared;

static struct {
    _Atomic bool is_child;  /* a child that has no page yet */
    struct lasting parents; /* totals at the fork */
    uint64_t options;       /* the digest */
    unsigned rights;        /* Like the path, belongs to the holder of is_busy. */
    char path[STATS_PAGE_PATH_BYTES];
} g;

/* ---------------------------------------------------------------- figures */

static uint64_t growth(uint64_t before, uint64_t now) {
    return now > before ? now - before : 0;
}

static void read_profiler(struct stats_page *fresh) {
    struct prof_totals totals = {0};
    fresh->cpu_hz = cpu_is_on() ? cpu_hz() : 0;
    if (!prof_was_armed()) {
        return;
    }
    prof_read_totals(&totals);
    if (prof_lg_sample() == 0) { /* Samples of some would only allow to guess. */
        fresh->requested -= min_size((size_t)totals.live.all_slack, fresh->live);
    }
    fresh->profile_rate = prof_is_active() ? UINT64_C(1) << prof_lg_sample() : 0;
    fresh->profile_samples = totals.live.objects;
    fresh->profiler = prof_memory();
}

/* All totals are of one moment, when all threads are read: if they were not, more bytes could be
 * alive than were ever allocated. */
static void read_lasting(struct own *my, const struct heap_totals *totals) {
    struct heap_traffic now = heap_traffic(&my->sums);
    struct lasting *lasting = &my->lasting;
    lasting->allocated += growth(my->traffic.bytes, now.bytes);
    lasting->nmalloc += growth(my->traffic.objects, now.objects);
    lasting->freed = max_size(lasting->freed, growth(totals->live, lasting->allocated));
    lasting->nfree = max_size(lasting->nfree, growth(totals->live_objects, lasting->nmalloc));
    my->traffic = now;
}

static void tell_worst(struct stats_page *fresh, const struct heap_totals *totals) {
    fresh->worst_size_1 = totals->worst[0].size;
    fresh->worst_free_1 = totals->worst[0].bytes;
    fresh->worst_size_2 = totals->worst[1].size;
    fresh->worst_free_2 = totals->worst[1].bytes;
    fresh->worst_size_3 = totals->worst[2].size;
    fresh->worst_free_3 = totals->worst[2].bytes;
}

static void read_heap(struct own *my, struct stats_page *fresh) {
    my->sums = thread_read_arena(THREAD_ALL_ARENAS);
    struct heap_totals totals = heap_totals_with(&my->sums);
    read_lasting(my, &totals);
    tell_worst(fresh, &totals);
    fresh->requested = fresh->live = totals.live;
    fresh->live_objects = totals.live_objects;
    fresh->slab_free = totals.slab_free - totals.untouched;
    fresh->untouched = totals.untouched;
    fresh->cached = totals.cached;
    fresh->large_rest = totals.large_rest;
    fresh->dirty = totals.dirty;
    fresh->metadata = totals.metadata;
    fresh->mapped = totals.mapped;
    fresh->allocated_total = my->lasting.allocated;
    fresh->freed_total = my->lasting.freed;
    fresh->nmalloc = my->lasting.nmalloc;
    fresh->nfree = my->lasting.nfree;
    fresh->threads = my->sums.threads;
    fresh->limit_hard = limit_hard();
    fresh->purged_total = heap_pages().purged;
}

/* ---------------------------------------------------------------- when */

/* How long a renewal that cost so much must last, and at least `least_ms`. */
static uint32_t period_for(const struct own *my, uint32_t least_ms) {
    uint64_t due_ms = my->cost_ns * COST_SHARE / NS_PER_MS;
    return (uint32_t)min_size(max_size(due_ms, least_ms), UINT32_MAX);
}

/* A renewal that was interrupted by other programs took long and cost little. */
static void note_cost(struct own *my, uint64_t begin_ns) {
    uint64_t spent_ns = os_now_ns() - begin_ns;
    my->cost_ns = my->cost_ns == 0 ? spent_ns : min_size(spent_ns, 2 * my->cost_ns);
}

/* Of threads that come here at once, one may get what another has paid for. */
static bool take_credit(struct own *my, uint64_t now_ms) {
    uint64_t since_ms = now_ms - my->credit_ms;
    uint64_t credit_ns =
        min_size(my->credit_ns + since_ms * NS_PER_MS / COST_SHARE, (size_t)CREDIT_NS);
    uint64_t cost_ns = my->cost_ns;
    my->credit_ms = now_ms;
    my->credit_ns = credit_ns - min_size(credit_ns, cost_ns);
    return credit_ns >= cost_ns;
}

static uint64_t step_for(const struct own *my, uint64_t live) {
    uint64_t ample_ns = growth(CREDIT_NS / 2, my->credit_ns);
    uint64_t more = ample_ns * (STEP_SHARE_MOST - STEP_SHARE_LEAST) / (CREDIT_NS / 2);
    return max_size(STEP_LEAST, live / (STEP_SHARE_LEAST + more));
}

/* Is it time by the clock, or has a step been made and may be shown?  Where it may not, no more steps
 * are heard of until it is time. */
static bool is_due(struct own *my, uint64_t now_ms) {
    uint64_t due_ms = my->refreshed_ms + my->period_ms;
    if (now_ms >= due_ms || (attention_page.stats_due_ms == 0 && take_credit(my, now_ms))) {
        return true;
    }
    if (attention_page.stats_due_ms == 0) {
        attention_page.stats_step = UINT64_MAX;
        attention_page.stats_due_ms = due_ms;
    }
    return false;
}

static void plan_next(struct own *my, uint64_t now_ms, uint64_t live) {
    if (now_ms - my->refreshed_ms >= my->period_ms) {
        my->refreshed_ms = now_ms;
    }
    my->period_ms = period_for(my, now_ms - my->born_ms < YOUNG_MS ? 1 : PERIOD_MS);
    attention_page.stats_due_ms = my->refreshed_ms + my->period_ms;
    attention_page.stats_used = pages_totals().used;
    attention_page.stats_step = step_for(my, live);
    my->calls = 0;
    attention_raise(ATTENTION_STATS); /* The next slow call says that the page is behind. */
}

/* ---------------------------------------------------------------- writing */

/* Release: not seen before the odd number that was stored earlier. */
static void put(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

struct ranges {
    struct stats_page_range *to;
    uint64_t count;
    uint64_t untold; /* bytes */
};

STARTUP static void put_range(uintptr_t start, uintptr_t end, void *context) {
    struct ranges *ranges = context;
    if (ranges->count < STATS_PAGE_MOST_RANGES) {
        put(&ranges->to[ranges->count].start, start);
        put(&ranges->to[ranges->count].end, end);
        ranges->count++;
    } else {
        ranges->untold += end - start;
    }
}

/* A heap that has not grown has the same ranges. */
static void put_ranges(struct own *my, struct stats_page *page, const struct stats_page *fresh) {
    if (fresh->mapped != my->mapped || fresh->metadata != my->metadata) {
        struct ranges ranges = {(void *)((char *)page + STATS_PAGE_RANGES_AT), 0, 0};
        heap_walk_ranges(put_range, &ranges);
        my->ranges = ranges.count;
        my->untold = ranges.untold;
        my->mapped = fresh->mapped;
        my->metadata = fresh->metadata;
    }
}

static void put_path(struct stats_page *page) {
    for (size_t i = 0; i < sizeof(g.path); i++) {
        __atomic_store_n(&page->socket_path[i], g.path[i], __ATOMIC_RELEASE); /* as in put */
    }
}

STARTUP static void publish(struct own *my, struct stats_page *page, struct stats_page *fresh) {
    my->sequence += 2;
    atomic_store_explicit(&page->sequence, my->sequence - 1, memory_order_relaxed);
    put_ranges(my, page, fresh);
    fresh->ranges = my->ranges;
    fresh->untold = my->untold;
#define STATS_PAGE_WORD(name, help) put(&page->name, fresh->name);
    STATS_PAGE_WORDS(STATS_PAGE_WORD)
#undef STATS_PAGE_WORD
    put_path(page);
    put(&page->refresh_ns, os_now_ns());
    /* Release: whoever sees this number sees all of the page. */
    atomic_store_explicit(&page->sequence, my->sequence, memory_order_release);
}

/* Called with is_busy held, which it releases. */
STARTUP static void refresh_busy(struct own *my, uint64_t now_ms) {
    uint64_t begin = os_now_ns();
    struct stats_page fresh = {.control = g.rights, .options = g.options, .refused = my->refused};
    fresh.sum_ns = begin;
    my->is_behind = false;
    read_heap(my, &fresh);
    read_profiler(&fresh);
    struct stats_page *page = my->page;
    if (page == NULL) {
        return; /* This process has become a child meanwhile. */
    }
    publish(my, page, &fresh);
    if (my->is_behind) {
        put(&page->behind, UINT64_MAX);
    }
    my->moves = fresh.nmalloc + fresh.nfree;
    note_cost(my, begin);
    plan_next(my, now_ms, fresh.live);
    my->is_busy = false;
}

/* ---------------------------------------------------------------- a page of one's own */

/* What a page shows from its first moment. */
STARTUP static void begin_page(struct stats_page *page) {
    page->bytes = sizeof(*page);
    page->pid = os_process_id();
    page->start_ns = os_now_ns();
    memcpy(page->version, TALLY_VERSION, sizeof(TALLY_VERSION));
    page->magic = STATS_PAGE_MAGIC;
    own()->page = page;
    own()->born_ms = os_now_ms();
    own()->credit_ms = own()->born_ms;
    own()->credit_ns = CREDIT_NS;
    attention_raise(ATTENTION_STATS);
}

/* In a child without a page, once.  Totals continue from the parent's.  The parent may have
 * confined itself since its own page was made. */
static void make_own(struct own *my) {
    struct os_shared parents = shared;
    if (!atomic_exchange(&g.is_child, false)) {
        return;
    }
    shared = (struct os_shared){.fd = -1};
    if (!os_is_confined() && os_shared_make(&shared, STATS_PAGE_NAME, STATS_PAGE_BYTES) == 0) {
        my->lasting = g.parents;
        my->traffic =
            (struct heap_traffic){.objects = g.parents.nmalloc, .bytes = g.parents.allocated};
        begin_page(shared.start);
    }
    os_shared_leave(&parents);
}

/* False where there is no page, or another thread renews it just now. */
STARTUP static bool refresh(uint64_t now_ms) {
    struct own *my = own();
    if (UNLIKELY(g.is_child)) {
        make_own(my);
    }
    if (my->page == NULL) {
        return false;
    }
    if (my->is_wanted || atomic_exchange(&my->is_busy, true)) {
        my->refused++;
        return false;
    }
    refresh_busy(my, now_ms);
    return true;
}

void stats_page_renew(void) {
    (void)refresh(os_now_ms());
}

/* This slow call is not shown; a refresh that goes on meanwhile may or may not have seen it. */
static void mark_behind(struct own *my) {
    struct stats_page *page = my->page;
    if (page == NULL) {
        return;
    }
    uint64_t step = attention_page.stats_step;
    uint64_t threads = __atomic_load_n(&page->threads, __ATOMIC_RELAXED);
    uint64_t bytes = step == UINT64_MAX ? step : step * (threads + 1);
    if (!my->is_behind || __atomic_load_n(&page->behind, __ATOMIC_RELAXED) < bytes) {
        my->is_behind = true;
        put(&page->behind, bytes);
    }
}

STARTUP void stats_page_attend(void) {
    struct own *my = own();
    uint64_t now_ms = os_now_ms();
    if (UNLIKELY(g.is_child)) {
        make_own(my);
    }
    if (my->page == NULL) {
        attention_page.stats_due_ms = UINT64_MAX;
        attention_page.stats_step = UINT64_MAX;
        (void)attention_take(ATTENTION_STATS);
        return;
    }
    if (now_ms != my->tick_ms) {
        my->tick_ms = now_ms;
        my->calls = 0;
        attention_raise(ATTENTION_STATS);
    } else if (atomic_fetch_add(&my->calls, 1) >= CALLS_PER_TICK) {
        (void)attention_take(ATTENTION_STATS);
    }
    if (!is_due(my, now_ms) || !refresh(now_ms)) {
        mark_behind(my);
    }
    if (my->is_at_rest && atomic_exchange(&my->is_at_rest, false)) {
        attention_raise(ATTENTION_BACKGROUND);
    }
}

uint64_t stats_page_tick(void) {
    struct own *my = own();
    uint64_t now_ms = os_now_ms();
    if (my->page == NULL) {
        return UINT64_MAX;
    }
    if (now_ms - my->ticked_ms < TICK_MS) {
        return my->is_at_rest ? UINT64_MAX : TICK_MS - (now_ms - my->ticked_ms);
    }
    my->ticked_ms = now_ms;
    (void)refresh(now_ms);
    uint64_t moves = my->moves;
    my->is_at_rest = moves == my->ticked_moves;
    my->ticked_moves = moves;
    if (my->is_behind) { /* by a call that may have seen no rest */
        my->is_at_rest = false;
    }
    return my->is_at_rest ? UINT64_MAX : TICK_MS;
}

bool stats_page_is_at_rest(void) {
    return own()->page == NULL || own()->is_at_rest;
}

void stats_page_grown(void) {
    const struct own *my = own();
    uint64_t mapped = heap_pages().mapped;
    uint64_t told = my->mapped;
    if (my->page != NULL && mapped > told + told / GROWTH_SHARE) {
        (void)refresh(os_now_ms());
    }
}

/* ---------------------------------------------------------------- start, fork */

STARTUP void stats_page_start(bool sees_forks) {
    if (!opt.stats_page || !sees_forks || os_facts.secure || os_facts.confined) {
        return;
    }
    g.options = opt_digest();
    if (os_shared_make(&shared, STATS_PAGE_NAME, STATS_PAGE_BYTES) == 0) {
        begin_page(shared.start);
        (void)refresh(os_now_ms());
    }
}

/* Reads the parent's page before that changes. */
STARTUP void stats_page_forked(void) {
    struct own *my = own();
    if (shared.start == NULL) {
        return;
    }
    my->page = NULL; /* as it already is where the kernel wipes pages */
    my->is_busy = my->is_wanted = false;
    g.rights = 0;
    memset(g.path, 0, sizeof(g.path));
    if (!g.is_child) {
        const struct stats_page *page = shared.start;
        g.parents =
            (struct lasting){page->allocated_total, page->freed_total, page->nmalloc, page->nfree};
    }
    g.is_child = true;
    attention_raise(ATTENTION_STATS);
}

/* A renewal takes some microseconds; gives up after seconds. */
static bool wait_for_turn(struct own *my) {
    static _Atomic uint32_t never;
    my->is_wanted = true;
    bool is_others = atomic_exchange(&my->is_busy, true);
    for (int i = 0; i < TURN_WAITS && is_others; i++) {
        os_wait_ms(&never, 0, 1);
        is_others = atomic_exchange(&my->is_busy, true);
    }
    my->is_wanted = false;
    return !is_others;
}

/* An idle program may not renew the page again, so this change must not be lost. */
void stats_page_tell_socket(const char *path, unsigned rights) {
    struct own *my = own();
    if (g.is_child) {
        make_own(my);
    }
    if (my->page == NULL || !wait_for_turn(my)) {
        return;
    }
    memset(g.path, 0, sizeof(g.path));
    memcpy(g.path, path, min_size(strlen(path), sizeof(g.path) - 1));
    g.rights = rights;
    refresh_busy(my, os_now_ms());
}
