/* SPDX-License-Identifier: MIT
 *
 * os_fault.c - makes the n-th call of a chosen os_* function fail.
 *
 * The linker turns the library's os_map into __wrap_os_map, which is here, and the real one into
 * __real_os_map.  Only calls between files pass here, which is all there are: os_linux.c does not
 * call itself.
 *
 * Threads     The count is atomic, so with several threads exactly one call is the n-th.
 */
#include "os_fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

static struct {
    _Atomic int call; /* enum os_fault_call, or -1: nothing fails */
    _Atomic enum os_fault_extent extent;
    _Atomic unsigned n;
    _Atomic unsigned seen; /* calls of the chosen function since os_fault_begin */
    _Atomic bool failed;
} g = {.call = -1};

void os_fault_begin(enum os_fault_call call, enum os_fault_extent extent, unsigned n) {
    g.extent = extent;
    g.n = n;
    g.seen = 0;
    g.failed = false;
    g.call = (int)call;
}

bool os_fault_end(void) {
    g.call = -1;
    return g.failed;
}

const char *os_fault_name(enum os_fault_call call) {
    static const char *const names[FAULT_CALL_COUNT] = {
        "os_map", "os_reserve", "os_reserve_readable", "os_commit", "os_purge", "os_unmap"};
    return names[call];
}

static bool fails(enum os_fault_call call) {
    if (g.call != (int)call) {
        return false;
    }
    unsigned seen = atomic_fetch_add(&g.seen, 1) + 1;
    bool fail = g.extent == FAULT_EXACTLY ? seen == g.n : seen >= g.n;
    if (fail) {
        g.failed = true;
    }
    return fail;
}

void *__real_os_map(size_t bytes);
void *__real_os_reserve(void *hint, size_t bytes);
void *__real_os_reserve_readable(size_t bytes);
int __real_os_commit(void *start, size_t bytes);
int __real_os_purge(void *start, size_t bytes);
int __real_os_unmap(void *start, size_t bytes);

void *__wrap_os_map(size_t bytes);
void *__wrap_os_reserve(void *hint, size_t bytes);
void *__wrap_os_reserve_readable(size_t bytes);
int __wrap_os_commit(void *start, size_t bytes);
int __wrap_os_purge(void *start, size_t bytes);
int __wrap_os_unmap(void *start, size_t bytes);

void *__wrap_os_map(size_t bytes) {
    return fails(FAULT_MAP) ? NULL : __real_os_map(bytes);
}

void *__wrap_os_reserve(void *hint, size_t bytes) {
    return fails(FAULT_RESERVE) ? NULL : __real_os_reserve(hint, bytes);
}

void *__wrap_os_reserve_readable(size_t bytes) {
    return fails(FAULT_RESERVE_READABLE) ? NULL : __real_os_reserve_readable(bytes);
}

int __wrap_os_commit(void *start, size_t bytes) {
    return fails(FAULT_COMMIT) ? -ENOMEM : __real_os_commit(start, bytes);
}

/* What mlock()ed memory does. */
int __wrap_os_purge(void *start, size_t bytes) {
    return fails(FAULT_PURGE) ? -EINVAL : __real_os_purge(start, bytes);
}

int __wrap_os_unmap(void *start, size_t bytes) {
    return fails(FAULT_UNMAP) ? -ENOMEM : __real_os_unmap(start, bytes);
}
