/* SPDX-License-Identifier: MIT
 *
 * libgcc.h - how libgcc finds unwind tables.
 *
 * libtally.so opens libgcc when it is first needed (libgcc_opened.c), so that programs that are
 * never profiled do not load it.  libtally.a is linked with it (libgcc_linked.c): a static program
 * cannot open anything.
 */
#pragma once

/* Declared in no header: the table of the code around an address, or NULL. */
struct libgcc_bases {
    void *text, *data, *function; /* the last: where it begins */
};
typedef const void *libgcc_finder(void *address, struct libgcc_bases *bases);
libgcc_finder _Unwind_Find_FDE;

/* NULL when it is not there.  May allocate and take the loader's locks. */
libgcc_finder *libgcc_find(void);
