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
    return atomic_compare_exchange_strong_explicit(&lock->word, &word, taken, memory_order_acquire,
                                                   memory_order_relaxed);
}

COLD enum lock_found lock_acquire_slowly(struct lock *lock) {
    enum lock_found found;
    uint32_t keep = 0;
    for (unsigned spins = 0;; spins++) {
        uint32_t word = atomic_load_explicit(&lock->word, memory_order_relaxed);
        if (try_to_take(lock, word, keep, &found)) {
            return found;
        }
        if (spins < SPINS) {
            relax();
        } else if (word & LOCK_LOCKED && /* else somebody was quicker, and may be gone again */
                   (word & LOCK_WAITERS || atomic_compare_exchange_strong_explicit(
                                               &lock->word, &word, word | LOCK_WAITERS,
                                               memory_order_relaxed, memory_order_relaxed))) {
            os_wait_ms(&lock->word, word | LOCK_WAITERS, LONGEST_WAIT_MS);
            /* Others may sleep as well: keep the mark, a wake too many is harmless. */
            keep = LOCK_WAITERS;
        }
    }
}

COLD void lock_wake(struct lock *lock) {
    os_wake(&lock->word);
}
