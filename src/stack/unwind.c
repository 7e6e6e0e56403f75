/* SPDX-License-Identifier: MIT
 *
 * unwind.c - the caller's own stack, walked again and again.
 *
 * On a thread's own stack a walk uses what is kept of the last one (levels.c), which needs known
 * rules (rules.h).  Where a rule is not known, or is of a rare kind, and on other stacks (alternate
 * signal stacks, coroutines), walk_stack walks, with tables that libgcc finds (tables.h).
 *
 * Reading memory never faults.  A thread's own stack is known to be readable from its deepest
 * sample up to the thread's data, which libc puts at its end; the pages between were tried once.
 * Anywhere else each page is tried on each walk, by asking the kernel to read it.  Addresses
 * ascend, so a walk ends.
 *
 * Other code may come to the place of code that was unloaded, and nobody says so.  So one walk in
 * 16384 of a thread, and every one that comes to no end, looks its rules up anew; if one differs
 * from what was kept, all are forgotten.
 */
#include <link.h>
#include <pthread.h>
#include <string.h>

#include "base/os.h"
#include "opt/opt.h"
#include "stack/levels.h"
#include "stack/rules.h"
#include "stack/stack.h"
#include "stack/tables.h"

/* At most PAGES_AT_ONCE pages are tried to find that an address is on the thread's own stack. */
enum { WALKS_PER_CHECK = 16384, PAGES_AT_ONCE = 64 };

static struct code_range own_code;

/* ---------------------------------------------------------------- whose code is it */

/* In libtally.a all our code is in sections of one name, whose ends the linker marks. */
extern const char __start_tally_text[] HIDDEN __attribute__((weak));
extern const char __stop_tally_text[] HIDDEN __attribute__((weak));
extern const char __ehdr_start[] HIDDEN __attribute__((weak));

/* Empty in a program that was linked from our objects one by one: a unit test. */
static struct code_range find_own_code(void) {
    if (__start_tally_text != NULL) {
        return (struct code_range){(uintptr_t)__start_tally_text, (uintptr_t)__stop_tally_text};
    }
    if (__ehdr_start == NULL) {
        return (struct code_range){0};
    }
    const ElfW(Ehdr) *file = (const void *)__ehdr_start;
    bool is_program = (uintptr_t)file + file->e_phoff == os_program_headers();
    return is_program ? (struct code_range){0} : range_of_file(file);
}

void unwind_init(void) {
    own_code = find_own_code();
}

void unwind_prepare(void) {
    if (opt.prof_unwind != PROF_UNWIND_FRAME_POINTERS) {
        tables_prepare();
    }
}

void unwind_begin(struct unwind_thread *thread) {
    thread->low = thread->high = 0;
    thread->walks = thread->count = 0;
}

/* ---------------------------------------------------------------- what is readable */

/* How far frames may be followed in one walk. */
struct reach {
    uintptr_t low, span; /* words at low .. low + span are readable for sure */
    bool is_home;        /* and nothing else is looked at */
    uintptr_t page;      /* elsewhere: the last one that was tried and found readable */
};

static bool pages_are_readable(uintptr_t from, uintptr_t to) {
    for (; from < to; from += os_facts.page_bytes) {
        if (!os_is_readable(from)) {
            return false;
        }
    }
    return true;
}

/* The end of the stack the caller was started on.  libc keeps a thread's data at the end of its
 * stack; the first thread's are elsewhere, beside whatever the program has mapped there, but libc
 * says where its stack ends. */
static uintptr_t find_stack_end(void) {
    return os_is_first_thread() ? os_first_stack_end() : (uintptr_t)pthread_self();
}

/* Is this frame on the stack that the thread was started on?  An inaccessible page or a hole
 * separates stacks from what is mapped below them. */
static __attribute__((noinline)) bool extends_home(struct unwind_thread *thread, uintptr_t frame) {
    if (thread->high == 0) {
        thread->high = find_stack_end();
        thread->low = align_down(thread->high, os_facts.page_bytes);
    }
    uintptr_t page = align_down(frame, os_facts.page_bytes);
    bool is_near = page <= thread->low && frame < thread->high &&
                   thread->low - page < PAGES_AT_ONCE * os_facts.page_bytes;
    if (!is_near || !pages_are_readable(page, thread->low)) {
        return false;
    }
    thread->low = page;
    return true;
}

static inline bool is_at_home(struct unwind_thread *thread, uintptr_t frame) {
    return LIKELY(thread->low <= frame && frame < thread->high) || extends_home(thread, frame);
}

