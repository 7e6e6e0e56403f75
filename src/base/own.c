/* SPDX-License-Identifier: MIT
 *
 * own.c - the gate before the work of the library's threads.
 *
 *      word    number of those at work | shut
 */
#include "base/own.h"

#include <stdatomic.h>

#include "base/log.h"
#include "base/os.h"
#include "base/os_threads.h"

enum { MOST = 16, RANGES_MOST = 4, SHUT = 1, ONE = 2 };

struct own {
    _Atomic uint32_t thread; /* 0: unused */
    _Atomic uintptr_t sp, pointer;
};

static struct {
    _Atomic uint32_t word;
    struct own threads[MOST];
    _Atomic unsigned range_count;
    struct {
        uintptr_t start;
        _Atomic uintptr_t end; /* 0: not there yet */
    } ranges[RANGES_MOST];
} g;

static __thread bool is_working;
static __thread struct own *self;

void own_enroll(void) {
    for (unsigned i = 0; i < MOST && self == NULL; i++) {
        uint32_t nobody = 0;
        if (atomic_compare_exchange_strong(&g.threads[i].thread, &nobody, os_thread_id())) {
            self = &g.threads[i];
            self->pointer = os_thread_pointer();
            self->sp = (uintptr_t)__builtin_frame_address(0);
        }
    }
}

void own_leave(void) {
    if (self != NULL) {
        self->thread = 0;
        self = NULL;
    }
}

void own_begin(void) {
    uint32_t seen = atomic_load(&g.word);
    for (;;) {
        if (seen & SHUT) {
            os_wait(&g.word, seen);
            seen = atomic_load(&g.word);
        } else if (atomic_compare_exchange_weak(&g.word, &seen, seen + ONE)) {
            is_working = true;
            return;
        }
    }
}

void own_end(void) {
    is_working = false;
    if (self != NULL) {
        self->sp = (uintptr_t)__builtin_frame_address(0);
    }
    uint32_t before = atomic_fetch_sub(&g.word, ONE);
    if (before & SHUT) {
        os_wake_all(&g.word); /* own_close waits on the same word as threads that want to work */
    }
}

bool own_close(uint64_t most_ms) {
    uint64_t end = os_now_ms() + most_ms;
    uint32_t nobody = SHUT + (is_working ? ONE : 0); /* but the caller */
    uint32_t word = atomic_fetch_or(&g.word, SHUT) | SHUT;
    while (word != nobody) {
        if (os_now_ms() >= end) {
            own_open();
            return false;
        }
        os_wait_ms(&g.word, word, 1);
        word = atomic_fetch_or(&g.word, SHUT) | SHUT; /* somebody else may have opened it */
    }
    return true;
}

void own_open(void) {
    atomic_fetch_and(&g.word, ~(uint32_t)SHUT);
    os_wake_all(&g.word);
}

STARTUP void own_forked(void) {
    atomic_store(&g.word, 0);
    for (unsigned i = 0; i < MOST; i++) {
        g.threads[i].thread = 0;
    }
    self = NULL;
    is_working = false;
}

bool own_find(uint32_t thread, uintptr_t *sp, uintptr_t *pointer) {
    for (unsigned i = 0; i < MOST; i++) {
        if (atomic_load(&g.threads[i].thread) == thread) {
            *sp = g.threads[i].sp;
            *pointer = g.threads[i].pointer;
            return true;
        }
    }
    return false;
}

void own_memory(const void *start, size_t bytes) {
    unsigned at = atomic_fetch_add(&g.range_count, 1);
    ensure(at < RANGES_MOST);
    g.ranges[at].start = (uintptr_t)start;
    g.ranges[at].end = (uintptr_t)start + bytes;
}

void own_walk_memory(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context) {
    for (unsigned i = 0; i < RANGES_MOST; i++) {
        uintptr_t end = g.ranges[i].end;
        if (end != 0) {
            visit(g.ranges[i].start, end, context);
        }
    }
}
