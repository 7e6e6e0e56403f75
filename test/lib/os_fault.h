/* SPDX-License-Identifier: MIT
 *
 * os_fault.h - makes the kernel refuse, for fault tests.
 *
 * A fault test is linked with -Wl,--wrap for each function of os_fault.def, so every call of the
 * library passes here first.  The product knows nothing of it.
 */
#ifndef TALLY_TEST_OS_FAULT_H
#define TALLY_TEST_OS_FAULT_H

#include <stdbool.h>

#define FAULT(name, type, parameters, arguments, refused) FAULT_##name,
enum os_fault_call {
#include "os_fault.def"
    FAULT_CALL_COUNT,
};
#undef FAULT

enum os_fault_extent {
    FAULT_EXACTLY, /* the n-th call fails */
    FAULT_FROM_ON, /* the n-th call and all that follow */
};

/* From now on the n-th call (1, 2, 3 ...) of a function fails, counted over this process and those
 * it forks; all calls of others succeed. */
void os_fault_begin(enum os_fault_call call, enum os_fault_extent extent, unsigned n);

/* Whether a call failed since os_fault_begin. */
bool os_fault_met(void);

/* What a refused os_move or os_renew says: -ENOMEM unless a test says otherwise. */
extern int os_fault_move_error;

/* No call fails any more.  Returns whether one did since os_fault_begin. */
bool os_fault_end(void);

/* "os_map" and so on. */
const char *os_fault_name(enum os_fault_call call);

#endif
