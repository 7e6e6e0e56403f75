/* SPDX-License-Identifier: MIT
 *
 * count.h - a number that one thread at a time changes and all may read.
 *
 * Whoever changes it owns it, or holds the lock that guards it, so no locked instruction is needed:
 * a reader finds the old value or the new one.  On x86-64 a change is a single instruction; compilers
 * make three of an atomic load and store, and these stand on paths where each one counts.
 */
#pragma once

#include "base/common.h"

static inline void count_add(uint64_t *count, uint64_t change) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__ volatile("addq %1, %0" : "+m"(*count) : "er"(change) : "cc");
#else
    __atomic_store_n(count, *count + change, __ATOMIC_RELAXED);
#endif
}

static inline void count_set(uint64_t *count, uint64_t value) {
    __atomic_store_n(count, value, __ATOMIC_RELAXED);
}

static inline uint64_t count_read(const uint64_t *count) {
    return __atomic_load_n(count, __ATOMIC_RELAXED);
}

/* The same for a number that several change at once. */
static inline void count_add_shared(uint64_t *count, uint64_t change) {
    __atomic_fetch_add(count, change, __ATOMIC_RELAXED);
}
