/* SPDX-License-Identifier: MIT
 *
 * leak_names.h - what an address of a call stack is called, as far as the loader knows.
 *
 * Threads     Outside and with no lock held: the loader has a lock of its own.  One struct, one thread.
 */
#pragma once

#include "base/common.h"
#include "contract/suppress.h"
#include "out/maps.h"

/* All zeros: nothing was looked up yet. */
struct leak_names {
    struct pile seen;   /* names by address */
    struct maps maps;   /* for what the loader does not know: all of a static program */
    char text[1024];    /* of the last function, demangled */
    char program[1024]; /* the path of the program, which the loader calls what it was called by */
};

struct leak_place {
    const char *function; /* valid until the next is asked for; NULL where there is no name */
    const char *module;   /* path; NULL: in none */
    uintptr_t offset;     /* of the call in the module */
};

/* The place of a call that returns to this address. */
struct leak_place leak_names_find(struct leak_names *names, uintptr_t address);

/* Does a rule of this text want it passed over? */
bool leak_names_suppress(struct leak_names *names, const char *rules, uintptr_t address,
                         struct suppress_rule *rule);

void leak_names_release(struct leak_names *names);

/* The last part of a path. */
const char *leak_names_base(const char *path);
