/* SPDX-License-Identifier: MIT
 *
 * walk.c - from function to function, each by the rule of its tables, or by frame pointer where it has none.
 *
 * Tables that compilers make for exceptions are right at every instruction, so a walk is right where code was
 * compiled without frame pointers, and where a function was interrupted before it has set up its own.
 * Looking a rule up takes some microseconds; it is kept afterwards.
 *
 *      kept    place of an address: { rule, rule ^ key }       both words are written one after the other
 *                                                               by anyone; what does not fit together is
 *                                                               not believed.  The key is the address and the
 *                                                               generation of rules
 *
 * Nothing is believed that was read: frames must ascend, by less than a mebibyte each; words are read in copies
 * of pages, which the kernel makes if it can, since what looks like a stack may be unmapped by another thread
 * in this moment; and a return address that is not in code ends the walk.
 */
#define _GNU_SOURCE /* REG_RIP */
#include "cpu/walk.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#include "base/os.h"

enum { KEPT_LG = 14, LONGEST_STEP = 1 << 20, SIGNALS_MOST = 4 };

/* A rule as one word: offsets count words. */
enum {
    WORD_VALID = 1,
    WORD_FRAME_SHIFT = 1,
    WORD_RETURN_SHIFT = 5,
    WORD_SAVED_SHIFT = 6,
    WORD_OFFSETS_SHIFT = 16,
    OFFSET_BITS = 16,
};

/* Beside those of the tables: no table, so the frame pointer is what there is; not code. */
enum { FRAME_BY_POINTER = CFI_END + 1, FRAME_UNKNOWN };

static struct { _Atomic uint64_t rule, mixed; } kept[1 << KEPT_LG];
static _Atomic uint64_t generation;

/* ---------------------------------------------------------------- rules */

static bool fits(int32_t offset) {
    int32_t words = offset / (int32_t)sizeof(uintptr_t);
    return offset % (int32_t)sizeof(uintptr_t) == 0 && words == (int16_t)words;
}

static uint64_t pack_offset(int32_t offset, unsigned which) {
    uint16_t words = (uint16_t)(offset / (int32_t)sizeof(uintptr_t));
    return (uint64_t)words << (WORD_OFFSETS_SHIFT + OFFSET_BITS * which);
}

static intptr_t offset_of(uint64_t word, unsigned which) {
    return (int16_t)(word >> (WORD_OFFSETS_SHIFT + OFFSET_BITS * which)) *
           (intptr_t)sizeof(uintptr_t);
}

static uint64_t pack(const struct cfi_rule *rule) {
    if (!fits(rule->offset) || !fits(rule->of_return) || !fits(rule->of_saved)) {
        return WORD_VALID | FRAME_BY_POINTER << WORD_FRAME_SHIFT;
    }
    return WORD_VALID | (uint64_t)rule->frame << WORD_FRAME_SHIFT |
           (uint64_t)rule->returns << WORD_RETURN_SHIFT |
           (uint64_t)rule->saved << WORD_SAVED_SHIFT | pack_offset(rule->offset, 0) |
           pack_offset(rule->of_return, 1) | pack_offset(rule->of_saved, 2);
}

static unsigned frame_of(uint64_t word) {
    return word >> WORD_FRAME_SHIFT & 15;
}

static uint64_t look_up(uintptr_t address, struct code_room *room) {
    struct cfi_rule rule;
    switch (code_find(address, room, &rule)) {
    case CODE_RULE:
        return pack(&rule);
    case CODE_NO_TABLE:
        return WORD_VALID | FRAME_BY_POINTER << WORD_FRAME_SHIFT;
    default: /* It may be known the next time, so it is not kept. */
        return WORD_VALID | FRAME_UNKNOWN << WORD_FRAME_SHIFT;
    }
}

