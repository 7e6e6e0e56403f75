/* SPDX-License-Identifier: MIT
 *
 * os_fault.c - makes the n-th call of a chosen os_* function fail.
 *
 * The linker turns the library's os_map into __wrap_os_map, which is here, and the real one into
 * __real_os_map.  Only calls between files pass here, so a call that os_linux.c makes of itself
 * does not: there is one, a purge that is tried on a page of its own.
 *
 * Threads     The count is atomic, so with several threads exactly one call is the n-th.  It lies
 *             in memory that is shared with forked children, so a fault may meet any of them.
 */
#include "os_fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

static struct fault {
    _Atomic int call; /* enum os_fault_call, or -1: nothing fails */
    _Atomic enum os_fault_extent extent;
    _Atomic unsigned n;
    _Atomic unsigned seen; /* calls of the chosen function since os_fault_begin */
    _Atomic bool failed;
} * g;

int os_fault_move_error = -ENOMEM;

void os_fault_begin(enum os_fault_call call, enum os_fault_extent extent, unsigned n) {
    if (g == NULL) {
        g = mmap(NULL, sizeof *g, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (g == MAP_FAILED) {
            abort();
        }
    }
    g->extent = extent;
    g->n = n;
    g->seen = 0;
    g->failed = false;
    g->call = (int)call;
}

bool os_fault_met(void) {
    return g->failed;
}

bool os_fault_end(void) {
    g->call = -1;
    return g->failed;
}

const char *os_fault_name(enum os_fault_call call) {
#define FAULT(name, type, parameters, arguments, refused) #name,
    static const char *const names[FAULT_CALL_COUNT] = {
#include "os_fault.def"
    };
#undef FAULT
    return names[call];
}

static bool fails(enum os_fault_call call) {
    if (g == NULL || g->call != (int)call) {
        return false;
    }
    unsigned seen = atomic_fetch_add(&g->seen, 1) + 1;
    bool fail = g->extent == FAULT_EXACTLY ? seen == g->n : seen >= g->n;
    if (fail) {
        g->failed = true;
    }
    return fail;
}

#define FAULT(name, type, parameters, arguments, refused)                                          \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        return fails(FAULT_##name) ? refused : __real_##name arguments;                            \
    }
#include "os_fault.def"
