/* SPDX-License-Identifier: MIT
 *
 * mark.c - follows pointers through the heap.
 *
 * One byte per 16 bytes of a chunk that has objects holds the state of the object that begins there:
 *
 *      leaves[address / 1 GiB]  ->  chunks[address / 2 MiB]  ->  states[offset / 16]
 *
 * Three rounds from what the caller has named, each of which ends when nothing is left to be scanned:
 *
 *      1   roots                pointers near the beginning of an object make it reachable; those to the
 *                               inside are only noted
 *      2   ignored objects      any pointer
 *      3   insides noted        any pointer: possible
 *
 * "Near the beginning" is HEADER_MOST bytes.  Programs keep pointers past a header far more often than they
 * lose an object and keep a pointer to its first line: the cookie before new[] (8), lengths (8), Python's and
 * libc's headers (16), old strings (24), the second base of a class, wrappers of malloc.
 *
 * What is live and has no state then is lost.  Which of those are lost by themselves?  One of each set whose
 * members lead to each other and that no other lost object leads to.  They are found by two walks: the first
 * notes the order in which objects are left, the second starts from what was left last, and whatever it has to
 * start from is definite, since all that leads to an object is left after it unless they lead to each other.
 * What it finds from there hangs below that one; several may lead to it, and the first has it.
 *
 * Read next   roots.c for what is named.
 */
#include "leak/mark.h"

#include "base/log.h"
#include "base/os.h"
#include "heap/heap.h"
#include "leak/present.h"
#include "leak/work.h"

enum {
    HEADER_MOST = 64,
    LG_STATE = 4, /* bytes of the heap by which states are numbered */
    LG_LEAF = 30,
    LEAVES = 1 << 18, /* addresses have 48 bits */
    LEAF_CHUNKS = 1 << (LG_LEAF - LG_CHUNK),
    CHUNK_STATES = CHUNK_BYTES >> LG_STATE,
    PRESENT_WORTH = 256 << 10, /* of bytes, to ask which are there */
    CLOCK_OBJECTS = 1024,      /* scanned before the clock is read again */
    ROOT_BYTES = 16 << 20,     /* and bytes of a root */
};

struct leaf {
    uint8_t *states[LEAF_CHUNKS];
};

/* What a pointer makes of the object that it leads to. */
enum round { ROUND_ROOTS, ROUND_IGNORED, ROUND_POSSIBLE, ROUND_DEFINITE };

/* In memory that is no root: it has addresses of objects. */
static struct {
    struct leaf **leaves;
    uintptr_t low, bytes; /* all chunks lie in between */
    struct mark_options options;
    enum round round;
    struct work_stack todo;    /* objects to be scanned */
    struct work_stack insides; /* objects of which an inside was found */
    struct work_stack ignored;
    struct work_stack path; /* of visit_from */
    struct work_stack
        below;          /* indirect objects, each with the definite one that it was found from */
    uintptr_t definite; /* that one, at present */
    unsigned scanned;
    bool is_late;
} * g;

/* ---------------------------------------------------------------- objects */

struct object {
    struct census_object is;
    uint8_t *state;
};

static uint8_t *state_at(uintptr_t base) {
    struct leaf *leaf = g->leaves[base >> LG_LEAF & (LEAVES - 1)];
    uint8_t *states = leaf != NULL ? leaf->states[base >> LG_CHUNK & (LEAF_CHUNKS - 1)] : NULL;
    return states != NULL ? &states[base % CHUNK_BYTES >> LG_STATE] : NULL;
}

/* The object an address lies in, if its slab says that it is handed out.  Every object has a state, or
 * nothing is known about it. */
static inline bool find(uintptr_t address, struct object *object) {
    if (LIKELY(address - g->low >= g->bytes) || !census_find(address, &object->is)) {
        return false;
    }
    object->state = state_at(object->is.base);
    assert(object->is.base <= address);
    return object->state != NULL;
}

/* ---------------------------------------------------------------- chunks */

static bool add_states(uintptr_t base) {
    struct leaf **leaf = &g->leaves[base >> LG_LEAF & (LEAVES - 1)];
    if (*leaf == NULL) {
        *leaf = work_map(sizeof(**leaf));
    }
    uint8_t *states = *leaf != NULL ? work_map(CHUNK_STATES) : NULL;
    if (states != NULL) {
        (*leaf)->states[base >> LG_CHUNK & (LEAF_CHUNKS - 1)] = states;
    }
    return states != NULL;
}

struct limits {
    uintptr_t low, high;
    bool is_complete;
};

static void prepare_chunk(uintptr_t base, void *context) {
    struct limits *limits = context;
    limits->low = min_size(limits->low, base);
    limits->high = max_size(limits->high, base + CHUNK_BYTES);
    limits->is_complete &= add_states(base);
}