/* The rule at an address that is in the function: for callers, in the call. */
static uint64_t find_rule(uintptr_t address, struct code_room *room) {
    enum { ABOVE_ADDRESSES = 48 };
    /* Acquire: code is looked for after this. */
    uint64_t key = address ^ atomic_load_explicit(&generation, memory_order_acquire)
                                 << ABOVE_ADDRESSES;
    size_t place = address * UINT64_C(0x9e3779b97f4a7c15) >> (64 - KEPT_LG);
    uint64_t rule = atomic_load_explicit(&kept[place].rule, memory_order_relaxed);
    uint64_t mixed = atomic_load_explicit(&kept[place].mixed, memory_order_relaxed);
    if (LIKELY(rule != 0 && (rule ^ mixed) == key)) {
        return rule;
    }
    rule = look_up(address, room);
    if (frame_of(rule) != FRAME_UNKNOWN) {
        atomic_store_explicit(&kept[place].rule, rule, memory_order_relaxed);
        atomic_store_explicit(&kept[place].mixed, rule ^ key, memory_order_relaxed);
    }
    return rule;
}

void walk_forget(void) {
    /* Release: who sees it sees the code that is now. */
    atomic_fetch_add_explicit(&generation, 1, memory_order_release);
}

/* ---------------------------------------------------------------- memory */

/* What is in the window. */
struct reach {
    uintptr_t start; /* 0: nothing */
    struct code_room *room;
};

static bool read_word(struct reach *reach, uintptr_t address, uintptr_t *word) {
    uintptr_t start = align_down(address, CODE_WINDOW);
    if (address % sizeof(uintptr_t) != 0 || start == 0) {
        return false;
    }
    if (start != reach->start) {
        reach->start = 0;
        if (!code_copy(reach->room, reach->room->window, start, CODE_WINDOW)) {
            return false;
        }
        reach->start = start;
    }
    memcpy(word, reach->room->window + (address - start), sizeof(*word));
    return true;
}

/* ---------------------------------------------------------------- registers */

#if defined(__x86_64__)
/* The kernel leaves the context on the stack where the handler returns to. */
enum {
    AT_ADDRESS = offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]),
    AT_STACK = offsetof(ucontext_t, uc_mcontext.gregs[REG_RSP]),
    AT_POINTER = offsetof(ucontext_t, uc_mcontext.gregs[REG_RBP]),
    AT_LINK = AT_ADDRESS, /* there is none */
};

struct walk_registers walk_registers_of(const void *context) {
    const greg_t *all = ((const ucontext_t *)context)->uc_mcontext.gregs;
    return (struct walk_registers){.address = (uintptr_t)all[REG_RIP],
                                   .stack = (uintptr_t)all[REG_RSP],
                                   .pointer = (uintptr_t)all[REG_RBP]};
}
#else
/* Before the context is what the handler was told. */
enum {
    AT_ADDRESS = sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.pc),
    AT_STACK = sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.sp),
    AT_POINTER = sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.regs[29]),
    AT_LINK = sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.regs[30]),
};

struct walk_registers walk_registers_of(const void *context) {
    const mcontext_t *all = &((const ucontext_t *)context)->uc_mcontext;
    return (struct walk_registers){.address = (uintptr_t)all->pc,
                                   .stack = (uintptr_t)all->sp,
                                   .pointer = (uintptr_t)all->regs[29],
                                   .link = (uintptr_t)all->regs[30]};
}
#endif

/* ---------------------------------------------------------------- steps */

struct walk {
    struct walk_registers at;
    struct reach reach;
    bool is_exact; /* the address is that of an instruction to come, not of a return */
    unsigned signals;
};

/* On aarch64 the upper bits of a return address may hold a signature. */
static uintptr_t plain(uintptr_t address) {
    return address & ((UINT64_C(1) << 48) - 1);
}

/* What the function that a handler interrupted was about to do.  Its stack may be any. */
static bool leave_handler(struct walk *walk) {
    struct walk_registers to;
    uintptr_t stack = walk->at.stack;
    if (++walk->signals > SIGNALS_MOST ||
        !read_word(&walk->reach, stack + AT_ADDRESS, &to.address) ||
        !read_word(&walk->reach, stack + AT_STACK, &to.stack) ||
        !read_word(&walk->reach, stack + AT_POINTER, &to.pointer) ||
        !read_word(&walk->reach, stack + AT_LINK, &to.link)) {
        return false;
    }
    walk->at = to;
    walk->is_exact = true;
    return true;
}

