/* SPDX-License-Identifier: MIT
 *
 * sleepers.c - heaps of threads that sleep are emptied by others, without waking anybody.
 *
 * A thread that waits in the kernel is not in the midst of a fast path, since those make no system
 * call.  The one exception is a fast path that a signal handler interrupted, which sleeps itself:
 * so a thread with the frame of a handler on its stack is left alone.  Nor is it in the slow half,
 * if it is not marked as inside.
 *
 *      emptier                                        owner
 *      takes the heap's claim
 *      look 1: it sleeps, outside, in no handler
 *      parks it: hot = zeros, claimed = 1
 *      barrier of all threads
 *      look 2: it is the same sleep                   (from here on it may wake)
 *      moves all objects out                          any call takes the slow path,
 *      gives the claim back                           marks itself as inside, finds `claimed`,
 *                                                     takes the claim, chooses its path anew
 *
 * If look 2 finds anything else, nothing is moved, and all the owner pays is one slow call.
 *
 * Order.  Both looks saw the same sleep, so the owner has run nothing from the end of the first to
 * the second.  Everything it did before is done, and visible: the kernel answers under the lock that
 * the owner's processor held when it left the owner.  When the owner wakes, it passes the barrier
 * before its first instruction, so it sees the zeros and `claimed`, whichever it reads first.  From
 * then on it cannot reach the heap but through thread_mark_inside, which waits for the claim: that
 * lock makes visible what was moved.  Marking comes before testing `claimed`, and the emptier
 * parks before it tests the mark.
 *
 * A handler that leaves its stack before it sleeps (swapcontext, split stacks) is not seen.  With a
 * fast path interrupted below it no allocator would survive what it does next.
 *
 * Who sleeps.  To look costs system calls, so a busy thread must not be looked at.  The tops of its
 * magazines change with every hit: whoever finds them as they were a while ago looks.  A thread that
 * runs without allocating is looked at more and more seldom.
 *
 * Fork.  In the child there is no emptier.  A claim that was held is void, as any lock.  The heap of
 * the thread that forked, if it was being emptied just then, is recovered like an orphan's, by its
 * owner's next call (thread_wake).
 *
 * Threads     The claim of a heap guards all of this; an owner that ends takes it, too, so that its
 *             thread-local data are there while it is held.  A thread that ends without telling
 *             leaves data behind that may be unmapped: they are copied first, with care.
 * Errors      Without /proc or membarrier, and in a process that has confined itself, nothing is
 *             emptied.
 * Read next   thread.c: thread_wake; base/os_sleep.c.
 */
#include "heap/sleepers.h"

#include "base/attention.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_confined.h"
#include "base/os_sleep.h"
#include "base/os_timer.h"
#include "heap/cache.h"
#include "heap/counts.h"
#include "heap/thread.h"

/* A heap that was last used just after a tick is found changed by the next, and emptied by the one
 * after it; the depots take a little longer. */
enum {
    UNCHANGED_MS = 800,  /* for so long must a heap have been */
    LEAST_MS = 100,      /* between ticks */
    SOON_MS = 10,        /* until the next tick, if there was too much for one */
    MOST_PER_TICK = 256, /* owners that are looked at */
    MOST_REFUSALS = 6,   /* the time between looks doubles so often: up to a minute */
};

/* The thread sanitizer knows nothing of what orders the accesses here. */
#if defined(__SANITIZE_THREAD__)
enum { IS_POSSIBLE = 0 };
#else
enum { IS_POSSIBLE = 1 };
#endif

/* The kernel has no barrier. */
static _Atomic bool is_hopeless;

static bool may_look(void) {
    return IS_POSSIBLE && !is_hopeless && os_may_ask_kernel();
}

static bool has_owner(const struct thread *thread) {
    return __atomic_load_n(&thread->generation, __ATOMIC_ACQUIRE) == lock_generation();
}

/* ---------------------------------------------------------------- one heap */

/* May the owner's thread-local data be written to, and is the owner outside?  A hook runs outside,
 * too, but the call that it interrupts relies on the heap as it was. */
static bool is_outside(const struct thread *thread) {
    struct tls tls_of_owner;
    return os_copy(&tls_of_owner, (uintptr_t)thread->owner, sizeof(tls_of_owner),
                   os_facts.confined) &&
           tls_of_owner.self == thread && !tls_of_owner.inside &&
           !(tls_of_owner.modes & (THREAD_IN_HOOK | THREAD_UNSETTLED));
}

