/* SPDX-License-Identifier: MIT
 *
 * unwind.c - walking the stack.
 *
 * Frame pointers cost a nanosecond per frame and are silently wrong where code was compiled without
 * them.  libgcc reads unwind tables, is right, and costs a hundred times more.  So libgcc teaches: for each
 * return address (a site) it meets, we keep how to get from there to the next one,
 *
 *      FRAME   the function around the site has a frame pointer: the next return address is beside it
 *      delta   the next return address lies so many bytes further up the stack
 *      VARIES  not always the same distance; together with FRAME this does not matter
 *      END     there is nothing beyond: the start of the program or of a thread, or code without tables
 *
 * and walk by that ourselves.  FRAME and END are properties of the machine code, and so is the distance,
 * but for functions that take a varying part of the stack (alloca, aligned locals); those usually
 * have a frame pointer, and otherwise the words found do not look like sites.  A walk counts if every
 * address is a known site and it comes to an END; otherwise libgcc walks, and teaches, until our own walk
 * comes to its end from there.  Of the walks that relied on distances, or began as libgcc's, libgcc walks one
 * in 256 to its end; one in 4096 where all it relied on was confirmed before.
 *
 * The levels of a thread's last walk are kept.  The next one walks until it meets them, and then only looks
 * whether the words it would read are what they were: renew() says why that is the same.
 *
 * Reading memory never faults.  A thread's own stack is known to be readable from its deepest sample
 * up to the thread's data, which libc puts at its end; the pages between were tried once.  Anywhere else
 * (alternate signal stacks, coroutines) each page is tried on each walk, by asking the kernel to read
 * it.  Addresses ascend, so a walk ends.  libgcc does not look before it reads: where a stack is not the
 * thread's own, each of its steps is tried before it makes it (cfi.h), and it is stopped there.
 *
 * libgcc.  It is opened, and used once, in unwind_prepare.  It looks for tables without a lock where
 * the loader helps (glibc 2.35), or under the loader's recursive lock.  Where tables were registered by
 * hand (code generators; static programs), versions before 13 keep them under a lock of their own and may
 * allocate meanwhile: therefore a call that comes from libgcc itself is never unwound with it, and the
 * child of a static program, where another thread may have held that lock, does not ask it any more.
 *
 * Threads     What is known about sites is shared: one word each, a cache that may forget.
 */
#define _GNU_SOURCE /* dladdr */
#include "prof/unwind.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "prof/cfi.h"
#include "prof/libgcc.h"

enum {
    SITES_LG = 14,
    /* A walk is checked when so many points have come together.  A new guess counts more than one that
     * was made, and confirmed, before. */
    POINTS_BEFORE_CHECK = 4096,
    POINTS_OF_GUESS = 16, /* so one in 256 */
    POINTS_OF_CONFIRMED = 1,
    /* Pages tried at most to find that an address lies on the thread's own stack. */
    PAGES_AT_ONCE = 64,
    LONGEST_STEP = 1 << 20, /* from frame to frame */
};

struct chain;
struct reach;

struct range {
    uintptr_t low, high;
};

enum state { STATE_NEW, STATE_PREPARING, STATE_READY, STATE_MUTE /* not to be asked again */ };

static struct {
    _Atomic int state;
    struct range own;    /* this library's code */
    struct range libgcc; /* the code of libgcc, if it is a library of its own */
    struct libgcc functions;
    _Atomic uint32_t epoch; /* counts changes of what is known about sites */
    _Atomic uint64_t sites[1 << SITES_LG];
} g;

static bool is_within(struct range range, uintptr_t address) {
    return address - range.low < range.high - range.low;
}

/* ---------------------------------------------------------------- whose code is it */

/* All that a mapped file occupies, from its headers. */
static struct range range_of_file(const void *start) {
    const ElfW(Ehdr) *file = start;
    if (memcmp(file->e_ident, ELFMAG, SELFMAG) != 0) {
        return (struct range){0};
    }
    const ElfW(Phdr) *headers = (const void *)((uintptr_t)start + file->e_phoff);
    uintptr_t low = UINTPTR_MAX;
    uintptr_t high = 0;
    for (unsigned i = 0; i < file->e_phnum; i++) {
        if (headers[i].p_type == PT_LOAD) {
            low = min_size(low, headers[i].p_vaddr);
            high = max_size(high, headers[i].p_vaddr + headers[i].p_memsz);
        }
    }
    uintptr_t bias = (uintptr_t)start - align_down(low, os_facts.page_bytes);
    return (struct range){bias + low, bias + high};
}

