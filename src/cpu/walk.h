/* SPDX-License-Identifier: MIT
 *
 * walk.h - the call stack of code that a signal has interrupted.
 *
 * Threads     cpu_walk takes no lock, allocates nothing, calls nothing outside and needs little stack: it is
 *             for signal handlers.
 */
#pragma once

#include "cpu/code.h"

/* The registers that matter.  Link is where the return address is on machines that have it in one. */
struct walk_registers {
    uintptr_t address, stack, pointer, link;
};

/*
 * Addresses as cpu.h says, innermost first, at least one.  `*met_unknown` is set where the walk came to an
 * address that is not known to be code: the stack ends before it.
 */
unsigned cpu_walk(struct walk_registers registers, uintptr_t *addresses, unsigned most,
                  struct code_room *room, bool *met_unknown);

/* The registers in what a handler is given. */
struct walk_registers walk_registers_of(const void *context);

/* Rules may be wrong now. */
void walk_forget(void);
