/* SPDX-License-Identifier: MIT
 *
 * interrupt.h - runs a function of the test's choice in the midst of another one, at a chosen
 * instruction, as a signal handler would.
 *
 *      interrupt_record(trace)         the instructions between begin and end are written down
 *      interrupt_at(trace, 17, work)   `work` runs when instruction 17 of the trace is next
 *      interrupt_at_every(work)        `work` runs before every instruction
 *      interrupt_begin()               from here on
 *      interrupt_end()                 until here
 *
 * Recording single-steps by the processor's trap flag: one SIGTRAP for each instruction, which
 * takes microseconds.  Stopping at instruction n then does not step: a breakpoint stands at its
 * address, and is passed as often as the trace passed that address before.  So each instruction of
 * a long call can have a process of its own.
 *
 * What runs in the process between begin and end must be the same each time, up to the interruption:
 * prepare a process as the recorded one was prepared, best by a fork of the same parent.
 *
 * Threads     Begin and end belong to one thread, which must not block SIGTRAP in between; the
 *             other threads must stay out of the code that is interrupted.
 */
#ifndef TALLY_TEST_INTERRUPT_H
#define TALLY_TEST_INTERRUPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INTERRUPT_MOST_STEPS = 1 << 20 };

/* Addresses of instructions, in the order in which they ran. */
struct interrupt_trace {
    size_t count; /* may exceed what was kept */
    uintptr_t at[INTERRUPT_MOST_STEPS];
};

/* Runs in a signal handler; `at` is the instruction that comes next. */
typedef void interrupt_work(uintptr_t at);

/* False where this processor or this kernel has no way; then nothing else here may be called. */
bool interrupt_is_possible(void);

/* An empty trace in memory that children made by fork share; NULL without memory. */
struct interrupt_trace *interrupt_new_trace(void);

void interrupt_record(struct interrupt_trace *trace);
void interrupt_at(const struct interrupt_trace *trace, size_t step, interrupt_work *work);
void interrupt_at_every(interrupt_work *work);

void interrupt_begin(void);

/* Returns whether the work was done. */
bool interrupt_end(void);

#endif