/* In libtally.a all our code is in sections of one name, whose ends the linker marks. */
extern const char __start_tally_text[] HIDDEN __attribute__((weak));
extern const char __stop_tally_text[] HIDDEN __attribute__((weak));
extern const char __ehdr_start[] HIDDEN __attribute__((weak));

/* Nothing in a program that was linked from our objects one by one: a unit test. */
static struct range find_own_range(void) {
    if (__start_tally_text != NULL) {
        return (struct range){(uintptr_t)__start_tally_text, (uintptr_t)__stop_tally_text};
    }
    if (__ehdr_start == NULL) {
        return (struct range){0};
    }
    const ElfW(Ehdr) *file = (const void *)__ehdr_start;
    bool is_program = (uintptr_t)file + file->e_phoff == os_program_headers();
    return is_program ? (struct range){0} : range_of_file(file);
}

/* ---------------------------------------------------------------- libgcc */

static _Unwind_Reason_Code visit_nothing(struct _Unwind_Context *context, void *unused) {
    (void)context;
    (void)unused;
    return _URC_NO_REASON;
}

#pragma weak dladdr

static void find_range_of_libgcc(void) {
    Dl_info info;
    if (&dladdr != NULL && dladdr((void *)g.functions.backtrace, &info) != 0) {
        struct range range = range_of_file(info.dli_fbase);
        bool is_program = is_within(range, os_program_headers());
        g.libgcc = is_program ? (struct range){0} : range;
    }
}

static void ask_libgcc(struct chain *chain, struct reach *reach, bool may_stop);

/* It ends the process when it finds no table for whoever calls it: in a static program, before a
 * constructor of libgcc's has run. */
static bool has_tables_for_us(void) {
    struct libgcc_bases bases;
    return g.functions.table((void *)unwind_prepare, &bases) != NULL &&
           g.functions.table((void *)ask_libgcc, &bases) != NULL;
}

void unwind_prepare(void) {
    int expected = STATE_NEW;
    if (opt.prof_unwind == PROF_UNWIND_FRAME_POINTERS ||
        !atomic_compare_exchange_strong(&g.state, &expected, STATE_PREPARING)) {
        return;
    }
    if (!libgcc_find(&g.functions) || !has_tables_for_us()) {
        g.state = STATE_NEW; /* Perhaps next time. */
        return;
    }
    find_range_of_libgcc();
    g.functions.backtrace(visit_nothing, NULL);
    /* Release shows the rest to whoever acquires the state. */
    atomic_store_explicit(&g.state, STATE_READY, memory_order_release);
}

void unwind_init(void) {
    g.own = find_own_range();
}

void unwind_forked(void) {
    if (g.state == STATE_READY && g.libgcc.high == 0) {
        g.state = STATE_MUTE;
    }
}

