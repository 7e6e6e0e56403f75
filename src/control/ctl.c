/* SPDX-License-Identifier: MIT
 *
 * ctl.c - mallctl: from a name or a mib to a row of ctl.def, and the rules all leaves share.
 *
 *      stats . arenas . 0 . bins . 7 . nmalloc       rows of a group that share the words so far
 *      word    word    <i>  word  <j>  <bin>         lie side by side in the table
 *
 * The rows of ctl.def are grouped by their words, so the rows below a node are a range, and a walk
 * narrows it word by word.  In a mib an index is itself; any other word is the row its group begins
 * with, and for a family the number of the member above that, which makes every word of a mib valid
 * below one node only.
 *
 * Threads     The index of the table is built once, under a lock, and read without.  The functions
 *             behind the rows are called with no lock held.
 * Read next   ctl.h, ctl.def, docs/manual/ctl.md.
 */
#include "control/ctl.h"

#include <errno.h>
#include <string.h>

#include "base/lock.h"
#include "control/snapshot.h"
#include "heap/counts.h"

enum { DEPTH = 7, MEMBER_SHIFT = 16 };

struct control_services control_services;

#define CTL(path, type, access, function, help)                                                    \
    {path, VALUE_##type, CTL_##access, function, HELP(help)},
#define CTL_INSIDE(start, why)
const struct ctl_row ctl_rows[] = {
#include "control/ctl.def"
};
#undef CTL
#undef CTL_INSIDE

enum { ROWS = sizeof(ctl_rows) / sizeof(ctl_rows[0]) };

size_t ctl_row_count(void) {
    return ROWS;
}

static const struct {
    const char *name;
    size_t size;
} types[VALUE_TYPES] = {
    [VALUE_NONE] = {"void", 0},
    [VALUE_BOOL] = {"bool", sizeof(bool)},
    [VALUE_STRING] = {"const char *", sizeof(char *)},
    [VALUE_UNSIGNED] = {"unsigned", sizeof(unsigned)},
    [VALUE_SIZE] = {"size_t", sizeof(size_t)},
    [VALUE_SSIZE] = {"ssize_t", sizeof(ssize_t)},
    [VALUE_INT64] = {"int64_t", sizeof(int64_t)},
    [VALUE_UINT64] = {"uint64_t", sizeof(uint64_t)},
    [VALUE_UINT32] = {"uint32_t", sizeof(uint32_t)},
    [VALUE_UINT64_POINTER] = {"uint64_t *", sizeof(void *)},
    [VALUE_SIZE_POINTER] = {"size_t *", sizeof(void *)},
    [VALUE_HOOKS] = {"extent_hooks_t *", sizeof(void *)},
    [VALUE_TEXT] = {"char *", sizeof(void *)},
    [VALUE_FUNCTION] = {"function *", sizeof(void *)},
    [VALUE_STRUCT] = {"struct", 0},
    [VALUE_MEMBER] = {"", 0},
};

const char *ctl_type_name(enum value_type type) {
    return types[type].name;
}

size_t ctl_type_size(enum value_type type) {
    return types[type].size;
}

/* ---------------------------------------------------------------- the index of the table */

enum segment_kind {
    A_WORD,
    A_MEMBER,
    AN_ARENA, /* arena.<i>: up to the number of arenas, or one of the two special indices */
    A_COUNTED_ARENA /* stats.arenas.<i>: one that has counters */,
    A_NUMBER, /* below a limit */
};

struct segment {
    uint8_t start; /* in the path */
    uint8_t length;
    uint8_t kind;
    uint8_t family; /* A_MEMBER */
    uint16_t limit; /* A_NUMBER */
    uint16_t end;   /* in the first row of a group: the row after the group; otherwise 0 */
};

struct shape {
    uint8_t depth;
    struct segment segments[DEPTH];
};

static struct {
    struct lock lock; /* for building */
    _Atomic bool is_built;
} g = {.lock = LOCK_OF_RANK(RANK_CTL)};

/* Not in g, whose initial values would put all of this into the library's file. */
SPARSE static struct shape shapes[ROWS];

/* The word before an index says what it counts. */
static const struct {
    const char *word;
    uint8_t kind;
    uint16_t limit;
} ranges[] = {
    {"arena", AN_ARENA, 0},
    {"arenas", A_COUNTED_ARENA, 0},
    {"bin", A_NUMBER, BIN_CLASSES},
    {"bins", A_NUMBER, BIN_CLASSES},
    {"lextent", A_NUMBER, LEXTENT_CLASSES},
    {"lextents", A_NUMBER, LEXTENT_CLASSES},
    {"extents", A_NUMBER, EXTENT_CLASSES},
    {"nonfull_slabs", A_NUMBER, 64},
    {"alloc", A_NUMBER, 64},
};

static bool segment_is(const char *path, const struct segment *segment, const char *word) {
    return strlen(word) == segment->length &&
           memcmp(path + segment->start, word, segment->length) == 0;
}

static void set_range(const char *path, struct segment *segment) {
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        if (segment_is(path, segment - 1, ranges[i].word)) {
            segment->kind = ranges[i].kind;
            segment->limit = ranges[i].limit;
        }
    }
}

