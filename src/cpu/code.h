/* SPDX-License-Identifier: MIT
 *
 * code.h - what is code, and how to get from a place in it to the caller, found without the loader.
 *
 * The loader and libgcc lock, and what they tell may be unloaded in the next moment.  So the writer reads
 * from /proc which ranges are executable and where the tables of each are (code_look), and a signal handler
 * searches those tables by copies that never fault (code_find).
 *
 * Threads     code_look is the writer's.  code_find takes no lock, allocates nothing and may be called from
 *             handlers, if these are counted and code_look is told when there are none.
 */
#pragma once

#include "base/common.h"
#include "prof/cfi.h"

enum code_answer {
    CODE_RULE,     /* here is the rule */
    CODE_NO_TABLE, /* it is code, of which nothing more is known */
    CODE_UNKNOWN,  /* it is not code, or was not when code_look last looked */
};

/* Room for the tables of one function. */
enum { CODE_ROOM = 4096, CODE_WINDOW = 4096 };
struct code_room {
    unsigned char bytes[CODE_ROOM];
    unsigned char window[CODE_WINDOW]; /* for walk.c: of the stack */
    bool is_asked, is_careful;         /* false at the beginning of each walk */
};

/* Copies memory that need not be readable; false if it is not. */
bool code_copy(struct code_room *room, void *to, uintptr_t from, size_t bytes);

enum code_answer code_find(uintptr_t address, struct code_room *room, struct cfi_rule *rule);

enum code_news {
    CODE_SAME,
    CODE_MORE,
    CODE_LOST, /* code that was known is not there any more, so rules may be wrong */
};

/* Looks again, and tells what is new.  Nothing
 * happens as long as the ranges before the last ones cannot be given back: `is_idle` says whether at this
 * moment no handler runs, or none that began before now. */
enum code_news code_look(bool (*is_idle)(void));

/* In the child of a fork there are no handlers. */
void code_forked(void);