static bool has_libgcc(void) {
    return atomic_load_explicit(&g.state, memory_order_acquire) == STATE_READY;
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

/* The end of the stack the caller was started on.  libc keeps a thread's data, where our own thread-local
 * variables are, at the end of its stack; the first thread's are elsewhere, beside whatever the program
 * has mapped there, but its stack ends at a place libc tells. */
static uintptr_t find_stack_end(void) {
    return os_is_first_thread() ? os_first_stack_end() : (uintptr_t)thread_inside_mark();
}

/*
 * Is this frame on the stack that the thread was started on?  An inaccessible page or a hole separates
 * stacks from what is mapped below them.
 */
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

/* And the one below it? */
static inline bool can_read_two(struct reach *reach, uintptr_t address) {
    return can_read(reach, address - sizeof(uintptr_t)) && can_read(reach, address);
}

__attribute__((no_sanitize("address", "thread"))) static uintptr_t word_at(uintptr_t address) {
    return *(const uintptr_t *)address;
}

enum { SITE_ADDRESS_BITS = UNWIND_ADDRESS_BITS };
static uintptr_t plain_address(uintptr_t address) {
    return unwind_plain_address(address);
}

/* ---------------------------------------------------------------- sites */

/* A site as one word: address, distance in words, and what else is known. */
enum { SITE_FRAME = 1, SITE_VARIES = 2, SITE_END = 4, SITE_FLAG_BITS = 3, SITE_DELTA_BITS = 13 };
_Static_assert((int)SITE_ADDRESS_BITS + (int)SITE_DELTA_BITS + (int)SITE_FLAG_BITS == 64,
               "one word");

static uint64_t make_site(uintptr_t address, uintptr_t delta, unsigned flags) {
    if (delta >= sizeof(uintptr_t) << SITE_DELTA_BITS) {
        delta = 0;
        flags |= SITE_VARIES;
    }
    return (uint64_t)address << (64 - SITE_ADDRESS_BITS) |
           (uint64_t)(delta / sizeof(uintptr_t)) << SITE_FLAG_BITS | flags;
}

static uintptr_t site_delta(uint64_t site) {
    return (site >> SITE_FLAG_BITS & ((1u << SITE_DELTA_BITS) - 1)) * sizeof(uintptr_t);
}

static bool is_site(uint64_t site, uintptr_t address) {
    return site >> (64 - SITE_ADDRESS_BITS) == address && site != 0;
}

/* Each address has two places. */
static _Atomic uint64_t *site_place(uintptr_t address, unsigned which) {
    return &g.sites[(address * UINT64_C(0x9e3779b97f4a7c15) >> (64 - SITES_LG)) ^ which];
}

/* What is known about an address; 0: nothing. */
static inline uint64_t find_site(uintptr_t address) {
    for (unsigned i = 0; i < 2; i++) {
        uint64_t site = atomic_load_explicit(site_place(address, i), memory_order_relaxed);
        if (is_site(site, address)) {
            return site;
        }
    }
    return 0;
}

static void keep_site(uintptr_t address, uint64_t site) {
    _Atomic uint64_t *first = site_place(address, 0);
    _Atomic uint64_t *second = site_place(address, 1);
    uint64_t there = atomic_load_explicit(first, memory_order_relaxed);
    if (!is_site(there, address)) {
        uint64_t other = atomic_load_explicit(second, memory_order_relaxed);
        if (is_site(other, address)) {
            first = second;
        } else if (there != 0 && other == 0) {
            first = second;
        } else if (there != 0) { /* the older one goes */
            atomic_store_explicit(second, there, memory_order_relaxed);
        }
    }
    atomic_store_explicit(first, site, memory_order_relaxed);
    atomic_fetch_add_explicit(&g.epoch, 1, memory_order_relaxed);
}

/* libgcc went from here to the next address over this distance; what it did before must agree. */
static void learn_site(uintptr_t address, uintptr_t delta, unsigned flags) {
    uint64_t site = make_site(address, delta, flags);
    uint64_t known = find_site(address);
    if (known != 0 && known != site) {
        unsigned both = (unsigned)(known & site) & SITE_FRAME;
        unsigned either = (unsigned)(known | site) & SITE_VARIES;
        unsigned end = (unsigned)(known & site) & SITE_END;
        either |= site_delta(known) != site_delta(site) ? SITE_VARIES : 0;
        site = make_site(address, either ? 0 : delta, both | either | end);
    }
    if (site != known) {
        keep_site(address, site);
    }
}

/* ---------------------------------------------------------------- by ourselves */

/* Raw frames: our own are still among them. */
struct chain {
    uintptr_t *addresses;
    unsigned count, most;
    bool is_sure;     /* every address is a site, and it ends where it should */
    bool has_guessed; /* distances were used */
};

/* Where a walk is: the word with the return address, and the frame pointer of the function that it
 * leads to; 0: unknown. */
struct walk_place {
    uintptr_t slot;
    uintptr_t frame;
};

static inline bool may_step(uintptr_t from, uintptr_t to) {
    return to - from - 1 < LONGEST_STEP - 1; /* 0 and negative ones are large */
}

/* By the frame pointer; false where it leads nowhere. */
static inline bool step_by_frame(struct walk_place *place, struct reach *reach) {
    uintptr_t slot = place->frame + sizeof(uintptr_t);
    if (!may_step(place->slot, slot) || !can_read_two(reach, slot)) {
        return false;
    }
    *place = (struct walk_place){slot, word_at(place->frame)};
    return true;
}

/* By the distance.  If the function has a frame pointer, it has saved its caller's there. */
static inline bool step_by_delta(struct walk_place *place, struct reach *reach, uint64_t site) {
    uintptr_t slot = place->slot + site_delta(site);
    if (!may_step(place->slot, slot) || !can_read_two(reach, slot)) {
        return false;
    }
    place->slot = slot;
    place->frame = site & SITE_FRAME ? word_at(slot - sizeof(uintptr_t)) : 0;
    return true;
}

/* From a site on whose function the frame pointer is known, to the next. */
static bool step(struct chain *chain, struct walk_place *place, struct reach *reach,
                 uint64_t site) {
    if (site & SITE_FRAME && place->frame != 0) {
        return step_by_frame(place, reach);
    }
    chain->has_guessed = true;
    return !(site & SITE_VARIES) && step_by_delta(place, reach, site);
}

/* Beyond code without tables there may be frame pointers.  They are believed if they lead to a site. */
static bool step_over_end(struct walk_place *place, struct reach *reach) {
    return place->frame != 0 && step_by_frame(place, reach) &&
           find_site(plain_address(word_at(place->slot))) != 0;
}

/* From a place whose address is in the chain already. */
static void walk_on(struct chain *chain, struct walk_place place, struct reach *reach) {
    for (;;) {
        uintptr_t address = chain->addresses[chain->count - 1];
        uint64_t site = find_site(address);
        if (site == 0) {
            return;
        }
        bool at_end = (site & SITE_END) != 0;
        if (chain->count == chain->most ||
            (at_end ? !step_over_end(&place, reach) : !step(chain, &place, reach, site))) {
            chain->is_sure = at_end || chain->count == chain->most;
            return;
        }
        chain->addresses[chain->count++] = plain_address(word_at(place.slot));
    }
}

/* By frame pointers alone, right or wrong. */
static void walk_frames(struct chain *chain, struct walk_place place, struct reach *reach) {
    while (chain->count < chain->most && place.frame != 0 && step_by_frame(&place, reach)) {
        uintptr_t address = plain_address(word_at(place.slot));
        if (address < os_facts.page_bytes) {
            return;
        }
        chain->addresses[chain->count++] = address;
    }
}

/* Frames of ours at the beginning, but for the last frame of all. */
static unsigned count_own(const struct chain *chain) {
    unsigned own = 0;
    while (own + 1 < chain->count && is_within(g.own, chain->addresses[own])) {
        own++;
    }
    return own;
}

/* ---------------------------------------------------------------- with what was kept */

enum guess { GUESS_NONE, GUESS_CONFIRMED, GUESS_NEW };

void unwind_begin(struct unwind_thread *thread) {
    thread->low = thread->high = 0;
    thread->walks = thread->count = 0;
}

/* Two words at once. */
typedef uintptr_t pair __attribute__((vector_size(2 * sizeof(uintptr_t)), aligned(8), may_alias));

__attribute__((no_sanitize("address", "thread"))) static inline pair pair_at(uintptr_t address) {
    return *(const pair *)address;
}

/* How the words of a level differ from what they were. */
static inline pair change_of(const struct unwind_level *level) {
    const pair *was = (const pair *)&level->frame;
    const pair *counts = (const pair *)&level->mask;
    return (pair_at(level->slot - sizeof(uintptr_t)) ^ *was) & *counts;
}

/* Of the outer `count` levels, how many were changed or lie outside of one that was.  Some are compared at
 * once, whether there are as many or not: a mask of 0 makes any word do. */
static inline unsigned count_stale(struct unwind_thread *thread, unsigned count, uintptr_t slot) {
    for (unsigned i = 0; i < UNWIND_AT_ONCE; i++) {
        thread->before[i].slot = slot;
    }
    const struct unwind_level *level = thread->levels + count;
    pair change = {0, 0};
    for (; level > thread->levels; level -= UNWIND_AT_ONCE) {
        change |= change_of(level - 1) | change_of(level - 2) | change_of(level - 3) |
                  change_of(level - 4);
    }
    if (LIKELY((change[0] | change[1]) == 0)) {
        return 0;
    }
    do {
        change = change_of(&thread->levels[--count]);
    } while ((change[0] | change[1]) == 0);
    return count + 1;
}

static inline bool is_same(const struct unwind_level *a, const struct unwind_level *b) {
    return a->slot == b->slot && a->word == b->word && a->frame == b->frame && a->mask == b->mask;
}

/* By anything but the frame pointer of the function around the site; false where the walk ends, or fails. */
static __attribute__((noinline)) bool step_otherwise(struct unwind_level *from,
                                                     struct unwind_level *to, struct reach *reach,
                                                     uint64_t site) {
    struct walk_place place = {from->slot, from->frame};
    struct chain chain = {0};
    if (site & SITE_END ? !step_over_end(&place, reach) : !step(&chain, &place, reach, site)) {
        return false;
    }
    from->guess = chain.has_guessed ? GUESS_NEW : GUESS_NONE;
    to->slot = place.slot;
    to->frame = place.frame;
    to->mask = chain.has_guessed && !(site & SITE_FRAME) ? 0 : ~(uintptr_t)0;
    return true;
}

/* From one new level to the next.  Where the walk is at home a step outwards to a readable word has another
 * below that is, too. */
static inline bool step_level(struct unwind_level *from, struct unwind_level *to,
                              struct reach *reach, uint64_t site) {
    uintptr_t slot = from->frame + sizeof(uintptr_t);
    if (LIKELY((site & (SITE_FRAME | SITE_END)) == SITE_FRAME && from->frame != 0)) {
        if (!may_step(from->slot, slot) || slot % sizeof(uintptr_t) != 0 ||
            slot > reach->low + reach->span) {
            return false;
        }
        from->guess = GUESS_NONE;
        to->slot = slot;
        to->frame = word_at(from->frame);
        to->mask = ~(uintptr_t)0;
    } else if (!step_otherwise(from, to, reach, site)) {
        return false;
    }
    to->word = word_at(to->slot);
    return true;
}

/* The new levels join the `same` outer ones that are still right.  They were just written word by word: wider
 * loads, which the compiler would make of this, had to wait until that is in the cache. */
static inline void join_levels(struct unwind_thread *thread, unsigned same,
                               const volatile struct unwind_level *from) {
    struct unwind_level *level = &thread->levels[same];
    const volatile struct unwind_level *end = &thread->levels[UNWIND_ROOM];
    uint8_t guesses = same > 0 ? level[-1].guesses : GUESS_NONE;
    thread->count = same + (unsigned)(end - from);
    thread->same = same;
    for (; from < end; from++, level++) {
        uint8_t guess = from->guess;
        guesses = guesses > guess ? guesses : guess;
        *level = (struct unwind_level){.frame = from->frame,
                                       .word = from->word,
                                       .mask = from->mask,
                                       .all = ~(uintptr_t)0,
                                       .slot = from->slot,
                                       .guess = guess,
                                       .guesses = guesses};
    }
}

/* The innermost `sound` of the levels before `known` are part of the new walk, whose others are at `from`
 * and after.  Something outside of them has changed.  Where the new ones begin now. */
static struct unwind_level *take_over(const struct unwind_level *known, size_t sound,
                                      struct unwind_level *from) {
    memmove(from - sound, known - sound, sound * sizeof(*from));
    return from - sound;
}

/*
 * A walk is a function of where it starts, of what is known about sites, and of the words it reads: the
 * return address in each slot and, where a step says so, the frame pointer below.  So when it comes to a
 * level that the last walk came to as well, and nothing is known in another way since (epoch), and the
 * words of all levels outside are what they were, then the rest is what it was.
 *
 *      levels   [ outermost ........ known | ... free ... | now ... innermost ]
 *
 * New levels are written from the end downwards, until the walk meets a kept one.  Those below it were left
 * since.  Where a level outside of it is changed, the ones before that are taken over, and the walk goes on
 * by itself.  Kept slots are on the thread's own stack, in the part that was found to be readable, which
 * never becomes less.
 *
 * False: the walk did not come to its end with `most` levels, and nothing is kept now.
 */
static inline bool renew(struct unwind_thread *thread, struct walk_place start, struct reach *reach,
                         unsigned most) {
    struct unwind_level *const levels = thread->levels;
    struct unwind_level *const end = levels + UNWIND_ROOM;
    struct unwind_level *const last = end - most; /* more than these are too many */
    struct unwind_level *now = end - 1;
    struct unwind_level *known = levels + min_size(thread->count, UNWIND_ROOM - 1);
    thread->count = 0;
    *now = (struct unwind_level){.frame = start.frame,
                                 .word = word_at(start.slot),
                                 .mask = ~(uintptr_t)0,
                                 .all = ~(uintptr_t)0,
                                 .slot = start.slot};
    for (;;) {
        while (known > levels && known[-1].slot < now->slot) {
            known--;
        }
        if (known > levels && is_same(known - 1, now)) {
            unsigned stale = count_stale(thread, (unsigned)(known - 1 - levels), now->slot);
            if (LIKELY(stale == 0)) {
                bool fits = (known - levels) + (end - 1 - now) <= (ptrdiff_t)most;
                if (fits) {
                    join_levels(thread, (unsigned)(known - levels), now + 1);
                }
                return fits;
            }
            size_t room = min_size((size_t)(now + 1 - levels) - stale, (size_t)(now + 1 - last));
            now = take_over(known, min_size((size_t)(known - levels) - stale, room), now + 1);
            known = levels + stale;
        }
        uint64_t site = find_site(unwind_address(now));
        if (UNLIKELY(site == 0 || now == last)) {
            return false;
        }
        if (!step_level(now, now - 1, reach, site)) {
            if (site & SITE_END) {
                now->guess = GUESS_NONE;
                join_levels(thread, 0, now);
            }
            return (site & SITE_END) != 0;
        }
        now--;
        known = known < now ? known : now;
    }
}

/* ---------------------------------------------------------------- by libgcc */

/* What libgcc finds from where the chain starts. */
struct trace {
    struct chain *chain;
    struct reach *reach;
    struct walk_place at; /* of the last address; slot 0: not on the stack */
    bool may_stop;        /* where the rest is known, though nobody checks it then */
    bool was_lost;        /* we could not have come here from the address before */
    bool has_started, is_cut, is_done;
};

/* The word that holds a return address: below where the stack is after the return, or beside the frame
 * pointer of the function that returns; 0: neither, as where a signal came. */
static uintptr_t find_slot(struct trace *trace, uintptr_t stack, uintptr_t address) {
    uintptr_t places[] = {stack - sizeof(uintptr_t), trace->at.frame + sizeof(uintptr_t)};
    for (unsigned i = 0; i < 2; i++) {
        if (can_read(trace->reach, places[i]) && plain_address(word_at(places[i])) == address) {
            return places[i];
        }
    }
    return 0;
}

static void learn_step(const struct trace *trace, uintptr_t slot) {
    const struct chain *chain = trace->chain;
    uintptr_t from = chain->addresses[chain->count - 1];
    if (trace->at.slot == 0 || slot <= trace->at.slot) {
        learn_site(from, 0, SITE_VARIES);
        return;
    }
    bool has_frame = trace->at.frame + sizeof(uintptr_t) == slot;
    learn_site(from, slot - trace->at.slot, has_frame ? SITE_FRAME : 0);
}

/* libgcc looks at the code a return address leads to. */
static bool is_readable_code(uintptr_t address) {
    return address == 0 || find_site(plain_address(address)) != 0 ||
           (os_is_readable(address) && os_is_readable(address + 1));
}

/* Can libgcc go on from this address to the next?  What it does not know by tables, it ends at; what
 * the tables tell in other ways, such as how to get out of a signal handler, is believed. */
static bool can_go_on(const struct trace *trace, struct _Unwind_Context *context,
                      uintptr_t address) {
    struct libgcc_bases bases;
    struct cfi_slot slot;
    if (trace->reach->is_home) {
        return true;
    }
    const void *description = g.functions.table((void *)(address - 1), &bases);
    if (description == NULL ||
        !cfi_find_slot(description, (uintptr_t)bases.function, address - 1, &slot)) {
        return true;
    }
    uintptr_t base;
    if (slot.reg == STACK_REGISTER) {
        base = g.functions.stack(context);
    } else if (slot.reg == FRAME_REGISTER) {
        base = g.functions.reg(context, FRAME_REGISTER);
    } else {
        return true;
    }
    uintptr_t place = base + (uintptr_t)slot.offset;
    return can_read(trace->reach, place) && is_readable_code(word_at(place));
}

/* Is this a site that our own walk stops at? */
static bool is_lost_at(uintptr_t address, uintptr_t frame) {
    uint64_t site = find_site(address);
    return site == 0 || (site & SITE_VARIES && !(site & SITE_FRAME && frame != 0));
}

/* Behind what was not known, mostly a site or two at the inner end, our own walk may come to its end: a
 * step of libgcc's takes a hundred times as long. */
static bool can_walk_rest(struct trace *trace) {
    struct chain *chain = trace->chain;
    uintptr_t address = chain->addresses[chain->count - 1];
    bool is_lost = is_lost_at(address, trace->at.frame);
    bool tries = trace->may_stop && trace->was_lost && !is_lost && trace->at.slot != 0;
    trace->was_lost = is_lost;
    if (tries) {
        unsigned before = chain->count;
        walk_on(chain, trace->at, trace->reach);
        trace->is_done = chain->is_sure;
        chain->count = chain->is_sure ? chain->count : before;
    }
    return trace->is_done;
}

static _Unwind_Reason_Code visit_frame(struct _Unwind_Context *context, void *argument) {
    struct trace *trace = argument;
    struct chain *chain = trace->chain;
    int is_exact = 0;
    uintptr_t address = g.functions.address(context, &is_exact);
    if (address == 0) {
        return _URC_END_OF_STACK;
    }
    address = plain_address(address + (is_exact != 0));
    trace->has_started |= address == chain->addresses[0];
    if (!trace->has_started) {
        return _URC_NO_REASON;
    }
    if (chain->count == chain->most) {
        trace->is_cut = true;
        return _URC_END_OF_STACK;
    }
    uintptr_t slot = is_exact ? 0 : find_slot(trace, g.functions.stack(context), address);
    if (chain->count > 0) {
        learn_step(trace, slot);
    }
    trace->at = (struct walk_place){slot, g.functions.reg(context, FRAME_REGISTER)};
    chain->addresses[chain->count++] = address;
    return !can_walk_rest(trace) && can_go_on(trace, context, address) ? _URC_NO_REASON
                                                                       : _URC_END_OF_STACK;
}

/* Replaces what we found ourselves. */
static COLD void ask_libgcc(struct chain *chain, struct reach *reach, bool may_stop) {
    struct trace trace = {.chain = chain, .reach = reach, .may_stop = may_stop};
    unsigned before = chain->count;
    chain->count = 0;
    g.functions.backtrace(visit_frame, &trace);
    if (chain->count == 0) {
        chain->count = before; /* It did not find its way to our caller. */
        return;
    }
    if (!trace.is_cut && !trace.is_done) {
        learn_site(chain->addresses[chain->count - 1], 0, SITE_END | SITE_VARIES);
        if (trace.at.slot != 0) {
            walk_on(chain, trace.at, reach);
        }
    }
}

/* ---------------------------------------------------------------- both */

/* Ours are the first ones.  If there is nothing else, the last of ours is better than nothing. */
static unsigned strip(const struct chain *chain, unsigned most) {
    unsigned first = count_own(chain);
    unsigned count = (unsigned)min_size(chain->count - first, most);
    memmove(chain->addresses, &chain->addresses[first], count * sizeof(chain->addresses[0]));
    return count;
}

/* A walk that could be wrong: is it the turn of this one? */
static bool is_to_be_checked(struct unwind_thread *thread, enum guess guesses) {
    static const uint8_t points[] = {0, POINTS_OF_CONFIRMED, POINTS_OF_GUESS};
    thread->walks += points[guesses];
    if (LIKELY(thread->walks < POINTS_BEFORE_CHECK)) {
        return false;
    }
    thread->walks = 0;
    return true;
}

/* May it be asked now? */
static bool can_ask(const struct chain *chain) {
    return has_libgcc() && !is_within(g.libgcc, chain->addresses[count_own(chain)]);
}

static void walk(struct unwind_thread *thread, struct chain *chain, struct walk_place start,
                 struct reach *reach) {
    walk_on(chain, start, reach);
    bool guesses = chain->has_guessed || !chain->is_sure;
    bool believes = opt.prof_unwind == PROF_UNWIND_AUTO &&
                    !is_to_be_checked(thread, guesses ? GUESS_NEW : GUESS_NONE);
    if (chain->is_sure && believes) {
        return;
    }
    if (opt.prof_unwind != PROF_UNWIND_FRAME_POINTERS && can_ask(chain)) {
        ask_libgcc(chain, reach, believes);
    } else if (!chain->is_sure &&
               chain->count == 1) { /* nothing was learnt, or not allowed to be */
        walk_frames(chain, start, reach);
    }
}

/* What is kept, innermost first. */
static void copy_levels(const struct unwind_thread *thread, uintptr_t *addresses, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        addresses[i] = unwind_address(&thread->levels[thread->count - 1 - i]);
    }
}

