/* SPDX-License-Identifier: MIT
 *
 * interrupt.c - single steps and breakpoints inside the process itself; see interrupt.h.
 *
 * No tracer is needed, so this works where ptrace is forbidden.  A breakpoint is the one-byte
 * instruction int3, written into the process's private copy of the page.
 */
#define _GNU_SOURCE
#include "interrupt.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "test.h"

struct interrupt_trace *interrupt_new_trace(void) {
    void *trace = mmap(NULL, sizeof(struct interrupt_trace), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return trace == MAP_FAILED ? NULL : trace;
}

#if defined(__x86_64__)

enum { TRAP_FLAG = 0x100, BREAKPOINT = 0xcc };
enum mode { NOTHING, RECORD, WAIT, STEP_OVER, EVERY, DONE };

static struct {
    enum mode mode;
    struct interrupt_trace *trace;
    interrupt_work *work;
    volatile unsigned char *target; /* the instruction to stop at */
    unsigned char replaced;         /* its first byte */
    size_t passes;                  /* left before the stop */
} g;

void interrupt_trap_flag_on(void);
void interrupt_trap_flag_off(void);
__asm__("interrupt_trap_flag_on:\n"
        "    pushfq\n"
        "    orq $0x100, (%rsp)\n"
        "    popfq\n"
        "    ret\n"
        "interrupt_trap_flag_off:\n"
        "    pushfq\n"
        "    andq $~0x100, (%rsp)\n"
        "    popfq\n"
        "    ret\n");

static void record(uintptr_t at) {
    if (g.trace->count < INTERRUPT_MOST_STEPS) {
        g.trace->at[g.trace->count] = at;
    }
    g.trace->count++;
}

/* The breakpoint was hit, which leaves the address behind it.  Either this is the time, or the
 * original instruction is executed alone and the breakpoint set again. */
static void at_breakpoint(greg_t *registers) {
    registers[REG_RIP]--;
    check_eq(registers[REG_RIP], g.target);
    *g.target = g.replaced;
    if (g.passes-- > 0) {
        g.mode = STEP_OVER;
        registers[REG_EFL] |= TRAP_FLAG;
    } else {
        g.mode = DONE;
        g.work((uintptr_t)g.target);
    }
}

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (g.mode == RECORD) {
        record((uintptr_t)registers[REG_RIP]);
    } else if (g.mode == EVERY) {
        g.work((uintptr_t)registers[REG_RIP]);
    } else if (g.mode == WAIT) {
        at_breakpoint(registers);
    } else if (g.mode == STEP_OVER) {
        g.mode = WAIT;
        registers[REG_EFL] &= ~(greg_t)TRAP_FLAG;
        *g.target = BREAKPOINT;
    } else {
        test_fail(__FILE__, __LINE__, "a trap that nobody set");
    }
}

static void catch_traps(void) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_RESTART};
    check(sigaction(SIGTRAP, &action, NULL) == 0);
}

/* The page stays writable until the process ends. */
static bool make_writable(volatile void *address) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    return mprotect((void *)((uintptr_t)address & ~(page - 1)), page,
                    PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
}

bool interrupt_is_possible(void) {
    return make_writable((void *)(uintptr_t)interrupt_trap_flag_on);
}

void interrupt_record(struct interrupt_trace *trace) {
    trace->count = 0;
    g.trace = trace;
    g.mode = RECORD;
    catch_traps();
}

void interrupt_at_every(interrupt_work *work) {
    g.work = work;
    g.mode = EVERY;
    catch_traps();
}

void interrupt_at(const struct interrupt_trace *trace, size_t step, interrupt_work *work) {
    g.target = (volatile unsigned char *)trace->at[step];
    g.passes = 0;
    for (size_t i = 0; i < step; i++) {
        g.passes += trace->at[i] == trace->at[step];
    }
    check(make_writable(g.target));
    g.work = work;
    g.mode = WAIT;
    catch_traps();
}

void interrupt_begin(void) {
    if (g.mode == WAIT) {
        g.replaced = *g.target;
        *g.target = BREAKPOINT;
    } else {
        interrupt_trap_flag_on();
    }
}

bool interrupt_end(void) {
    bool done = g.mode == DONE || g.mode == EVERY;
    if (g.mode == WAIT) {
        *g.target = g.replaced;
    } else {
        interrupt_trap_flag_off();
    }
    g.mode = NOTHING;
    return done;
}

#else

bool interrupt_is_possible(void) {
    return false;
}

void interrupt_record(struct interrupt_trace *trace) {
    (void)trace;
}

void interrupt_at_every(interrupt_work *work) {
    (void)work;
}

void interrupt_at(const struct interrupt_trace *trace, size_t step, interrupt_work *work) {
    (void)trace, (void)step, (void)work;
}

void interrupt_begin(void) {
}

bool interrupt_end(void) {
    return false;
}

#endif