static inline struct reach find_reach(struct unwind_thread *thread, uintptr_t frame) {
    if (LIKELY(is_at_home(thread, frame))) {
        uintptr_t last = align_down(thread->high, sizeof(uintptr_t)) - sizeof(uintptr_t);
        return (struct reach){thread->low, last - thread->low, true, 0};
    }
    return (struct reach){.low = UINTPTR_MAX};
}

static COLD bool try_page(struct reach *reach, uintptr_t address) {
    if (reach->is_home) {
        return false;
    }
    uintptr_t page = align_down(address, os_facts.page_bytes);
    if (page != reach->page) {
        if (!os_is_readable(page)) {
            return false;
        }
        reach->page = page;
    }
    return true;
}

/* Can a word be read there? */
static inline bool can_read(struct reach *reach, uintptr_t address) {
    return address % sizeof(uintptr_t) == 0 &&
           (LIKELY(address - reach->low <= reach->span) || try_page(reach, address));
}

/* ---------------------------------------------------------------- step by step */

struct tried_way {
    struct walk_way way;
    struct reach reach;
    bool may_ask; /* for rules that are not kept */
};

static bool read_tried(struct walk_way *way, uintptr_t address, uintptr_t *word) {
    if (!can_read(&((struct tried_way *)way)->reach, address)) {
        return false;
    }
    *word = walk_word_at(address);
    return true;
}

/* A coroutine may begin with anything in the place of a return address. */
static bool may_be_code(const struct tried_way *way, uintptr_t address) {
    return way->reach.is_home || (os_is_readable(address) && os_is_readable(address + 1));
}

static struct cfi_rule look_up(const struct tried_way *way, uintptr_t address, union rule kept) {
    if (!way->may_ask || !may_be_code(way, address)) {
        return (struct cfi_rule){.frame = CFI_UNKNOWN};
    }
    uint64_t generation = rules_generation();
    struct cfi_rule rule = tables_find(address);
    union rule now = rules_pack(&rule);
    bool fits = now.word != 0;
    now.asked = 1;
    if (kept.asked && kept.word != now.word) {
        rules_forget();
        generation = rules_generation();
    }
    if (fits && kept.word != now.word) {
        rules_keep(generation, address, now);
    }
    return rule;
}

/* Where a kept rule says that there is no table, libgcc may know better. */
static struct cfi_rule find_rule(struct walk_way *way, uintptr_t address) {
    union rule kept = rules_find(address);
    bool is_known = kept.word != 0 && (kept.frame != CFI_NO_TABLE || kept.asked);
    return is_known && !way->is_fresh ? rules_unpack(kept)
                                      : look_up((struct tried_way *)way, address, kept);
}

static struct cfi_rule follow_pointers(struct walk_way *way, uintptr_t address) {
    (void)way;
    (void)address;
    return (struct cfi_rule){.frame = CFI_NO_TABLE};
}

/* By frame pointers alone, right or wrong. */
static unsigned walk_by_pointers(struct unwind_thread *thread, uintptr_t frame,
                                 uintptr_t *addresses, unsigned most) {
    struct tried_way way = {.way = {read_tried, follow_pointers, .knows_code = true},
                            .reach = find_reach(thread, frame)};
    struct walk_registers start = {
        .address = stack_plain_address(walk_word_at(frame + sizeof(uintptr_t))) - 1,
        .stack = frame + 2 * sizeof(uintptr_t),
        .pointer = walk_word_at(frame)};
    return walk_stack(start, &way.way, frame, addresses, most).count;
}

/* The return address of the program's call to us: most of our functions have frame pointers. */
static uintptr_t find_caller(struct tried_way *way, uintptr_t frame) {
    uintptr_t address, next;
    for (unsigned i = 0; i < UNWIND_OWN; i++) {
        address = stack_plain_address(walk_word_at(frame + sizeof(uintptr_t)));
        next = walk_word_at(frame);
        if (!is_within(own_code, address) || next <= frame || !can_read(&way->reach, next) ||
            !can_read(&way->reach, next + sizeof(uintptr_t))) {
            break;
        }
        frame = next;
    }
    return address;
}

static COLD struct walk_result walk_by_tables(struct unwind_thread *thread, uintptr_t frame,
                                              uintptr_t *addresses, unsigned most, bool is_fresh) {
    struct walk_registers here = walk_registers_here();
    struct tried_way way = {.way = {read_tried, find_rule, .is_fresh = is_fresh},
                            .reach = find_reach(thread, here.stack)};
    way.may_ask = tables_may_ask(find_caller(&way, frame));
    return walk_stack(here, &way.way, frame, addresses, most);
}