/* libgcc walks, too.  What it finds is in the chain afterwards; false: not what is kept, which is forgotten. */
static COLD bool is_confirmed(struct unwind_thread *thread, struct chain *chain,
                              struct reach *reach) {
    copy_levels(thread, chain->addresses, thread->count);
    chain->count = thread->count;
    if (!can_ask(chain)) {
        return true;
    }
    ask_libgcc(chain, reach, false);
    bool agrees = chain->count == thread->count;
    for (unsigned i = 0; i < thread->count && agrees; i++) {
        struct unwind_level *level = &thread->levels[thread->count - 1 - i];
        agrees = unwind_address(level) == chain->addresses[i];
        level->guess = (uint8_t)min_size(level->guess, GUESS_CONFIRMED);
        level->guesses = (uint8_t)min_size(level->guesses, GUESS_CONFIRMED);
    }
    thread->count = agrees ? thread->count : 0;
    return agrees;
}

/* Levels of ours at the inner end, but for the last of all. */
static unsigned count_own_levels(const struct unwind_thread *thread) {
    unsigned own = 0;
    while (own + 1 < thread->count &&
           is_within(g.own, unwind_address(&thread->levels[thread->count - 1 - own]))) {
        own++;
    }
    return own;
}

/* With what is kept; false where that does not do. */
static inline bool can_renew(struct unwind_thread *thread, struct walk_place start,
                             struct reach *reach, unsigned most) {
    if (UNLIKELY(!reach->is_home || opt.prof_unwind != PROF_UNWIND_AUTO)) {
        return false;
    }
    uint32_t epoch = atomic_load_explicit(&g.epoch, memory_order_relaxed);
    if (UNLIKELY(thread->epoch != epoch)) {
        thread->epoch = epoch;
        thread->count = 0;
    }
    return renew(thread, start, reach, most);
}

