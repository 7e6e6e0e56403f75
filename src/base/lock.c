/* SPDX-License-Identifier: MIT
 *
 * lock.c - taking, sleeping on and handing over the lock of lock.h.
 *
 * A contender spins briefly, because holders work for about a microsecond, and then sleeps: a
 * real-time thread must not spin against a holder it keeps from running.
 */
#include "base/lock.h"

#include "base/log.h"
#include "base/os.h"

/* A sleep ends after a while, because the child of a fork made by a signal handler may wait for a
 * thread that does not exist. */
enum { SPINS = 100, LONGEST_WAIT_MS = 1000 };

extern char __libc_single_threaded __attribute__((weak));

static const char several_threads = 0;
_Atomic(const char *) lock_single_threaded = &several_threads;

void lock_init(void) {
    if (&__libc_single_threaded != NULL) {
        lock_single_threaded = &__libc_single_threaded;
    }
}

/* Debug builds only: a bit per rank this thread holds. */
static __thread uint32_t held_ranks;

void lock_note_acquired(const struct lock *lock) {
    ensure(held_ranks >> lock->rank == 0);
    held_ranks |= 1u << lock->rank;
}

void lock_note_released(const struct lock *lock) {
    ensure(held_ranks & 1u << lock->rank);
    held_ranks &= ~(1u << lock->rank);
}

bool lock_is_mine(const struct lock *lock) {
    return lock_is_held(lock) && (held_ranks & 1u << lock->rank) != 0;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* One try to take a lock whose word was just read; the fork generation is looked at each time, since
 * a handler may have forked while we waited. */
static bool try_to_take(struct lock *lock, uint32_t word, uint32_t keep, enum lock_found *found) {
    if (attention_get() == 0) {
        attention_notice_fork();
    }
    uint32_t now = lock_generation();
    bool current = word >> LOCK_GENERATION_SHIFT == now >> LOCK_GENERATION_SHIFT;
    if (current && word & LOCK_LOCKED) {
        return false;
    }
    *found = !current && word & LOCK_LOCKED ? LOCK_ABANDONED : LOCK_SOUND;
    uint32_t taken = (current ? word : now) | LOCK_LOCKED | keep;
    /* Acquire pairs with the release of the last holder. */
    bool done = atomic_compare_exchange_strong_explicit(&lock->word, &word, taken,
                                                        memory_order_acquire, memory_order_relaxed);
    if (done && !current) {
        atomic_store_explicit(&lock->sleepers, 0, memory_order_relaxed); /* They are gone. */
    }
    return done;
}

/* A thread that sleeps for the lock. */
struct sleep {
    uint64_t since_ns; /* 0: it never slept */
    uint32_t sleepers; /* with it */
};

static void begin_sleep(struct lock *lock, struct sleep *sleep) {
    if (sleep->since_ns == 0) {
        sleep->since_ns = os_now_ns();
        sleep->sleepers = atomic_fetch_add_explicit(&lock->sleepers, 1, memory_order_relaxed) + 1;
    }
}

/* The holder counts what it took to get the lock. */
static void count_contention(struct lock *lock, const struct sleep *sleep) {
    if (sleep->since_ns == 0) {
        count_add(&lock->spun, 1);
        return;
    }
    if (atomic_load_explicit(&lock->sleepers, memory_order_relaxed) > 0) {
        atomic_fetch_sub_explicit(&lock->sleepers, 1, memory_order_relaxed);
    }
    uint64_t ns = os_now_ns() - sleep->since_ns;
    count_add(&lock->slept, 1);
    count_add(&lock->slept_ns, ns);
    count_set(&lock->longest_ns, max_size(lock->longest_ns, ns));
    if (sleep->sleepers > lock->most_sleepers) {
        __atomic_store_n(&lock->most_sleepers, sleep->sleepers, __ATOMIC_RELAXED);
    }
}

COLD enum lock_found lock_acquire_slowly(struct lock *lock) {
    enum lock_found found;
    uint32_t keep = 0;
    struct sleep sleep = {0};
    for (unsigned spins = 0;; spins++) {
        uint32_t word = atomic_load_explicit(&lock->word, memory_order_relaxed);
        if (try_to_take(lock, word, keep, &found)) {
            if (spins > 0) {
                count_contention(lock, &sleep);
            }
            return found;
        }
        if (spins < SPINS) {
            relax();
        } else if (word & LOCK_LOCKED && /* if not, it is free now: try again */
                   (word & LOCK_WAITERS || atomic_compare_exchange_strong_explicit(
                                               &lock->word, &word, word | LOCK_WAITERS,
                                               memory_order_relaxed, memory_order_relaxed))) {
            begin_sleep(lock, &sleep);
            os_wait_ms(&lock->word, word | LOCK_WAITERS, LONGEST_WAIT_MS);
            /* Others may sleep as well: keep the mark, a wake too many is harmless. */
            keep = LOCK_WAITERS;
        }
    }
}

bool lock_try(struct lock *lock, enum lock_found *found) {
    uint32_t word = atomic_load_explicit(&lock->word, memory_order_relaxed);
    if (!try_to_take(lock, word, 0, found)) {
        return false;
    }
    count_add(&lock->taken, 1);
    if (DEBUG) {
        lock_note_acquired(lock);
    }
    return true;
}

COLD void lock_wake(struct lock *lock) {
    os_wake(&lock->word);
}

/* ---------------------------------------------------------------- counts */

struct lock_counts lock_read_counts(const struct lock *lock) {
    return (struct lock_counts){
        .taken = count_read(&lock->taken),
        .spun = count_read(&lock->spun),
        .slept = count_read(&lock->slept),
        .slept_ns = count_read(&lock->slept_ns),
        .longest_ns = count_read(&lock->longest_ns),
        .most_sleepers = __atomic_load_n(&lock->most_sleepers, __ATOMIC_RELAXED),
    };
}

/* Releases a lock as if its holder had vanished: the next holder is told to repair. */
static COLD void leave_abandoned(struct lock *lock) {
    if (DEBUG) {
        lock_note_released(lock);
    }
    uint32_t old = lock_generation() - (1u << LOCK_GENERATION_SHIFT);
    atomic_store_explicit(&lock->word, old | LOCK_LOCKED, memory_order_release);
    lock_wake(lock);
}

/* We are not the one to repair what a lock guards: an abandoned one is left as it was found. */
void lock_reset_counts(struct lock *lock) {
    enum lock_found found = lock_acquire(lock);
    uint64_t *counts[] = {&lock->taken, &lock->spun, &lock->slept, &lock->slept_ns,
                          &lock->longest_ns};
    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        count_set(counts[i], 0);
    }
    __atomic_store_n(&lock->most_sleepers, 0, __ATOMIC_RELAXED);
    if (found == LOCK_ABANDONED) {
        leave_abandoned(lock);
    } else {
        lock_release(lock);
    }
}