static void classify(const char *path, struct segment *segment) {
    int family = ctl_family_find(path + segment->start, segment->length);
    if (family >= 0) {
        segment->kind = A_MEMBER;
        segment->family = (uint8_t)family;
    } else if (path[segment->start] == '<') {
        set_range(path, segment);
    }
}

static void build_shape(const char *path, struct shape *shape) {
    size_t at = 0, d = 0;
    do {
        struct segment *segment = &shape->segments[d++];
        size_t length = strcspn(path + at, ".");
        segment->start = (uint8_t)at;
        segment->length = (uint8_t)length;
        classify(path, segment);
        at += length + 1;
    } while (path[at - 1] == '.');
    shape->depth = (uint8_t)d;
}

/* Do two rows share their words up to and including this depth? */
static bool share(size_t a, size_t b, size_t depth) {
    const struct segment *last = &shapes[a].segments[depth];
    size_t length = (size_t)last->start + last->length;
    return shapes[b].depth > depth && last->length == shapes[b].segments[depth].length &&
           last->start == shapes[b].segments[depth].start &&
           memcmp(ctl_rows[a].path, ctl_rows[b].path, length) == 0;
}

static void build_groups(size_t depth) {
    for (size_t row = 0, end; row < ROWS; row = end) {
        end = row + 1;
        if (depth >= shapes[row].depth) {
            continue;
        }
        while (end < ROWS && share(row, end, depth)) {
            end++;
        }
        shapes[row].segments[depth].end = (uint16_t)end;
    }
}

static void build(void) {
    for (size_t row = 0; row < ROWS; row++) {
        build_shape(ctl_rows[row].path, &shapes[row]);
    }
    for (size_t depth = 0; depth < DEPTH; depth++) {
        build_groups(depth);
    }
}

/* ---------------------------------------------------------------- walking */

/* The place of a walk: rows first .. end - 1 share the words so far. */
struct walk {
    size_t first;
    size_t end;
    size_t depth;
    size_t words[DEPTH];
};

static const struct segment *segment_at(const struct walk *walk, size_t row) {
    return &shapes[row].segments[walk->depth];
}

static bool is_leaf(const struct walk *walk) {
    return walk->depth > 0 && shapes[walk->first].depth == walk->depth;
}

static bool arena_has_name(size_t arena) {
    return arena <= snapshot_arenas() || arena == SNAPSHOT_ALL || arena == SNAPSHOT_DESTROYED;
}

static bool is_in_range(const struct segment *segment, size_t word) {
    switch (segment->kind) {
    case AN_ARENA:
        return arena_has_name(word);
    case A_COUNTED_ARENA:
        return snapshot_arena(word) != NULL;
    case A_NUMBER:
        return word < segment->limit;
    default:
        return false;
    }
}

static bool is_index(const struct segment *segment) {
    return segment->kind != A_WORD && segment->kind != A_MEMBER;
}

static void step(struct walk *walk, size_t row, size_t word) {
    walk->words[walk->depth] = word;
    walk->first = row;
    walk->end = segment_at(walk, row)->end;
    walk->depth++;
}

/* Only leading digits count. */
static bool parse_index(const char *text, size_t length, size_t *number) {
    size_t i = 0;
    *number = 0;
    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++) {
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (size_t)(text[i] - '0'), number)) {
            return false;
        }
    }
    return i > 0;
}

