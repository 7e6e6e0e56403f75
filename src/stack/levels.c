/* SPDX-License-Identifier: MIT
 *
 * levels.c - a walk of a thread's own stack, with what is kept of the last one.
 *
 * A walk is a function of where it starts, of the rules, and of the words it reads: the return
 * address in each slot and, if a function further out uses it, the frame pointer where it was
 * saved.  So when it comes to a level that the last walk came to as well, and the rules are the
 * same (generation), and the words of all levels outside are unchanged, then the rest of the walk
 * is unchanged.
 *
 *      levels   [ outermost ........ known | ... free ... | now ... innermost ]
 *
 * New levels are written from the end downwards, until the walk meets a kept one.  The calls inside
 * that one have returned.  Where a level outside of it has changed, the levels between the two are
 * taken over, and the walk goes on by itself.  Kept slots are in the part of the thread's own stack
 * that was found to be readable, which never shrinks.
 */
#include "stack/levels.h"

#include <string.h>

#include "stack/rules.h"

enum level_flag {
    LEVEL_USES = 1,   /* the rule here uses the frame pointer, */
    LEVEL_PASSES = 2, /* or leaves it for the next */
};

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

/* The frame pointer counts, and was read elsewhere than below the return address. */
static inline bool is_far(const struct unwind_level *level) {
    return level->needs && level->below > sizeof(uintptr_t);
}

/* Both words, wherever they were read. */
static bool is_changed(const struct unwind_level *level) {
    pair change = change_of(level);
    return (change[0] | change[1]) != 0 ||
           (is_far(level) && walk_word_at(level->slot - level->below) != level->frame);
}

/* How many of the outer `count` levels have changed or lie outside of one that has.  They are
 * compared four at a time; those missing are in `before`, whose masks of 0 match any word. */
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
    if (LIKELY((change[0] | change[1]) == 0 && !thread->has_far)) {
        return 0;
    }
    while (count > 0 && !is_changed(&thread->levels[count - 1])) {
        count--;
    }
    return count;
}

/* Where the stack is after the return. */
static inline uintptr_t stack_after(const struct unwind_level *level) {
#if defined(__x86_64__) /* above the address, which the call has pushed */
    return level->slot + sizeof(uintptr_t);
#else
    return level->slot + level->above;
#endif
}

static inline bool is_same(const struct unwind_level *kept, const struct unwind_level *now) {
    return kept->slot == now->slot && kept->word == now->word &&
           stack_after(kept) == stack_after(now) && (kept->frame == now->frame || !kept->needs);
}

enum step { STEP_DONE, STEP_END, STEP_LOST };

/* False if no slot can be there. */
static inline bool set_slot(const struct unwind_level *from, struct unwind_level *to,
                            uintptr_t last, uintptr_t slot) {
    to->slot = slot;
    return slot > from->slot && slot % sizeof(uintptr_t) == 0 && slot <= last;
}

/* The frame pointer is where the function has saved it. */
static inline bool set_frame(const struct unwind_level *from, struct unwind_level *to,
                             uintptr_t at) {
    if (at <= from->slot || at >= to->slot || at % sizeof(uintptr_t) != 0) {
        return false;
    }
    to->below = (uint32_t)(to->slot - at);
    to->frame = walk_word_at(at);
    return true;
}

/* The rule of a function with a frame pointer. */
static const union rule frame_rule = {.frame = CFI_POINTER,
                                      .saved = CFI_SAVED,
                                      .asked = 1,
                                      .offset = 2,
                                      .of_return = -1,
                                      .of_saved = -2};

static bool has_table(uintptr_t slot) {
    union rule rule = rules_find(stack_plain_address(walk_word_at(slot)) - 1);
    return rule.word != 0 && rule.frame != CFI_NO_TABLE;
}

/* From one new level to the next.  In code without tables frame pointers are tried: they are
 * believed if they lead to a known call. */
static __attribute__((noinline)) enum step
step_by_rule(struct unwind_level *from, struct unwind_level *to, uintptr_t last, union rule rule) {
    enum { WORD = sizeof(uintptr_t) };
    bool guesses = rule.frame == CFI_NO_TABLE && rule.asked;
    enum step failed = guesses || rule.frame == CFI_END ? STEP_END : STEP_LOST;
    rule = UNLIKELY(guesses) ? frame_rule : rule;
    bool by_pointer = rule.frame == CFI_POINTER;
    from->flags = by_pointer ? LEVEL_USES : 0;
    if ((!by_pointer && rule.frame != CFI_STACK) || rule.returns != CFI_AT_FRAME) {
        return failed;
    }
    uintptr_t stack = by_pointer ? from->frame : stack_after(from);
    stack += (uintptr_t)(intptr_t)rule.offset * WORD;
    if (!set_slot(from, to, last, stack + (uintptr_t)(intptr_t)rule.of_return * WORD)) {
        return failed;
    }
    to->above = (uint32_t)(stack - to->slot);
    if (rule.saved == CFI_SAME) {
        from->flags |= LEVEL_PASSES;
        to->frame = from->frame;
        to->below = 0;
    } else if (rule.saved != CFI_SAVED ||
               !set_frame(from, to, stack + (uintptr_t)(intptr_t)rule.of_saved * WORD)) {
        return failed;
    }
    return UNLIKELY(guesses) && !has_table(to->slot) ? failed : STEP_DONE;
}