static bool find_frame(struct walk *walk, uint64_t rule, uintptr_t *frame) {
    switch (frame_of(rule)) {
    case CFI_STACK:
        *frame = walk->at.stack + (uintptr_t)offset_of(rule, 0);
        return true;
    case CFI_POINTER:
        *frame = walk->at.pointer + (uintptr_t)offset_of(rule, 0);
        return true;
    case CFI_AT_POINTER:
        return read_word(&walk->reach, walk->at.pointer + (uintptr_t)offset_of(rule, 0), frame);
    default:
        return false;
    }
}

static bool find_saved(struct walk *walk, uint64_t rule, uintptr_t frame, uintptr_t *pointer) {
    uintptr_t offset = (uintptr_t)offset_of(rule, 2);
    switch (rule >> WORD_SAVED_SHIFT & 3) {
    case CFI_SAVED:
        return read_word(&walk->reach, frame + offset, pointer);
    case CFI_SAVED_AT_ITSELF:
        return read_word(&walk->reach, walk->at.pointer + offset, pointer);
    default:
        *pointer = walk->at.pointer;
        return true;
    }
}

static bool leave_by_rule(struct walk *walk, uint64_t rule) {
    uintptr_t frame, address, pointer;
    bool in_register = (rule >> WORD_RETURN_SHIFT & 1) == CFI_IN_REGISTER;
    if (!find_frame(walk, rule, &frame) || !find_saved(walk, rule, frame, &pointer)) {
        return false;
    }
    if (in_register) { /* A function that has called something has put it on the stack. */
        if (!walk->is_exact || walk->at.link == 0 || frame - walk->at.stack >= LONGEST_STEP) {
            return false;
        }
        address = walk->at.link;
    } else if (frame - walk->at.stack - 1 >= LONGEST_STEP - 1 ||
               !read_word(&walk->reach, frame + (uintptr_t)offset_of(rule, 1), &address)) {
        return false;
    }
    walk->at = (struct walk_registers){plain(address), frame, pointer, 0};
    return true;
}

/* The frame pointer leads to the caller's, which has the return address beside it. */
static bool leave_by_pointer(struct walk *walk) {
    uintptr_t pointer = walk->at.pointer;
    uintptr_t address, saved;
    if (pointer - walk->at.stack >= LONGEST_STEP || !read_word(&walk->reach, pointer, &saved) ||
        !read_word(&walk->reach, pointer + sizeof(uintptr_t), &address)) {
        return false;
    }
    walk->at = (struct walk_registers){plain(address), pointer + 2 * sizeof(uintptr_t), saved, 0};
    return true;
}

/* To the caller; false where there is none. */
static bool leave(struct walk *walk, uint64_t rule) {
    unsigned frame = frame_of(rule);
    if (frame == CFI_SIGNAL) {
        return leave_handler(walk);
    }
    bool left = frame == FRAME_BY_POINTER ? leave_by_pointer(walk)
                                          : frame != CFI_END && leave_by_rule(walk, rule);
    walk->is_exact = false;
    return left && walk->at.address >= os_facts.page_bytes;
}

unsigned cpu_walk(struct walk_registers registers, uintptr_t *addresses, unsigned most,
                  struct code_room *room, bool *met_unknown) {
    struct walk walk = {.at = registers, .reach = {0, room}, .is_exact = true};
    unsigned count = 0;
    do {
        uint64_t rule = find_rule(walk.at.address - !walk.is_exact, room);
        bool is_unknown = frame_of(rule) == FRAME_UNKNOWN;
        *met_unknown |= is_unknown;
        if (is_unknown && count > 0) {
            break;
        }
        addresses[count++] = walk.at.address + walk.is_exact;
        if (is_unknown || !leave(&walk, rule)) {
            break;
        }
    } while (count < most);
    return count;
}