bool mark_begin(const struct mark_options *options) {
    struct limits limits = {.low = UINTPTR_MAX, .is_complete = true};
    g = work_map(sizeof(*g));
    if (g == NULL) {
        return false;
    }
    g->options = *options;
    g->leaves = work_map(LEAVES * sizeof(g->leaves[0]));
    if (g->leaves == NULL) {
        return false;
    }
    census_walk_chunks(prepare_chunk, &limits);
    g->low = limits.low;
    g->bytes = limits.high > limits.low ? limits.high - limits.low : 0;
    return limits.is_complete;
}

/* ---------------------------------------------------------------- pointers */

/* A round's own state for what it finds. */
static enum mark_state state_of_round(void) {
    static const enum mark_state states[] = {MARK_REACHABLE, MARK_IGNORED, MARK_POSSIBLE,
                                             MARK_INDIRECT};
    return states[g->round];
}

/* May this round give the object its state? */
static bool is_open(enum mark_state state) {
    return g->round == ROUND_DEFINITE ? state == MARK_SEEN : state <= MARK_INSIDE;
}

static void take(const struct object *object, enum mark_state state) {
    assert(is_open(*object->state) && census_is_live(&object->is) && !is_open(state));
    *object->state = (uint8_t)state;
    work_push(&g->todo, object->is.base);
    if (state == MARK_INDIRECT) {
        work_push(&g->below, object->is.base);
        work_push(&g->below, g->definite);
    }
}

static void follow(uintptr_t word) {
    struct object object;
    if (LIKELY(!find(word, &object)) || !is_open(*object.state)) {
        return;
    }
    size_t offset = word - object.is.base;
    if ((g->options.max_offset != 0 && offset > g->options.max_offset) ||
        !census_is_live(&object.is)) {
        return;
    }
    if (g->round != ROUND_ROOTS || offset <= HEADER_MOST) {
        take(&object, state_of_round());
    } else if (*object.state == MARK_NONE) {
        *object.state = MARK_INSIDE;
        work_push(&g->insides, object.is.base);
    }
}

static void scan(uintptr_t start, uintptr_t end, void *context) {
    assert(g->options.step >= 1 && is_power_of_two(g->options.step));
    (void)context;
    size_t step = g->options.step;
    for (uintptr_t at = align_up(start, step); at + sizeof(uintptr_t) <= end; at += step) {
        uintptr_t word;
        __builtin_memcpy(&word, (const void *)at, sizeof(word));
        if (UNLIKELY(word - g->low < g->bytes)) {
            follow(word);
        }
    }
}

/* The clock is looked at now and then. */
static bool is_late(void) {
    if (!g->is_late && ++g->scanned % CLOCK_OBJECTS == 0) {
        g->is_late = os_now_ns() > g->options.deadline_ns;
    }
    return g->is_late;
}

bool mark_is_late(void) {
    return g->is_late;
}

bool mark_is_over(void) {
    g->is_late |= os_now_ns() > g->options.deadline_ns;
    return g->is_late;
}

/* It may take long; and it may hold little. */
static void scan_object(uintptr_t start, uintptr_t end) {
    if (end - start <= PRESENT_WORTH) {
        scan(start, end, NULL);
    } else {
        g->scanned |= CLOCK_OBJECTS - 1;
        present_walk(start, end, PRESENT_ALL, scan, NULL);
    }
}

static void follow_all(void) {
    uintptr_t base;
    struct object object;
    while (work_pop(&g->todo, &base)) {
        if (is_late() || !find(base, &object)) {
            continue;
        }
        scan_object(base, base + object.is.usable);
    }
}

/* ---------------------------------------------------------------- roots */

/* In pieces, with a look at the clock; a word that begins in a piece is of that piece. */
void mark_root(uintptr_t start, uintptr_t end) {
    while (start < end) {
        uintptr_t next = end - start > ROOT_BYTES ? start + ROOT_BYTES : end;
        scan(start, min_size(next + sizeof(uintptr_t) - 1, end), NULL);
        follow_all();
        if (next != end && mark_is_over()) {
            return;
        }
        start = next;
    }
}

void mark_object(uintptr_t address) {
    struct object object;
    if (find(address, &object) && is_open(*object.state) && census_is_live(&object.is)) {
        take(&object, MARK_REACHABLE);
        follow_all();
    }
}

void mark_ignored(uintptr_t address) {
    work_push(&g->ignored, address);
}

/* What was allocated while the thread had leaks disabled carries a mark. */
static void note_ignored(const struct mark_live *live, void *context) {
    (void)context;
    if (live->id & TRACK_IGNORED) {
        work_push(&g->ignored, live->at);
    }
}

static void walk_marked(void (*visit)(const struct mark_live *live, void *context), void *context);