static inline enum step step_level(struct unwind_level *from, struct unwind_level *to,
                                   uintptr_t last, union rule rule) {
    enum step step;
    if (LIKELY(rule.word == frame_rule.word)) {
        uintptr_t slot = from->frame + sizeof(uintptr_t);
        if (slot <= from->slot + sizeof(uintptr_t) || slot % sizeof(uintptr_t) != 0 ||
            slot > last) {
            return STEP_LOST;
        }
        from->flags = LEVEL_USES;
        to->slot = slot;
        to->frame = walk_word_at(from->frame);
        to->above = to->below = sizeof(uintptr_t);
    } else if ((step = step_by_rule(from, to, last, rule)) != STEP_DONE) {
        return step;
    }
    to->word = walk_word_at(to->slot);
    return STEP_DONE;
}

/* A word that counts is compared with the return address above it. */
static inline uintptr_t mask_of(uintptr_t needs, uint32_t below) {
    return below == sizeof(uintptr_t) ? -needs : 0;
}

/* The new levels join the `same` outer ones that are still right.  They were just written word by
 * word: the compiler's wider loads would have to wait until that is in the cache. */
static inline void join_levels(struct unwind_thread *thread, unsigned same,
                               const volatile struct unwind_level *from) {
    struct unwind_level *level = &thread->levels[same];
    const volatile struct unwind_level *end = &thread->levels[UNWIND_ROOM];
    unsigned needs = same > 0 ? level[-1].needs : 0;
    unsigned far = same > 0 ? thread->has_far : 0;
    thread->count = same + (unsigned)(end - from);
    thread->same = same;
    for (; from < end; from++, level++) {
        unsigned flags = from->flags;
        uint32_t below = from->below;
        needs = (flags & LEVEL_USES) | (flags / LEVEL_PASSES & needs);
        far |= needs & (below > sizeof(uintptr_t));
        level->frame = from->frame;
        level->word = from->word;
        level->mask = mask_of(needs, below);
        level->all = ~(uintptr_t)0;
        level->slot = from->slot;
        level->note = 0;
        level->above = from->above;
        level->below = below;
        level->flags = (uint8_t)flags;
        level->needs = (uint8_t)needs;
    }
    thread->has_far = (uint8_t)far;
}

/* The walk came to a kept level, perhaps by another way than before. */
static inline void join_at(struct unwind_thread *thread, struct unwind_level *kept,
                           const struct unwind_level *now) {
    kept->frame = now->frame;
    if (UNLIKELY(kept->below != now->below)) {
        kept->below = now->below;
        kept->mask = mask_of(kept->needs, kept->below);
        thread->has_far |= is_far(kept);
    }
}

/* The innermost `sound` of the levels before `known` join the new walk, whose others are from
 * `from` on, since something outside of them has changed.  Returns its new start. */
static struct unwind_level *take_over(const struct unwind_level *known, size_t sound,
                                      struct unwind_level *from) {
    memmove(from - sound, known - sound, sound * sizeof(*from));
    return from - sound;
}

/* There are more levels than wanted: the new ones from `now` on, and kept ones before `known`. */
static COLD struct walk_result cut_walk(const struct unwind_thread *thread,
                                        const struct unwind_level *now,
                                        const struct unwind_level *known, uintptr_t *cut,
                                        unsigned most) {
    struct walk_result result = {.end = WALK_FULL};
    for (const struct unwind_level *end = &thread->levels[UNWIND_ROOM]; end > now;) {
        cut[result.count++] = unwind_address(--end);
    }
    while (known > thread->levels && result.count < most) {
        cut[result.count++] = unwind_address(--known);
    }
    return result;
}

/* The call of the function with this frame. */
static inline void set_first(struct unwind_level *level, uintptr_t frame, uintptr_t stack) {
    level->frame = walk_word_at(frame);
    level->slot = frame + sizeof(uintptr_t);
    level->word = walk_word_at(level->slot);
    level->above = (uint32_t)(stack - level->slot);
    level->below = sizeof(uintptr_t);
}

struct walk_result levels_renew(struct unwind_thread *thread, uintptr_t frame, uintptr_t stack,
                                uintptr_t *cut, unsigned most) {
    struct unwind_level *const levels = thread->levels;
    struct unwind_level *const end = levels + UNWIND_ROOM;
    struct unwind_level *const least = end - most; /* more than these are too many */
    const uintptr_t last = align_down(thread->high, sizeof(uintptr_t)) - sizeof(uintptr_t);
    struct unwind_level *now = end - 1;
    struct unwind_level *known = levels + min_size(thread->count, UNWIND_ROOM - 1);
    thread->count = 0;
    set_first(now, frame, stack);
    for (;;) {
        while (known > levels && known[-1].slot < now->slot) {
            known--;
        }
        if (known > levels && is_same(known - 1, now)) {
            unsigned stale = count_stale(thread, (unsigned)(known - 1 - levels), now->slot);
            join_at(thread, known - 1, now);
            if (LIKELY(stale == 0)) {
                if (UNLIKELY((known - levels) + (end - 1 - now) > (ptrdiff_t)most)) {
                    return cut_walk(thread, now + 1, known, cut, most);
                }
                join_levels(thread, (unsigned)(known - levels), now + 1);
                return (struct walk_result){.count = thread->count, .end = WALK_ENDED};
            }
            size_t room = min_size((size_t)(now + 1 - levels) - stale, (size_t)(now + 1 - least));
            now = take_over(known, min_size((size_t)(known - levels) - stale, room), now + 1);
            known = levels + stale;
        }
        if (UNLIKELY(now == least)) {
            return cut_walk(thread, now, levels, cut, most);
        }
        union rule rule = rules_find_of(thread->generation, unwind_address(now) - 1);
        enum step step = step_level(now, now - 1, last, rule);
        if (UNLIKELY(step != STEP_DONE)) {
            if (step == STEP_END) {
                join_levels(thread, 0, now);
            }
            return (struct walk_result){.count = thread->count,
                                        .end = step == STEP_END ? WALK_ENDED : WALK_BROKEN};
        }
        now--;
        known = known < now ? known : now;
    }
}