/* Where the stack is not known outermost first. */
static __attribute__((noinline)) struct unwind_stack
walk_to_addresses(struct unwind_thread *thread, struct walk_place start, struct reach *reach,
                  uintptr_t *addresses, unsigned most) {
    struct chain chain = {.addresses = addresses, .count = 1, .most = most + UNWIND_OWN};
    addresses[0] = plain_address(word_at(start.slot));
    walk(thread, &chain, start, reach);
    return (struct unwind_stack){.count = strip(&chain, most)};
}

/* What is kept is to be checked, or too much. */
static COLD struct unwind_stack check_and_copy(struct unwind_thread *thread, struct reach *reach,
                                               uintptr_t *addresses, unsigned most, bool checks) {
    struct chain chain = {.addresses = addresses, .most = most + UNWIND_OWN};
    if (checks && !is_confirmed(thread, &chain, reach)) {
        return (struct unwind_stack){.count = strip(&chain, most)};
    }
    copy_levels(thread, addresses, thread->count);
    chain.count = thread->count;
    return (struct unwind_stack){.count = strip(&chain, most)};
}

struct unwind_stack unwind_again(struct unwind_thread *thread, void *frame,
                                 uintptr_t addresses[UNWIND_ROOM], unsigned most) {
    most = (unsigned)min_size(most, UNWIND_MOST);
    struct reach reach = find_reach(thread, (uintptr_t)frame);
    struct walk_place start = {(uintptr_t)frame + sizeof(uintptr_t), word_at((uintptr_t)frame)};
    if (UNLIKELY(!can_renew(thread, start, &reach, most + UNWIND_OWN))) {
        return walk_to_addresses(thread, start, &reach, addresses, most);
    }
    bool checks = is_to_be_checked(thread, thread->levels[thread->count - 1].guesses);
    unsigned count = thread->count - count_own_levels(thread);
    if (UNLIKELY(checks || count > most)) {
        return check_and_copy(thread, &reach, addresses, most, checks);
    }
    return (struct unwind_stack){count, thread->same, thread->levels};
}

unsigned unwind(struct unwind_thread *thread, void *frame, uintptr_t addresses[UNWIND_ROOM],
                unsigned most) {
    struct unwind_stack stack = unwind_again(thread, frame, addresses, most);
    for (unsigned i = 0; stack.levels != NULL && i < stack.count; i++) {
        addresses[i] = unwind_address(&stack.levels[stack.count - 1 - i]);
    }
    return stack.count;
}