static bool is_same_sleep(const struct os_sleep *a, const struct os_sleep *b) {
    return a->switches == b->switches && a->call == b->call && a->sp == b->sp && a->pc == b->pc;
}

/* Parks the owner if it sleeps.  True when it did so from before until after. */
static bool catch_asleep(struct thread *thread) {
    struct os_sleep before, after;
    if (!os_look_at_sleep(thread->number, &before) || !is_outside(thread) ||
        os_stack_has_handler(before.sp, (uintptr_t)thread->owner)) {
        return false;
    }
    thread_park_owner(thread);
    if (!os_fence_threads()) {
        is_hopeless = true;
        return false;
    }
    return os_look_at_sleep(thread->number, &after) && is_same_sleep(&before, &after);
}

/* Empties a claimed heap if its owner sleeps. */
static bool empty(struct thread *thread) {
    assert(lock_is_mine(&thread->claim));
    if (!catch_asleep(thread)) {
        return false;
    }
    __atomic_store_n(&thread->sleep, THREAD_EMPTYING, __ATOMIC_RELEASE);
    cache_flush(thread);
    assert(thread_is_empty(thread) && lock_is_mine(&thread->claim));
    __atomic_store_n(&thread->sleep, THREAD_ASLEEP, __ATOMIC_RELEASE);
    return true;
}

/* Claims a heap that another thread has and uses.  In a child, one whose owner has yet to recover
 * it is left to the owner. */
static bool claim(struct thread *thread) {
    if (!has_owner(thread) || thread == tls.self) {
        return false;
    }
    (void)lock_acquire(&thread->claim);
    if (has_owner(thread) && thread->sleep == THREAD_AWAKE) {
        return true;
    }
    lock_release(&thread->claim);
    return false;
}

static bool uses_arena(const struct thread *thread, unsigned arena) {
    return arena == THREAD_ALL_ARENAS || __atomic_load_n(&thread->arena, __ATOMIC_RELAXED) == arena;
}

void sleepers_empty(unsigned arena) {
    assert(arena == THREAD_ALL_ARENAS || arena < ARENA_INDICES);
    if (!may_look()) {
        return;
    }
    for (struct thread *thread = thread_first(); thread != NULL; thread = thread->older) {
        if (uses_arena(thread, arena) && !thread_is_empty(thread) && claim(thread)) {
            (void)empty(thread);
            lock_release(&thread->claim);
        }
    }
}

/* ---------------------------------------------------------------- all heaps, now and then */

/* A number that changes when the owner uses the heap, and hardly ever else. */
static uint64_t looks_of(const struct thread *thread) {
    enum { FACTOR = 31 };
    uint64_t sum = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        sum = sum * FACTOR + __atomic_load_n(&thread->hot.rec[c].take, __ATOMIC_RELAXED);
        sum = sum * FACTOR + __atomic_load_n(&thread->hot.rec[c].give, __ATOMIC_RELAXED);
        sum = sum * FACTOR + count_read(&thread->filled[c]);
    }
    return sum;
}

/* How long until a claimed heap should be tried; 0: now. */
static uint64_t wait_for(struct thread *thread, uint64_t now_ms) {
    uint64_t looks = looks_of(thread);
    if (looks != thread->looks) {
        thread->looks = looks;
        thread->since_ms = now_ms;
        thread->refusals = 0;
    }
    uint64_t due_ms = thread->since_ms + ((uint64_t)UNCHANGED_MS << thread->refusals);
    return due_ms > now_ms ? due_ms - now_ms : 0;
}

static void refuse(struct thread *thread, uint64_t now_ms) {
    thread->since_ms = now_ms;
    thread->refusals = (uint8_t)min_size(thread->refusals + 1u, MOST_REFUSALS);
}

uint64_t sleepers_tick(void) {
    uint64_t wait_ms = UINT64_MAX, now_ms = os_now_ms();
    unsigned tried = 0;
    for (struct thread *thread = may_look() ? thread_first() : NULL; thread != NULL;
         thread = thread->older) {
        if (!claim(thread)) {
            continue;
        }
        uint64_t ms = wait_for(thread, now_ms);
        if (ms == 0 && tried++ < MOST_PER_TICK && !empty(thread)) {
            refuse(thread, now_ms);
            ms = wait_for(thread, now_ms);
        }
        if (thread->sleep == THREAD_AWAKE) {
            wait_ms = min_size(wait_ms, ms == 0 ? SOON_MS : max_size(ms, LEAST_MS));
        }
        lock_release(&thread->claim);
    }
    return wait_ms;
}
