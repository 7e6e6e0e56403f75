/* SPDX-License-Identifier: MIT
 *
 * os_fault.h - makes the kernel refuse, for fault tests.
 *
 * The fault test is linked with -Wl,--wrap for each of these functions (FAULT_CALLS in CMakeLists.txt),
 * so every call of the library passes here first.  The product knows nothing of it.
 */
#ifndef TALLY_TEST_OS_FAULT_H
#define TALLY_TEST_OS_FAULT_H

#include <stdbool.h>

enum os_fault_call {
    FAULT_MAP,
    FAULT_RESERVE,
    FAULT_RESERVE_READABLE,
    FAULT_COMMIT,
    FAULT_PURGE,
    FAULT_UNMAP,
    FAULT_CALL_COUNT,
};

enum os_fault_extent {
    FAULT_EXACTLY, /* the n-th call fails */
    FAULT_FROM_ON, /* the n-th call and all that follow */
};

/* From now on the n-th call (1, 2, 3 ...) of a function fails; all calls of others succeed. */
void os_fault_begin(enum os_fault_call call, enum os_fault_extent extent, unsigned n);

/* No call fails any more.  Returns whether one did since os_fault_begin. */
bool os_fault_end(void);

/* "os_map" and so on. */
const char *os_fault_name(enum os_fault_call call);

#endif
