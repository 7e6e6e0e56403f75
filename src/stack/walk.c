/* SPDX-License-Identifier: MIT
 *
 * walk.c - steps from frame to frame.
 */
#define _GNU_SOURCE /* REG_RIP */
#include "stack/walk.h"

#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

#include "base/os.h"

enum { LONGEST_STEP = 1 << 26, LONGEST_GUESS = 1 << 20, SIGNALS_MOST = 4 };

/* ---------------------------------------------------------------- registers */

#if defined(__x86_64__)
/* The kernel leaves the context on the stack where the handler returns to. */
enum {
    AT_ADDRESS = offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]),
    AT_STACK = offsetof(ucontext_t, uc_mcontext.gregs[REG_RSP]),
    AT_POINTER = offsetof(ucontext_t, uc_mcontext.gregs[REG_RBP]),
    AT_BASE = offsetof(ucontext_t, uc_mcontext.gregs[REG_RBX]),
    AT_LINK = AT_ADDRESS, /* there is none */
};

struct walk_registers walk_registers_of(const void *context) {
    const greg_t *all = ((const ucontext_t *)context)->uc_mcontext.gregs;
    return (struct walk_registers){.address = (uintptr_t)all[REG_RIP],
                                   .stack = (uintptr_t)all[REG_RSP],
                                   .pointer = (uintptr_t)all[REG_RBP],
                                   .base = (uintptr_t)all[REG_RBX]};
}

static inline uintptr_t base_here(void) {
    uintptr_t base;
    __asm__ volatile("movq %%rbx, %0" : "=r"(base));
    return base;
}
#else
/* Before the context is what the handler was told. */
enum {
    AT_ADDRESS = sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.pc),
    AT_STACK = sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.sp),
    AT_POINTER = sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.regs[FRAME_REGISTER]),
    AT_BASE = sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.regs[BASE_REGISTER]),
    AT_LINK = sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.regs[30]),
};

struct walk_registers walk_registers_of(const void *context) {
    const mcontext_t *all = &((const ucontext_t *)context)->uc_mcontext;
    return (struct walk_registers){.address = (uintptr_t)all->pc,
                                   .stack = (uintptr_t)all->sp,
                                   .pointer = (uintptr_t)all->regs[FRAME_REGISTER],
                                   .base = (uintptr_t)all->regs[BASE_REGISTER],
                                   .link = (uintptr_t)all->regs[30]};
}

static inline uintptr_t base_here(void) {
    uintptr_t base;
    __asm__ volatile("mov %0, x19" : "=r"(base));
    return base;
}
#endif

/* This function's own frame is nothing but the frame pointer and the return address. */
__attribute__((noinline)) struct walk_registers walk_registers_here(void) {
    uintptr_t base = base_here();
    const uintptr_t *frame = __builtin_frame_address(0);
    return (struct walk_registers){.address = stack_plain_address(frame[1]) - 1,
                                   .stack = (uintptr_t)(frame + 2),
                                   .pointer = frame[0],
                                   .base = base};
}

/* ---------------------------------------------------------------- steps */

struct walk {
    struct walk_registers at;
    struct walk_way *way;
    bool is_exact; /* the address is that of an instruction to come, not of a return */
    bool has_base;
    bool has_guessed; /* the last step was by a frame pointer that no table tells of */
    unsigned signals;
};

static bool read_word(struct walk *walk, uintptr_t address, uintptr_t *word) {
    return walk->way->read(walk->way, address, word);
}

/* What the function that a handler interrupted was about to do.  Its stack may be any. */
static bool leave_handler(struct walk *walk) {
    struct walk_registers to;
    uintptr_t stack = walk->at.stack;
    if (++walk->signals > SIGNALS_MOST || !read_word(walk, stack + AT_ADDRESS, &to.address) ||
        !read_word(walk, stack + AT_STACK, &to.stack) ||
        !read_word(walk, stack + AT_POINTER, &to.pointer) ||
        !read_word(walk, stack + AT_BASE, &to.base) ||
        !read_word(walk, stack + AT_LINK, &to.link)) {
        return false;
    }
    walk->at = to;
    walk->is_exact = walk->has_base = true;
    return true;
}

static bool find_frame(struct walk *walk, const struct cfi_rule *rule, uintptr_t *frame) {
    uintptr_t offset = (uintptr_t)(intptr_t)rule->offset;
    switch (rule->frame) {
    case CFI_STACK:
        *frame = walk->at.stack + offset;
        return true;
    case CFI_POINTER:
        *frame = walk->at.pointer + offset;
        return true;
    case CFI_AT_POINTER:
        return read_word(walk, walk->at.pointer + offset, frame);
    case CFI_BASE:
        *frame = walk->at.base + offset;
        return walk->has_base;
    default:
        return false;
    }
}