/* All objects of a stack that are still open in this round get its state. */
static void start_from(struct work_stack *stack) {
    uintptr_t address;
    struct object object;
    while (work_pop(stack, &address)) {
        if (find(address, &object) && is_open(*object.state) && census_is_live(&object.is)) {
            take(&object, state_of_round());
        }
    }
    follow_all();
}

void mark_follow(void) {
    assert(g->round == ROUND_ROOTS);
    follow_all();
    g->round = ROUND_IGNORED;
    walk_marked(note_ignored, NULL);
    start_from(&g->ignored);
    g->round = ROUND_POSSIBLE;
    start_from(&g->insides);
}

/* ---------------------------------------------------------------- all live objects */

struct visit {
    void (*visit)(const struct mark_live *live, void *context);
    void *context;
};

static void visit_live(const struct census_object *object, void *context) {
    const struct visit *visit = context;
    const uint8_t *state = state_at(object->base);
    if (state != NULL && census_is_live(object)) {
        struct mark_live live = {object->base, object->usable, census_id(object),
                                 (enum mark_state) * state};
        visit->visit(&live, visit->context);
    }
}

static void walk_marked(void (*visit)(const struct mark_live *live, void *context), void *context) {
    struct visit visits = {visit, context};
    census_walk(visit_live, &visits);
}

static void visit_unmarked(const struct mark_live *live, void *context) {
    const struct visit *visit = context;
    struct mark_live plain = *live;
    plain.id &= ~TRACK_IGNORED;
    visit->visit(&plain, visit->context);
}

void mark_walk(void (*visit)(const struct mark_live *live, void *context), void *context) {
    struct visit visits = {visit, context};
    walk_marked(visit_unmarked, &visits);
}

static bool live_at(uintptr_t base, struct mark_live *live) {
    struct object object;
    if (!find(base, &object)) {
        return false;
    }
    *live = (struct mark_live){base, object.is.usable, census_id(&object.is) & ~TRACK_IGNORED,
                               (enum mark_state) * object.state};
    return true;
}

void mark_walk_below(void (*visit)(const struct mark_live *live, const struct mark_live *definite,
                                   void *context),
                     void *context) {
    uintptr_t base, above;
    struct mark_live live, definite;
    while (work_pop(&g->below, &above) && work_pop(&g->below, &base)) {
        if (live_at(base, &live) && live_at(above, &definite)) {
            visit(&live, &definite, context);
        }
    }
}

/* ---------------------------------------------------------------- what is lost */

/* The next lost object that has not been seen, among the words from `*at` to the end. */
static bool find_unseen(uintptr_t *at, uintptr_t end, struct object *object) {
    size_t step = g->options.step;
    for (; *at + sizeof(uintptr_t) <= end; *at += step) {
        uintptr_t word;
        __builtin_memcpy(&word, (const void *)*at, sizeof(word));
        if (find(word, object) && *object->state == MARK_NONE && census_is_live(&object->is) &&
            (g->options.max_offset == 0 || word - object->is.base <= g->options.max_offset)) {
            *at += step;
            return true;
        }
    }
    return false;
}

/* Visits everything that a lost object leads to and notes the order in which objects are left.  The path from
 * the first to the present one is on the stack: each with where its scan goes on. */
static void visit_from(uintptr_t first, struct work_stack *left) {
    assert(*state_at(first) == MARK_SEEN);
    uintptr_t base = first, at = first;
    for (;;) {
        struct object object, next;
        if (is_late() || !find(base, &object)) {
            return; /* What is left on the path does not matter any more. */
        }
        if (find_unseen(&at, base + object.is.usable, &next)) {
            *next.state = MARK_SEEN;
            work_push(&g->path, base);
            work_push(&g->path, at);
            base = at = next.is.base;
            continue;
        }
        work_push(left, base);
        if (!work_pop(&g->path, &at) || !work_pop(&g->path, &base)) {
            return;
        }
    }
}

static void visit_lost(const struct mark_live *live, void *context) {
    if (*state_at(live->at) == MARK_NONE) {
        *state_at(live->at) = MARK_SEEN;
        visit_from(live->at, context);
    }
}

static void call_definite(const struct mark_live *live, void *context) {
    (void)context;
    if (*state_at(live->at) == MARK_NONE) {
        *state_at(live->at) = MARK_DEFINITE;
    }
}

void mark_sort_lost(bool all_definite) {
    assert(g->round != ROUND_DEFINITE);
    struct work_stack left = {0};
    uintptr_t base;
    if (all_definite) {
        walk_marked(call_definite, NULL);
        return;
    }
    walk_marked(visit_lost, &left);
    g->round = ROUND_DEFINITE;
    while (work_pop(&left, &base)) {
        if (*state_at(base) == MARK_SEEN) {
            *state_at(base) = MARK_DEFINITE;
            g->definite = base;
            work_push(&g->todo, base);
            follow_all();
        }
    }
}
