/* SPDX-License-Identifier: MIT
 *
 * cfi.h - how to get from a function to its caller, as the unwind tables say.
 *
 * Threads     Reads what it is given; takes no lock, allocates nothing.
 */
#pragma once

#include "base/common.h"

/* Registers as the tables number them.  The base register is one that the C library uses in place
 * of a frame pointer.  And does the code that a signal handler returns to have a rule like that of
 * a function?  If not, functions whose tables are marked as a signal's can be told from it. */
#if defined(__x86_64__)
enum { BASE_REGISTER = 3, FRAME_REGISTER = 6, STACK_REGISTER = 7, TRAMPOLINE_IS_PLAIN = false };
#else
enum { BASE_REGISTER = 19, FRAME_REGISTER = 29, STACK_REGISTER = 31, TRAMPOLINE_IS_PLAIN = true };
#endif

struct cfi_rule {
    /* The frame, which is the stack pointer after the return: */
    enum cfi_frame {
        CFI_STACK = 1,  /* stack pointer plus offset */
        CFI_POINTER,    /* frame pointer plus offset */
        CFI_AT_POINTER, /* the word there */
        CFI_BASE,       /* base register plus offset */
        CFI_SIGNAL,     /* a handler returns here: the kernel keeps all registers on the stack */
        CFI_END,        /* there is no caller */
        CFI_NO_TABLE,   /* (never by cfi_find_rule) code about which nothing is known */
        CFI_UNKNOWN,    /* (never by cfi_find_rule) not known to be code */
    } frame;
    int32_t offset;
    /* The return address: */
    enum cfi_return {
        CFI_AT_FRAME,    /* at the frame plus of_return */
        CFI_IN_REGISTER, /* in the link register; for the innermost function only */
    } returns;
    int32_t of_return;
    /* The caller's frame pointer and base register: */
    enum cfi_saved {
        CFI_SAME,            /* as it is */
        CFI_SAVED,           /* at the frame plus of_saved, of_base */
        CFI_SAVED_AT_ITSELF, /* at the frame pointer plus of_saved */
        CFI_LOST,
    } saved,
        base;
    int32_t of_saved, of_base;
};

/* The rule of the function that begins at `start`, stopped before the instruction at `address`.
 * Its description (FDE) and the shared rules (CIE) that it points back to are given with their
 * lengths in bytes.  If they are copies, which may be damaged, there are CFI_BEHIND zeros behind
 * each; then the answer may be anything.  False if the tables use a form that is not read here. */
enum { CFI_BEHIND = 32 };
struct cfi_parts {
    const unsigned char *description, *shared;
    size_t description_bytes, shared_bytes;
};
bool cfi_find_rule(const struct cfi_parts *parts, uintptr_t start, uintptr_t address,
                   struct cfi_rule *rule);
