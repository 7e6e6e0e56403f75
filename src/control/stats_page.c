/* SPDX-License-Identifier: MIT
 *
 * stats_page.c - writes the page of counters that stats_page.h describes, now and then.
 *
 * There is no thread or timer for it: the page is renewed by slow calls of the program, and those
 * pay for it only when a bit of the attention word is set (base/attention.h).  The bit is set by:
 *
 *      every look at the clock of the page heap    heap/dirty.c    when it is time
 *      every 16th visit of a depot or bin          heap/cache.c    the same
 *      the background thread                       api/background.c
 *      the bit itself, by staying set              here: unless slow calls are many
 *
 * In a program that makes few slow calls the bit stays set, each slow call reads the clock, and the
 * page is never more than 100 ms older than the last slow call.  In a program that makes many, the
 * bit is cleared after CALLS_PER_TICK calls within a tick of the clock, until one of the others
 * above sets it again.
 *
 * The page and everything about it lie in memory that is empty in a forked child, so a child cannot
 * write to its parent's page, however it was made.  It makes its own at a slow call: most children
 * exec before they come to that.
 *
 * Threads     One thread at a time renews the page; others do not wait for it.
 * Cost        Some microseconds ten times a second.  A heap whose figures take longer to read is
 *             read less often, so that the cost never exceeds half a percent.
 */
#include <string.h>

#include <tally/tally.h>

#include "base/attention.h"
#include "base/hash.h"
#include "base/os.h"
#include "base/os_shared.h"
#include "contract/stats_page.h"
#include "control/control.h"
#include "cpu/cpu.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "prof/prof.h"

enum { PERIOD_MS = 100, SUM_PERIOD_MS = 1000, CALLS_PER_TICK = 64, COST_SHARE = 200 };
enum { YOUNG_MS = 1000 }; /* many programs set up what they need, and then sleep */
enum { NS_PER_MS = 1000000 };
enum { TURN_WAITS = 1000 };
enum {
    GROWTH_SHARE = 64
}; /* of the heap: growth by more is shown at once, since the program may then sleep */

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
    _Atomic uint64_t refreshed_ms; /* last refresh */
    _Atomic uint32_t period_ms;    /* until the next */
    _Atomic uint64_t mapped;       /* when the ranges were read */
    _Atomic uint64_t refused;
    /* The rest belongs to the holder of is_busy. */
    uint32_t sequence;
    uint32_t sum_period_ms; /* between sums of all threads */
    uint64_t born_ms;
    uint64_t summed_ms, summed_ns;
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

static void read_profiler(struct stats_page *fresh) {
    struct prof_totals totals = {0};
    fresh->cpu_hz = cpu_is_on() ? cpu_hz() : 0;
    if (!prof_was_armed()) {
        return;
    }
    prof_read_totals(&totals);
    size_t slack = min_size((size_t)totals.live.all_slack, fresh->live);
    fresh->requested = fresh->live - slack;
    fresh->profile_rate = prof_is_active() ? UINT64_C(1) << prof_lg_sample() : 0;
    fresh->profile_samples = totals.live.objects;
    fresh->profiler = prof_memory();
}

