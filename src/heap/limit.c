/* SPDX-License-Identifier: MIT
 *
 * limit.c - the soft limit, the hard limit, and an address space limit that comes after the start.
 *
 *      held  ^         hard ---------------------------   never crossed: requests fail
 *            |              .--.      .-----.
 *            |         soft-|--|------|-----|----------   1, 2: caches and free pages go back,
 *            |            1^   |    2^      |                   the program is called
 *            +-------------------------------------->
 *
 * Growth happens deep inside, with locks held, so a crossing is only noted there; the next slow
 * call that ends attends to it (life.c).  A crossing is attended to once.  The next one needs the
 * heap to fall clearly below the limit first, by 1/16 of it: giving caches back brings a heap that
 * needs all it holds only just below, and it would cross again with every slab it takes.
 *
 * A limit of the address space that the program sets later (setrlimit) finds gigabytes reserved by
 * the class map, and the kernel refuses everything from then on.  The first refusal gives the
 * reservations back.
 *
 * Threads     The state is atomic; the callback and its context are one pair, guarded by a lock.
 */
#include "heap/limit.h"

#include <stdatomic.h>

#include "base/attention.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/counts.h"
#include "heap/fast.h"
#include "heap/meta.h"
#include "heap/pages.h"
#include "opt/opt.h"

enum { PROBE_BYTES = 64 << 20 };
static const size_t no_limit = SIZE_MAX;

static struct {
    _Atomic size_t soft;
    _Atomic size_t hard;
    _Atomic size_t watched; /* bytes in spans that somebody waits for */
    _Atomic bool exceeded;  /* was the soft limit exceeded when last noted? */
    struct lock lock;
    limit_callback *callback; /* guarded by lock, as is context */
    void *context;
} g = {.soft = SIZE_MAX,
       .hard = SIZE_MAX,
       .watched = SIZE_MAX,
       .lock = LOCK_OF_RANK(RANK_METADATA) /* a leaf, too */};

static size_t load(_Atomic size_t *limit) {
    return atomic_load_explicit(limit, memory_order_relaxed);
}

static void store(_Atomic size_t *limit, size_t bytes) {
    atomic_store_explicit(limit, bytes == 0 ? no_limit : bytes, memory_order_relaxed);
}

void limit_init(void) {
    store(&g.soft, opt.limit_soft);
    store(&g.hard, opt.limit_hard);
}

size_t limit_held(void) {
    struct pages_totals pages = pages_totals();
    return pages.used + pages.dirty + pages.muzzy + meta_bytes();
}

/* ---------------------------------------------------------------- the hard limit */

static size_t zero_for_none(size_t limit) {
    return limit != no_limit ? limit : 0;
}

size_t limit_soft(void) {
    return zero_for_none(load(&g.soft));
}

size_t limit_hard(void) {
    return zero_for_none(load(&g.hard));
}

bool limit_is_hard(void) {
    return load(&g.hard) != no_limit;
}

bool limit_allows(size_t more) {
    size_t hard = load(&g.hard);
    if (LIKELY(hard == no_limit)) {
        return true;
    }
    size_t held = limit_held();
    return held <= hard && more <= hard - held;
}

/* ---------------------------------------------------------------- the soft limit */

void limit_watch_used(size_t bytes) {
    atomic_store_explicit(&g.watched, bytes, memory_order_relaxed);
}

static void note_watched(void) {
    size_t watched = load(&g.watched);
    if (UNLIKELY(watched != no_limit) && pages_totals().used > watched) {
        limit_watch_used(no_limit);
        attention_raise(ATTENTION_PROFILE);
    }
}

void limit_note(void) {
    note_watched();
    size_t soft = load(&g.soft);
    bool was_exceeded = limit_soft_is_exceeded();
    size_t bound = was_exceeded ? soft - soft / 16 : soft;
    bool is_exceeded = soft != no_limit && limit_held() > bound;
    if (UNLIKELY(is_exceeded != was_exceeded) &&
        atomic_exchange_explicit(&g.exceeded, is_exceeded, memory_order_relaxed) != is_exceeded &&
        is_exceeded) {
        attention_raise(ATTENTION_SOFT_LIMIT);
    }
}

bool limit_soft_is_exceeded(void) {
    return atomic_load_explicit(&g.exceeded, memory_order_relaxed);
}

static void enter(void) {
    if (UNLIKELY(lock_acquire(&g.lock) == LOCK_ABANDONED)) {
        g.callback = NULL; /* It may not match its context. */
    }
}

void limit_tell_program(void) {
    assert(!tls.inside);
    thread_mark_inside(true);
    enter();
    limit_callback *callback = g.callback;
    void *context = g.context;
    lock_release(&g.lock);
    thread_mark_inside(false);
    if (callback != NULL && !tls.is_telling) {
        tls.is_telling = true;
        callback(limit_held(), context);
        tls.is_telling = false;
    }
}

void limit_on_soft(limit_callback *callback, void *context) {
    enter();
    g.callback = callback;
    g.context = context;
    lock_release(&g.lock);
}

/* A soft limit that moves is crossed anew, if it is exceeded. */
void limit_set(size_t soft, size_t hard) {
    store(&g.hard, hard);
    store(&g.soft, soft);
    atomic_store_explicit(&g.exceeded, false, memory_order_relaxed);
    limit_note();
}

/* ---------------------------------------------------------------- a late limit of the kernel */

/* A sandbox may kill a process that asks for limits, so this asks only when addresses are short. */
static bool addresses_are_short(void) {
    void *probe = os_reserve(NULL, PROBE_BYTES);
    if (probe != NULL) {
        os_unmap(probe, PROBE_BYTES);
    }
    return probe == NULL;
}

COLD void limit_notice_late(void) {
    if (!os_facts.address_space_limited && addresses_are_short() && os_address_space_is_limited()) {
        pages_shed_reservations();
    }
}