static bool find_saved(struct walk *walk, const struct cfi_rule *rule, uintptr_t frame,
                       uintptr_t *pointer) {
    uintptr_t offset = (uintptr_t)(intptr_t)rule->of_saved;
    switch (rule->saved) {
    case CFI_SAVED:
        return read_word(walk, frame + offset, pointer);
    case CFI_SAVED_AT_ITSELF:
        return read_word(walk, walk->at.pointer + offset, pointer);
    default:
        *pointer = walk->at.pointer;
        return true;
    }
}

/* Few functions ask for it, so that it is lost is no error. */
static void find_base(struct walk *walk, const struct cfi_rule *rule, uintptr_t frame) {
    if (rule->base == CFI_SAVED) {
        walk->has_base =
            read_word(walk, frame + (uintptr_t)(intptr_t)rule->of_base, &walk->at.base);
    } else {
        walk->has_base &= rule->base == CFI_SAME;
    }
}

static bool leave_by_rule(struct walk *walk, const struct cfi_rule *rule) {
    uintptr_t frame, address, pointer;
    if (!find_frame(walk, rule, &frame) || !find_saved(walk, rule, frame, &pointer)) {
        return false;
    }
    if (rule->returns == CFI_IN_REGISTER) { /* Who has called something has put it on the stack. */
        if (!walk->is_exact || walk->at.link == 0 || frame - walk->at.stack >= LONGEST_STEP) {
            return false;
        }
        address = walk->at.link;
    } else if (frame - walk->at.stack - 1 >= LONGEST_STEP - 1 ||
               !read_word(walk, frame + (uintptr_t)(intptr_t)rule->of_return, &address)) {
        return false;
    }
    find_base(walk, rule, frame);
    walk->at =
        (struct walk_registers){stack_plain_address(address), frame, pointer, walk->at.base, 0};
    return true;
}

/* The frame pointer leads to the caller's, which has the return address beside it. */
static bool leave_by_pointer(struct walk *walk) {
    uintptr_t pointer = walk->at.pointer;
    uintptr_t address, saved;
    if (pointer - walk->at.stack >= LONGEST_GUESS || !read_word(walk, pointer, &saved) ||
        !read_word(walk, pointer + sizeof(uintptr_t), &address)) {
        return false;
    }
    walk->at = (struct walk_registers){stack_plain_address(address),
                                       pointer + 2 * sizeof(uintptr_t), saved, 0, 0};
    walk->has_base = false;
    return true;
}

/* To the caller; false where there is none. */
static bool leave(struct walk *walk, const struct cfi_rule *rule) {
    if (rule->frame == CFI_SIGNAL) {
        return leave_handler(walk);
    }
    walk->has_guessed = rule->frame == CFI_NO_TABLE;
    bool left = walk->has_guessed        ? leave_by_pointer(walk)
                : rule->frame == CFI_END ? false
                                         : leave_by_rule(walk, rule);
    walk->is_exact = false;
    return left && walk->at.address >= os_facts.page_bytes;
}

/* Where nobody knows what is code, a frame pointer that leads to it is believed if tables tell of it. */
static bool is_code(const struct walk *walk, const struct cfi_rule *rule) {
    return rule->frame != CFI_UNKNOWN &&
           (rule->frame != CFI_NO_TABLE || !walk->has_guessed || walk->way->knows_code);
}

/* Why it did not get further than this. */
static enum walk_end end_at(const struct walk *walk, const struct cfi_rule *rule) {
    switch (rule->frame) {
    case CFI_END:
    case CFI_NO_TABLE:
        return WALK_ENDED;
    case CFI_UNKNOWN:
        return WALK_UNKNOWN;
    case CFI_BASE:
        return walk->has_base ? WALK_BROKEN : WALK_NEEDS_BASE;
    default:
        return WALK_BROKEN;
    }
}

struct walk_result walk_stack(struct walk_registers registers, struct walk_way *way,
                              uintptr_t below, uintptr_t *addresses, unsigned most) {
    struct walk walk = {.at = registers, .way = way, .is_exact = true, .has_base = true};
    struct walk_result result = {0, WALK_FULL, 0};
    for (unsigned steps = 0; result.count < most; steps++) {
        struct cfi_rule rule = way->find_rule(way, walk.at.address - !walk.is_exact);
        if (!is_code(&walk, &rule) && steps > 0) {
            result.end = rule.frame == CFI_UNKNOWN ? WALK_UNKNOWN : WALK_ENDED;
            break;
        }
        if (walk.at.stack > below) {
            addresses[result.count++] = walk.at.address + walk.is_exact;
            result.stack = walk.at.stack;
        }
        if (rule.frame == CFI_UNKNOWN || !leave(&walk, &rule)) {
            result.end = end_at(&walk, &rule);
            break;
        }
    }
    return result;
}