/* ---------------------------------------------------------------- both */

/* Removes our own addresses, which come first; the last one stays if there is nothing else. */
static struct unwind_stack strip(uintptr_t *addresses, unsigned count, unsigned most) {
    unsigned own = 0;
    while (own + 1 < count && is_within(own_code, addresses[own])) {
        own++;
    }
    count = (unsigned)min_size(count - own, most);
    memmove(addresses, &addresses[own], count * sizeof(addresses[0]));
    return (struct unwind_stack){.count = count};
}

/* Our own levels at the inner end, except for the outermost of all levels. */
static unsigned count_own_levels(const struct unwind_thread *thread) {
    unsigned own = 0;
    while (own + 1 < thread->count &&
           is_within(own_code, unwind_address(&thread->levels[thread->count - 1 - own]))) {
        own++;
    }
    return own;
}

static bool is_whole(struct walk_result result) {
    return result.end == WALK_ENDED || result.end == WALK_FULL;
}

/* Ignores what is kept of the last walk, and looks rules up anew where the kept ones do not
 * suffice.  If only one caller is found, its frame pointers are followed. */
static COLD struct unwind_stack walk_anew(struct unwind_thread *thread, uintptr_t frame,
                                          uintptr_t *addresses, unsigned most, bool is_fresh) {
    unsigned room = most + UNWIND_OWN;
    struct walk_result result = {.end = WALK_BROKEN};
    thread->count = 0;
    if (opt.prof_unwind == PROF_UNWIND_AUTO && !is_fresh) {
        result = walk_by_tables(thread, frame, addresses, room, false);
    }
    if (opt.prof_unwind != PROF_UNWIND_FRAME_POINTERS && !is_whole(result)) {
        result = walk_by_tables(thread, frame, addresses, room, true);
    }
    if (result.count <= 1 && !is_whole(result)) {
        result.count = walk_by_pointers(thread, frame, addresses, room);
    }
    return strip(addresses, result.count, most);
}

/* A walk that is to be a check does not use what is kept. */
static inline bool can_renew(struct unwind_thread *thread, const struct reach *reach) {
    if (UNLIKELY(!reach->is_home || opt.prof_unwind != PROF_UNWIND_AUTO ||
                 ++thread->walks % WALKS_PER_CHECK == 0)) {
        return false;
    }
    uint64_t generation = rules_generation();
    if (UNLIKELY(thread->generation != generation)) {
        thread->generation = generation;
        thread->count = 0;
    }
    return true;
}

/* Where the stack is after the return from the function with this frame.  Where calls do not push
 * anything, only the tables of our own functions say it. */
static inline uintptr_t find_stack_after(struct unwind_thread *thread, uintptr_t frame) {
#if defined(__x86_64__)
    (void)thread;
    return frame + 2 * sizeof(uintptr_t);
#else
    uintptr_t address;
    return walk_by_tables(thread, frame, &address, 1, false).stack;
#endif
}

/* The inner `count` levels that are not ours, innermost first. */
static unsigned copy_levels(const struct unwind_level *levels, unsigned count, unsigned most,
                            uintptr_t *addresses) {
    most = (unsigned)min_size(count, most);
    for (unsigned i = 0; i < most; i++) {
        addresses[i] = unwind_address(&levels[count - 1 - i]);
    }
    return most;
}

struct unwind_stack unwind_again(struct unwind_thread *thread, void *top,
                                 uintptr_t addresses[UNWIND_ROOM], unsigned most) {
    uintptr_t frame = (uintptr_t)top;
    most = (unsigned)min_size(most, UNWIND_MOST);
    struct reach reach = find_reach(thread, frame);
    if (UNLIKELY(!can_renew(thread, &reach))) {
        return walk_anew(thread, frame, addresses, most, reach.is_home);
    }
    struct walk_result result =
        levels_renew(thread, frame, find_stack_after(thread, frame), addresses, most + UNWIND_OWN);
    if (UNLIKELY(result.end != WALK_ENDED)) {
        return result.end == WALK_FULL ? strip(addresses, result.count, most)
                                       : walk_anew(thread, frame, addresses, most, false);
    }
    unsigned count = thread->count - count_own_levels(thread);
    if (UNLIKELY(count > most)) {
        return (struct unwind_stack){.count = copy_levels(thread->levels, count, most, addresses)};
    }
    return (struct unwind_stack){count, thread->same, thread->levels};
}
