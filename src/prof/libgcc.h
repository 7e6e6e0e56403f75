/* SPDX-License-Identifier: MIT
 *
 * libgcc.h - the functions of libgcc's unwinder, wherever they come from.
 *
 * libtally.so opens libgcc when it is wanted first (libgcc_opened.c), so that programs that are never
 * profiled do not load it.  libtally.a is linked with it (libgcc_linked.c): a static program cannot
 * open anything.
 */
#pragma once

#include <unwind.h>

#include "base/common.h"

/* Declared in no header: the table of the code around an address, or NULL. */
struct libgcc_bases {
    void *text, *data, *function; /* the last: where it begins */
};
const void *_Unwind_Find_FDE(void *address, struct libgcc_bases *bases);

struct libgcc {
    const void *(*table)(void *address, struct libgcc_bases *bases);
    _Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn visit, void *context);
    _Unwind_Ptr (*address)(struct _Unwind_Context *context, int *is_exact);
    _Unwind_Word (*reg)(struct _Unwind_Context *context, int number);
    _Unwind_Word (*stack)(struct _Unwind_Context *context);
};

/* The numbers of frame pointer, for `reg`, and stack pointer. */
#if defined(__x86_64__)
enum { FRAME_REGISTER = 6, STACK_REGISTER = 7 };
#else
enum { FRAME_REGISTER = 29, STACK_REGISTER = 31 };
#endif

/* False when it is not there.  May allocate and take the loader's locks. */
bool libgcc_find(struct libgcc *libgcc);
