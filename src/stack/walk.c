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

/* Where registers are in a context, and where that is above the stack when the handler returns. */
#if defined(__x86_64__)
#define COPY_BASE "movq %%rbx, %0"
enum {
    CONTEXT_ABOVE = 0,
    AT_ADDRESS = offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]),
    AT_STACK = offsetof(ucontext_t, uc_mcontext.gregs[REG_RSP]),
    AT_POINTER = offsetof(ucontext_t, uc_mcontext.gregs[REG_RBP]),
    AT_BASE = offsetof(ucontext_t, uc_mcontext.gregs[REG_RBX]),
    AT_LINK = AT_ADDRESS, /* there is none, and no rule that asks for it */
};
#else
#define COPY_BASE "mov %0, x19"
enum {
    CONTEXT_ABOVE = sizeof(siginfo_t),
    AT_ADDRESS = offsetof(ucontext_t, uc_mcontext.pc),
    AT_STACK = offsetof(ucontext_t, uc_mcontext.sp),
    AT_POINTER = offsetof(ucontext_t, uc_mcontext.regs[FRAME_REGISTER]),
    AT_BASE = offsetof(ucontext_t, uc_mcontext.regs[BASE_REGISTER]),
    AT_LINK = offsetof(ucontext_t, uc_mcontext.regs[30]),
};
#endif

struct walk_registers walk_registers_of(const void *context) {
    uintptr_t from = (uintptr_t)context;
    return (struct walk_registers){.address = walk_word_at(from + AT_ADDRESS),
                                   .stack = walk_word_at(from + AT_STACK),
                                   .pointer = walk_word_at(from + AT_POINTER),
                                   .base = walk_word_at(from + AT_BASE),
                                   .link = walk_word_at(from + AT_LINK)};
}

/* This function's own frame is nothing but the frame pointer and the return address. */
__attribute__((noinline)) struct walk_registers walk_registers_here(void) {
    uintptr_t base;
    __asm__ volatile(COPY_BASE : "=r"(base));
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
    bool has_guessed; /* the last step was by a frame pointer, without a table */
    unsigned signals;
};

static bool read_word(struct walk *walk, uintptr_t address, uintptr_t *word) {
    return walk->way->read(walk->way, address, word);
}

/* To the function that the signal interrupted, which may be on any stack. */
static bool leave_handler(struct walk *walk) {
    struct walk_registers to;
    uintptr_t from = walk->at.stack + CONTEXT_ABOVE;
    if (++walk->signals > SIGNALS_MOST || !read_word(walk, from + AT_ADDRESS, &to.address) ||
        !read_word(walk, from + AT_STACK, &to.stack) ||
        !read_word(walk, from + AT_POINTER, &to.pointer) ||
        !read_word(walk, from + AT_BASE, &to.base) || !read_word(walk, from + AT_LINK, &to.link)) {
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

/* Few functions use the base register, so losing it is no error. */
static void find_base(struct walk *walk, const struct cfi_rule *rule, uintptr_t frame) {
    if (rule->base == CFI_SAVED) {
        walk->has_base =
            read_word(walk, frame + (uintptr_t)(intptr_t)rule->of_base, &walk->at.base);
    } else {
        walk->has_base &= rule->base == CFI_SAME;
    }
}

static bool leave_by_rule(struct walk *walk, const struct cfi_rule *rule, uintptr_t longest) {
    uintptr_t frame, address, pointer;
    if (!find_frame(walk, rule, &frame) || !find_saved(walk, rule, frame, &pointer)) {
        return false;
    }
    if (rule->returns == CFI_IN_REGISTER) { /* A function that has made a call has stored it. */
        if (!walk->is_exact || walk->at.link == 0 || frame - walk->at.stack >= longest) {
            return false;
        }
        address = walk->at.link;
    } else if (frame - walk->at.stack - 1 >= longest - 1 ||
               !read_word(walk, frame + (uintptr_t)(intptr_t)rule->of_return, &address)) {
        return false;
    }
    find_base(walk, rule, frame);
    walk->at =
        (struct walk_registers){stack_plain_address(address), frame, pointer, walk->at.base, 0};
    return true;
}

/* Without tables: the frame pointer leads to the caller's, beside which is the return address. */
static const struct cfi_rule guess = {.frame = CFI_POINTER,
                                      .offset = 2 * sizeof(uintptr_t),
                                      .of_return = -(int32_t)sizeof(uintptr_t),
                                      .saved = CFI_SAVED,
                                      .of_saved = -2 * (int32_t)sizeof(uintptr_t),
                                      .base = CFI_LOST};

/* To the caller; false where there is none. */
static bool leave(struct walk *walk, const struct cfi_rule *rule) {
    if (rule->frame == CFI_SIGNAL) {
        return leave_handler(walk);
    }
    walk->has_guessed = rule->frame == CFI_NO_TABLE;
    bool left = walk->has_guessed ? leave_by_rule(walk, &guess, LONGEST_GUESS)
                                  : leave_by_rule(walk, rule, LONGEST_STEP);
    walk->is_exact = false;
    return left && walk->at.address >= os_facts.page_bytes;
}

/* Where nobody knows what is code, a frame pointer is believed if it leads to code with tables. */
static bool is_code(const struct walk *walk, const struct cfi_rule *rule) {
    return rule->frame != CFI_UNKNOWN &&
           (rule->frame != CFI_NO_TABLE || !walk->has_guessed || walk->way->knows_code);
}

/* Why the walk went no further. */
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