static bool find_member(int family, const char *text, size_t length, size_t *number) {
    for (*number = 0; *number < ctl_family_count(family); ++*number) {
        const char *name = ctl_family_member(family, *number).name;
        if (name != NULL && strlen(name) == length && memcmp(name, text, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Advances by one component of a name.  False if there is no such component here. */
static bool step_by_name(struct walk *walk, const char *text, size_t length) {
    for (size_t row = walk->first; row < walk->end; row = segment_at(walk, row)->end) {
        const struct segment *segment = segment_at(walk, row);
        size_t word = 0;
        bool found = false;
        if (segment->kind == A_WORD) {
            found = segment->length == length &&
                    memcmp(ctl_rows[row].path + segment->start, text, length) == 0;
            word = row;
        } else if (segment->kind == A_MEMBER) {
            found = find_member(segment->family, text, length, &word);
            word = row | word << MEMBER_SHIFT;
        } else {
            found = parse_index(text, length, &word) && is_in_range(segment, word);
        }
        if (found) {
            step(walk, row, word);
            return true;
        }
    }
    return false;
}

/* The same by one word of a mib. */
static bool step_by_word(struct walk *walk, size_t word) {
    const struct segment *segment = segment_at(walk, walk->first);
    if (is_index(segment)) {
        if (!is_in_range(segment, word)) {
            return false;
        }
        step(walk, walk->first, word);
        return true;
    }
    size_t row = word & ((1 << MEMBER_SHIFT) - 1), member = word >> MEMBER_SHIFT;
    if (row < walk->first || row >= walk->end) {
        return false;
    }
    segment = segment_at(walk, row);
    bool is_there = segment->kind == A_MEMBER
                        ? ctl_family_member(segment->family, member).name != NULL
                        : member == 0;
    if (segment->end == 0 || is_index(segment) || !is_there) {
        return false;
    }
    step(walk, row, word);
    return true;
}

/* Follows up to `most` components.  ENOENT as soon as one is unknown. */
static int walk_name(struct walk *walk, const char *name, size_t most) {
    *walk = (struct walk){.end = ROWS};
    if (*name == '\0') {
        return ENOENT;
    }
    while (walk->depth < most) {
        size_t length = strcspn(name, ".");
        if (!step_by_name(walk, name, length)) {
            return ENOENT;
        }
        bool is_last = name[length] == '\0';
        if (is_leaf(walk) || is_last) {
            return is_last ? 0 : ENOENT;
        }
        name += length + 1;
    }
    return 0;
}

/* ---------------------------------------------------------------- rules all leaves share */

int ctl_put_old(struct ctl_call *call, const void *value, size_t size) {
    if (call->oldp == NULL || call->oldlenp == NULL) {
        return 0;
    }
    size_t copied = min_size(size, *call->oldlenp);
    memcpy(call->oldp, value, copied);
    if (*call->oldlenp != size) {
        *call->oldlenp = copied;
        return EINVAL;
    }
    return 0;
}

int ctl_verify_old(struct ctl_call *call, size_t size) {
    if (call->oldp != NULL && call->oldlenp != NULL && *call->oldlenp == size) {
        return 0;
    }
    if (call->oldlenp != NULL) {
        *call->oldlenp = 0;
    }
    return EINVAL;
}

int ctl_take_new(struct ctl_call *call, void *value, size_t size) {
    if (call->newp == NULL) {
        return 0;
    }
    if (call->newlen != size) {
        return EINVAL;
    }
    memcpy(value, call->newp, size);
    return 0;
}

int ctl_not_offered(struct ctl_call *call) {
    (void)call;
    return ENOENT;
}

static int run_read(struct ctl_call *call, size_t size) {
    if (call->newp != NULL || call->newlen != 0) {
        return EPERM;
    }
    int error = call->row->function(call);
    return error != 0 ? error : ctl_put_old(call, &call->value, size);
}

/* The old value is given first, and a wrong length keeps everything as it is. */
static int run_both(struct ctl_call *call, size_t size) {
    int error = call->row->function(call);
    union value old = call->value;
    if (error == 0) {
        error = ctl_take_new(call, &call->value, size);
    }
    if (error == 0) {
        error = ctl_put_old(call, &old, size);
    }
    if (error != 0 || call->newp == NULL) {
        return error;
    }
    call->writes = true;
    return call->row->function(call);
}

static int run_write(struct ctl_call *call, size_t size) {
    if (call->oldp != NULL || call->oldlenp != NULL) {
        return EPERM;
    }
    int error = ctl_take_new(call, &call->value, size);
    if (error != 0 || (call->row->access == CTL_GIVE && call->newp == NULL)) {
        return EINVAL;
    }
    call->writes = true;
    call->given = call->newp != NULL;
    return call->row->function(call);
}

static int run_void(struct ctl_call *call) {
    if (call->oldp != NULL || call->oldlenp != NULL || call->newp != NULL || call->newlen != 0) {
        return EPERM;
    }
    return call->row->function(call);
}

static int run(struct ctl_call *call) {
    const struct ctl_row *row = call->row;
    size_t size = types[row->type == VALUE_MEMBER ? call->member.type : row->type].size;
    switch (row->access) {
    case CTL_READ:
        return run_read(call, size);
    case CTL_BOTH:
        return run_both(call, size);
    case CTL_WRITE:
    case CTL_GIVE:
        return run_write(call, size);
    case CTL_RUN:
        return run_void(call);
    default:
        return row->function(call);
    }
}

/* Notes the words of a path that are not plain. */
static void set_words(struct ctl_call *call, const struct walk *walk) {
    size_t n = 0;
    for (size_t d = 0; d < walk->depth; d++) {
        const struct segment *segment = &shapes[walk->first].segments[d];
        if (segment->kind == A_MEMBER) {
            call->word[n] = walk->words[d] >> MEMBER_SHIFT;
            call->member = ctl_family_member(segment->family, call->word[n++]);
        } else if (segment->kind != A_WORD) {
            call->word[n++] = walk->words[d];
        }
    }
}

static int run_at(const struct walk *walk, struct ctl_call *call) {
    if (!is_leaf(walk)) {
        return ENOENT;
    }
    call->row = &ctl_rows[walk->first];
    set_words(call, walk);
    return run(call);
}

/* ---------------------------------------------------------------- calls */

/* False without memory for the first copy of the counters. */
static bool start(void) {
    /* Acquire: whoever sees the mark sees the index. */
    if (!atomic_load_explicit(&g.is_built, memory_order_acquire)) {
        /* Even if the last holder vanished in a fork, building from the beginning is right. */
        (void)lock_acquire(&g.lock);
        if (!g.is_built) {
            build();
            atomic_store_explicit(&g.is_built, true, memory_order_release);
        }
        lock_release(&g.lock);
    }
    return snapshot_start();
}

const struct ctl_row *ctl_find(const char *name) {
    struct walk walk;
    bool found = start() && walk_name(&walk, name, DEPTH) == 0 && is_leaf(&walk);
    return found ? &ctl_rows[walk.first] : NULL;
}

int ctl_by_name(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen) {
    if (name == NULL) {
        return EINVAL;
    }
    if (!start()) {
        return EAGAIN;
    }
    struct walk walk;
    int error = walk_name(&walk, name, DEPTH);
    struct ctl_call call = {.oldp = oldp, .oldlenp = oldlenp, .newp = newp, .newlen = newlen};
    return error != 0 ? error : run_at(&walk, &call);
}

int ctl_name_to_mib(const char *name, size_t *mibp, size_t *miblenp) {
    if (name == NULL || miblenp == NULL || (mibp == NULL && *miblenp > 0)) {
        return EINVAL;
    }
    if (!start()) {
        return EAGAIN;
    }
    struct walk walk;
    int error = walk_name(&walk, name, min_size(*miblenp, DEPTH));
    if (error == 0) {
        for (size_t i = 0; i < walk.depth; i++) {
            mibp[i] = walk.words[i];
        }
        *miblenp = walk.depth;
    }
    return error;
}

int ctl_by_mib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp,
               size_t newlen) {
    if (mib == NULL && miblen > 0) {
        return EINVAL;
    }
    if (!start()) {
        return EAGAIN;
    }
    struct walk walk = {.end = ROWS};
    for (size_t i = 0; i < miblen; i++) {
        if (is_leaf(&walk) || !step_by_word(&walk, mib[i])) {
            return ENOENT;
        }
    }
    struct ctl_call call = {.oldp = oldp, .oldlenp = oldlenp, .newp = newp, .newlen = newlen};
    return run_at(&walk, &call);
}
