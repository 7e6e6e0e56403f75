/* SPDX-License-Identifier: MIT
 *
 * cfi.h - where a function keeps its return address, as the unwind tables tell.
 *
 * libgcc goes on to the caller without a look whether it can be there.  On a thread's own stack that is
 * sound; a coroutine may begin with anything in the place of a return address.  So where the next step
 * leads is found out here first (unwind.c), from the same tables.
 *
 * Threads     Reads tables of loaded code, as libgcc does; takes no lock, allocates nothing.
 */
#pragma once

#include "base/common.h"

/* The return address is at the value of a register, plus an offset. */
struct cfi_slot {
    unsigned reg;
    int64_t offset;
};

/* For the function that begins at `start`, stopped before the instruction at `address`, by its
 * description (an FDE).  False: it has no return address, or tells in a way that is not read here. */
bool cfi_find_slot(const void *description, uintptr_t start, uintptr_t address,
                   struct cfi_slot *slot);

/* How to get from a function to its caller. */
struct cfi_rule {
    /* The frame, which is the stack pointer after the return: */
    enum cfi_frame {
        CFI_STACK,      /* stack pointer plus offset */
        CFI_POINTER,    /* frame pointer plus offset */
        CFI_AT_POINTER, /* the word there */
        CFI_SIGNAL,     /* a handler returns here: the kernel keeps all registers on the stack */
        CFI_END,        /* there is no caller */
    } frame;
    int32_t offset;
    /* The return address: */
    enum cfi_return {
        CFI_AT_FRAME,    /* at the frame plus of_return */
        CFI_IN_REGISTER, /* in the link register; for the innermost function only */
    } returns;
    int32_t of_return;
    /* The caller's frame pointer: */
    enum cfi_saved {
        CFI_SAME,           /* as it is */
        CFI_SAVED,          /* at the frame plus of_saved */
        CFI_SAVED_AT_ITSELF /* at the frame pointer plus of_saved */
    } saved;
    int32_t of_saved;
};

/*
 * The same with all that is needed to go on.  `description` and the shared rules (CIE) that it points back to
 * are copies; `bytes` each has in its copy, which has CFI_BEHIND zeros behind it.  They may be damaged: then the
 * answer is anything.
 */
enum { CFI_BEHIND = 32 };
struct cfi_copy {
    const unsigned char *description, *shared;
    size_t description_bytes, shared_bytes;
};
bool cfi_find_rule(const struct cfi_copy *copy, uintptr_t start, uintptr_t address,
                   struct cfi_rule *rule);