static uint64_t growth(uint64_t before, uint64_t now) {
    return now > before ? now - before : 0;
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

static void read_worst(struct stats_page *fresh) {
    struct pinned_class worst[PINNED_WORST];
    pinned_read_worst(worst);
    fresh->worst_size_1 = worst[0].size;
    fresh->worst_free_1 = worst[0].bytes;
    fresh->worst_size_2 = worst[1].size;
    fresh->worst_free_2 = worst[1].bytes;
    fresh->worst_size_3 = worst[2].size;
    fresh->worst_free_3 = worst[2].bytes;
}

static void read_heap(struct own *my, struct stats_page *fresh, bool with_sums) {
    struct heap_totals totals = heap_totals_with(&my->sums);
    if (with_sums) {
        read_lasting(my, &totals);
    }
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
    fresh->sum_ns = my->summed_ns;
}

/* How long to wait after a renewal that began at `begin_ns`. */
static uint32_t period_for(const struct own *my, uint64_t begin_ns, uint64_t now_ms,
                           uint32_t usual_ms) {
    uint32_t least_ms = now_ms - my->born_ms < YOUNG_MS ? 1 : usual_ms;
    uint64_t cost_ns = os_now_ns() - begin_ns;
    return (uint32_t)min_size(max_size(cost_ns * COST_SHARE / NS_PER_MS, least_ms), UINT32_MAX);
}

static void read_threads(struct own *my, uint64_t now_ms) {
    uint64_t begin = os_now_ns();
    my->sums = thread_read_arena(THREAD_ALL_ARENAS);
    my->summed_ms = now_ms;
    my->summed_ns = begin;
    my->sum_period_ms = period_for(my, begin, now_ms, SUM_PERIOD_MS);
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

/* A heap that has not grown has the same ranges, except perhaps for one of descriptors. */
static void put_ranges(struct own *my, struct stats_page *page, bool with_sums, uint64_t mapped) {
    if (with_sums || mapped != my->mapped) {
        struct ranges ranges = {(void *)((char *)page + STATS_PAGE_RANGES_AT), 0, 0};
        heap_walk_ranges(put_range, &ranges);
        my->ranges = ranges.count;
        my->untold = ranges.untold;
        my->mapped = mapped;
    }
}

static void put_path(struct stats_page *page) {
    for (size_t i = 0; i < sizeof(g.path); i++) {
        __atomic_store_n(&page->socket_path[i], g.path[i], __ATOMIC_RELEASE); /* as in put */
    }
}

STARTUP static void publish(struct own *my, struct stats_page *page, struct stats_page *fresh,
                            bool with_sums) {
    my->sequence += 2;
    atomic_store_explicit(&page->sequence, my->sequence - 1, memory_order_relaxed);
    put_ranges(my, page, with_sums, fresh->mapped);
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
STARTUP static void refresh_busy(struct own *my, uint64_t now_ms, bool as_a_whole) {
    my->refreshed_ms = now_ms;
    struct stats_page fresh = {.control = g.rights, .options = g.options, .refused = my->refused};
    bool with_sums = as_a_whole || now_ms - my->summed_ms >= my->sum_period_ms;
    if (with_sums) {
        read_threads(my, now_ms);
    }
    uint64_t begin = os_now_ns();
    read_heap(my, &fresh, with_sums);
    read_worst(&fresh);
    read_profiler(&fresh);
    struct stats_page *page = my->page;
    if (page == NULL) {
        return; /* This process has become a child meanwhile. */
    }
    publish(my, page, &fresh, with_sums);
    my->period_ms = period_for(my, begin, now_ms, PERIOD_MS);
    attention_page.stats_due_ms = now_ms + my->period_ms;
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

STARTUP static void refresh(uint64_t now_ms, bool as_a_whole) {
    struct own *my = own();
    if (UNLIKELY(g.is_child)) {
        make_own(my);
    }
    if (my->page == NULL) {
        return;
    }
    if (my->is_wanted || atomic_exchange(&my->is_busy, true)) {
        my->refused++;
        return;
    }
    refresh_busy(my, now_ms, as_a_whole);
}

void stats_page_renew(void) {
    refresh(os_now_ms(), true);
}

STARTUP void stats_page_attend(void) {
    struct own *my = own();
    uint64_t now_ms = os_now_ms();
    if (UNLIKELY(g.is_child)) {
        make_own(my);
    }
    if (my->page == NULL) {
        attention_page.stats_due_ms = UINT64_MAX;
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
    if (now_ms - my->refreshed_ms >= my->period_ms) {
        refresh(now_ms, false);
    }
}

void stats_page_grown(void) {
    const struct own *my = own();
    uint64_t mapped = heap_pages().mapped;
    uint64_t told = my->mapped;
    if (my->page != NULL && mapped > told + told / GROWTH_SHARE) {
        refresh(os_now_ms(), false);
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
        refresh(os_now_ms(), true);
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
    refresh_busy(my, os_now_ms(), true);
}
