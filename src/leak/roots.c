/* SPDX-License-Identifier: MIT
 *
 * roots.c - what of the address space is a root.
 *
 *      /proc/self/maps, readable and private           less    our own notes, and the heap itself
 *        data of modules, also where it is read-only             stacks below what is in use
 *        what the program has mapped                             stacks of threads that are gone
 *        stacks, with thread-local storage at their end
 *      registers of threads that are stopped
 *      registered regions
 *
 * Only pages that the process has written to can hold pointers to its heap (present.h).
 *
 * Stacks.  glibc maps a block for each thread and keeps the blocks of threads that are gone for later ones.
 * What they held must not hide a leak, and nothing but their contents tells them from memory of the program:
 *
 *      block   | guard | ... stack ... | thread-local storage | struct pthread |
 *                                                              ^ pointer
 *
 * At the pointer is the pointer itself, twice, and behind it, side by side, address and length of the block.
 * A block that has both and belongs to no existing thread is dead.  A thread that has ended and is not joined
 * yet, whose number there is 0, still has its result in struct pthread, which counts.  With another libc no block is
 * found: then all of a stack's mapping is a root, which may hide leaks and never invents any.
 */
#include "leak/roots.h"

#include <string.h>

#include "base/fmt.h"
#include "base/os.h"
#include "base/os_threads.h"
#include "base/own.h"
#include "heap/heap.h"
#include "leak/ignore.h"
#include "leak/mark.h"
#include "leak/present.h"
#include "leak/stop.h"
#include "leak/work.h"

enum {
    MOST_RANGES = 1 << 17,
    MAPS_BYTES = 1 << 16,
    PTHREAD_ALIGNMENT = 64,
    PTHREAD_BYTES = 4096,  /* no libc has more in struct pthread */
    SELF_WORD = 2,         /* the second time that the pointer is at itself */
    CLOCK_BYTES = 1 << 20, /* looked at before the clock is read */
};

struct range {
    uintptr_t start, end;
};

/* One thread that there is. */
struct user {
    uintptr_t sp, pointer; /* 0: not known */
    uint32_t thread;
};

/* A line of /proc/self/maps. */
struct mapping {
    struct range range;
    bool is_readable, is_writable, is_private;
    const char *path; /* as long as the line */
    size_t path_bytes;
};

static struct roots {
    struct roots_wish wish;
    struct range *apart; /* no roots; in the order of addresses once they are sorted */
    size_t apart_count;
    struct range *stacks; /* blocks of existing threads, from what is in use on */
    size_t stack_count;
    struct user *users;
    size_t user_count;
    char *maps;
    size_t maps_bytes;
    const struct mapping *mapping; /* the one that is looked at */
    uint64_t bytes;
    bool is_full;
    bool is_in_motion;
} * g;

/* ---------------------------------------------------------------- what is no root */

static void set_apart(uintptr_t start, uintptr_t end, void *context) {
    (void)context;
    if (g->apart_count == MOST_RANGES) {
        g->is_full = true;
    } else if (end > start) {
        g->apart[g->apart_count++] = (struct range){start, end};
    }
}

/* Shell's sort: short, and there are not many. */
static void sort_apart(void) {
    for (size_t gap = g->apart_count / 2; gap > 0; gap /= 2) {
        for (size_t i = gap; i < g->apart_count; i++) {
            struct range range = g->apart[i];
            size_t k = i;
            for (; k >= gap && g->apart[k - gap].start > range.start; k -= gap) {
                g->apart[k] = g->apart[k - gap];
            }
            g->apart[k] = range;
        }
    }
}

/* Calls `visit` for what is left of a range. */
static void walk_rest(struct range range, void (*visit)(uintptr_t, uintptr_t, void *),
                      void *context) {
    size_t low = 0, high = g->apart_count;
    while (low < high) { /* the first that starts behind its beginning */
        size_t middle = (low + high) / 2;
        if (g->apart[middle].start <= range.start) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    uintptr_t at = range.start;
    for (size_t i = low; i-- > 0;) { /* ranges may lie in each other, a few deep */
        at = max_size(at, g->apart[i].end);
        if (low - i > 4) {
            break;
        }
    }
    for (size_t i = low; i < g->apart_count && g->apart[i].start < range.end; i++) {
        if (g->apart[i].start > at) {
            visit(at, g->apart[i].start, context);
        }
        at = max_size(at, g->apart[i].end);
    }
    if (at < range.end) {
        visit(at, range.end, context);
    }
}

/* ---------------------------------------------------------------- mappings */

/* The next piece of the text, behind what is there; grows the room for it. */
static bool read_maps(void) {
    size_t capacity = MAPS_BYTES;
    ssize_t got = 1;
    int file = os_open("/proc/thread-self/maps"); /* the first thread may be gone */
    g->maps = file >= 0 ? work_map(capacity) : NULL;
    while (g->maps != NULL && got > 0) {
        if (capacity - g->maps_bytes < MAPS_BYTES / 2) {
            char *wider = work_map(2 * capacity);
            if (wider == NULL) {
                break;
            }
            memcpy(wider, g->maps, g->maps_bytes);
            work_unmap(g->maps);
            g->maps = wider;
            capacity *= 2;
        }
        got = os_read(file, g->maps + g->maps_bytes, capacity - g->maps_bytes);
        g->maps_bytes += got > 0 ? (size_t)got : 0;
    }
    if (file >= 0) {
        os_close(file);
    }
    return g->maps != NULL && got == 0 && g->maps_bytes > 0;
}

static uintptr_t parse_hex(const char **text) {
    uintptr_t value = 0;
    for (;; ++*text) {
        char c = **text;
        if (c >= '0' && c <= '9') {
            value = value << 4 | (uintptr_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            value = value << 4 | (uintptr_t)(c - 'a' + 10);
        } else {
            return value;
        }
    }
}

/* start-end rwxp offset device inode path */
static struct mapping parse_line(const char *line, const char *end) {
    struct mapping mapping = {0};
    mapping.range.start = parse_hex(&line);
    line++;
    mapping.range.end = parse_hex(&line);
    mapping.is_readable = line[1] == 'r';
    mapping.is_writable = line[2] == 'w';
    mapping.is_private = line[4] == 'p';
    for (unsigned words = 0; words < 5 && line < end; words++) {
        while (line < end && *line != ' ') {
            line++;
        }
        while (line < end && *line == ' ') {
            line++;
        }
    }
    mapping.path = line;
    mapping.path_bytes = (size_t)(end - line);
    return mapping;
}

static bool has_path(const struct mapping *mapping, const char *beginning) {
    size_t length = strlen(beginning);
    return mapping->path_bytes >= length && memcmp(mapping->path, beginning, length) == 0;
}

static void walk_mappings(void (*visit)(const struct mapping *mapping)) {
    for (size_t at = 0; at < g->maps_bytes;) {
        const char *line = g->maps + at;
        const char *end = memchr(line, '\n', g->maps_bytes - at);
        if (end == NULL) {
            break;
        }
        struct mapping mapping = parse_line(line, end);
        g->mapping = &mapping;
        visit(&mapping);
        at = (size_t)(end + 1 - g->maps);
    }
}

/* ---------------------------------------------------------------- threads and their stacks */

static void add_user(uint32_t thread, uintptr_t sp, uintptr_t pointer) {
    g->users[g->user_count++] = (struct user){sp, pointer, thread};
}

static bool list_users(void) {
    g->users = work_map((stop_count() + 1) * sizeof(g->users[0]));
    if (g->users == NULL) {
        return false;
    }
    add_user(0, g->wish.sp, os_thread_pointer());
    for (unsigned i = 0; i < stop_count(); i++) {
        const struct stop_thread *thread = stop_at(i);
        enum stop_state state = stop_state(thread);
        if (state == STOP_HELD || state == STOP_OWN) {
            add_user(thread->thread, thread->sp, thread->pointer);
        } else if (state == STOP_UNANSWERED) {
            add_user(thread->thread, 0, 0);
        }
    }
    return true;
}

/* The block that ends with the data of libc at the pointer, if it is one. */
static bool find_block(uintptr_t pointer, uintptr_t end, struct range *block) {
    const uintptr_t *words = (const uintptr_t *)pointer;
    size_t page = os_facts.page_bytes;
    size_t count = min_size(PTHREAD_BYTES, end - pointer) / sizeof(words[0]);
    for (size_t i = 0; i + 1 < count; i++) {
        uintptr_t start = words[i], length = words[i + 1];
        bool is_block = start % page == 0 && length % page == 0 && start < pointer &&
                        start + length > pointer && start + length <= pointer + 2 * PTHREAD_BYTES;
        if (is_block && pointer - start < length) {
            *block = (struct range){start, start + length};
            return true;
        }
    }
    return false;
}

static bool holds_number(uintptr_t pointer, uintptr_t end, uint32_t number) {
    if (g->wish.number_offset != 0) {
        return *(const uint32_t *)(pointer + g->wish.number_offset) == number;
    }
    const uint32_t *words = (const uint32_t *)pointer;
    size_t count = min_size(PTHREAD_BYTES, end - pointer) / sizeof(words[0]);
    for (size_t i = 0; i < count; i++) {
        if (words[i] == number) {
            return true;
        }
    }
    return false;
}

/* Whose it is; a thread that did not stop is known by its number only. */
static const struct user *find_user(uintptr_t pointer, uintptr_t end) {
    for (size_t i = 0; i < g->user_count; i++) {
        const struct user *user = &g->users[i];
        bool is_it = user->pointer != 0 ? user->pointer == pointer
                                        : holds_number(pointer, end, user->thread);
        if (is_it) {
            return user;
        }
    }
    return NULL;
}

/* Has the thread ended without being joined yet?  A detached one has the pointer once more, in the place of the
 * thread that joins it. */
static bool waits_to_be_joined(uintptr_t pointer, uintptr_t end) {
    const uintptr_t *words = (const uintptr_t *)pointer;
    size_t count = min_size(PTHREAD_BYTES, end - pointer) / sizeof(words[0]);
    if (g->wish.number_offset == 0 || !holds_number(pointer, end, 0)) {
        return false;
    }
    for (size_t i = SELF_WORD + 1; i < count; i++) {
        if (words[i] == pointer) {
            return false;
        }
    }
    return true;
}

/* Is the thread with this pointer in the allocator? */
static bool is_inside(uintptr_t pointer) {
    uintptr_t offset = (uintptr_t)thread_inside_mark() - os_thread_pointer();
    return *(const volatile uint8_t *)(pointer + offset) != 0;
}

/* What is not in use of a block, or all of it. */
static void judge_block(struct range block, const struct user *user) {
    bool is_on_it = user != NULL && block.start <= user->sp && user->sp < block.end;
    if (user == NULL || g->wish.skip_threads) {
        set_apart(block.start, block.end, NULL);
    } else {
        uintptr_t from = is_on_it ? user->sp : block.start;
        set_apart(block.start, from, NULL);
        if (g->stack_count < MOST_RANGES) {
            g->stacks[g->stack_count++] = (struct range){from, block.end};
        }
    }
}

static void find_blocks_in(uintptr_t start, uintptr_t end, void *context) {
    (void)context;
    uintptr_t mapping_end = g->mapping->range.end;
    for (uintptr_t at = align_up(start, PTHREAD_ALIGNMENT); at + PTHREAD_ALIGNMENT <= end;
         at += PTHREAD_ALIGNMENT) {
        if (at % CLOCK_BYTES == 0 && mark_is_over()) {
            return;
        }
        const uintptr_t *words = (const uintptr_t *)at;
        struct range block;
        if (UNLIKELY(words[0] == at) && words[SELF_WORD] == at &&
            find_block(at, mapping_end, &block)) {
            const struct user *user = find_user(at, mapping_end);
            bool leaves_something = user == NULL && waits_to_be_joined(at, block.end);
            g->is_in_motion |= user != NULL && user->pointer == 0 && is_inside(at);
            judge_block((struct range){block.start, leaves_something ? at : block.end}, user);
            mark_object(os_thread_vector(at)); /* libc keeps it, also for threads that are gone */
        }
    }
}

static void find_blocks_present(uintptr_t start, uintptr_t end, void *context) {
    present_walk(start, end, PRESENT_WRITTEN, find_blocks_in, context);
}

static bool is_plain(const struct mapping *mapping) {
    return mapping->is_private && mapping->is_readable && mapping->is_writable;
}

/* Not in the heap: a stack there is an object, which counts as a whole. */
static void find_blocks(const struct mapping *mapping) {
    bool has_name = mapping->path_bytes != 0 && !has_path(mapping, "[anon");
    if (is_plain(mapping) && !has_name) {
        walk_rest(mapping->range, find_blocks_present, NULL);
    }
}

/* The first thread's. */
static void find_first_stack(const struct mapping *mapping) {
    if (!has_path(mapping, "[stack]")) {
        return;
    }
    struct range in_use = mapping->range;
    for (size_t i = 0; i < g->user_count; i++) {
        uintptr_t sp = g->users[i].sp;
        if (mapping->range.start <= sp && sp < mapping->range.end) {
            in_use.start = sp;
        }
    }
    judge_block(mapping->range, &(struct user){.sp = in_use.start});
}

/* ---------------------------------------------------------------- naming */

static void name_present(uintptr_t start, uintptr_t end, void *context) {
    (void)context;
    g->bytes += end - start;
    mark_root(start, end);
}

/* What was never written to holds nothing; and what is not writable now may have been. */
static void name_part(uintptr_t start, uintptr_t end, void *context) {
    bool is_of_file = g->mapping->path_bytes != 0 && g->mapping->path[0] == '/';
    bool is_known = present_is_known();
    if (is_known || g->mapping->is_writable) {
        present_walk(start, end,
                     is_of_file || !g->mapping->is_writable ? PRESENT_WRITTEN : PRESENT_ALL,
                     name_present, context);
    }
}

static void name_mapping(const struct mapping *mapping) {
    bool is_kernels = has_path(mapping, "[v") || has_path(mapping, "[uprobes");
    bool is_device = has_path(mapping, "/dev/") && !has_path(mapping, "/dev/zero");
    if (mapping->is_readable && mapping->is_private && !is_kernels && !is_device) {
        walk_rest(mapping->range, name_part, NULL);
    }
}

static void name_stacks(void) {
    for (size_t i = 0; i < g->stack_count; i++) {
        present_walk(g->stacks[i].start, g->stacks[i].end, PRESENT_WRITTEN, name_present, NULL);
    }
}

/* Registers, and stacks that are objects. */
static void name_threads(void) {
    mark_object(g->wish.alternate);
    for (size_t i = 0; i < g->user_count; i++) {
        mark_object(g->users[i].sp);
        mark_object(g->users[i].pointer);
        if (g->users[i].pointer != 0) {
            mark_object(os_thread_vector(g->users[i].pointer));
        }
    }
    for (unsigned i = 0; i < stop_count() && !g->wish.skip_threads; i++) {
        const struct stop_thread *thread = stop_at(i);
        if (stop_state(thread) == STOP_HELD) {
            name_present(thread->frame, thread->frame_end, NULL);
        }
    }
}

static void name_region(uintptr_t start, uintptr_t end, void *context) {
    const struct mapping *mapping = context;
    start = max_size(start, mapping->range.start);
    end = min_size(end, mapping->range.end);
    if (start < end) {
        name_present(start, end, NULL);
    }
}

/* As far as it is mapped and can be read. */
static void name_regions(const struct mapping *mapping) {
    if (mapping->is_readable) {
        ignore_walk_roots(name_region, (void *)(uintptr_t)mapping);
    }
}

/* The one pointer of the program that only the library keeps. */
static void name_hooks(void) {
    for (unsigned i = 0; i < arena_limit(); i++) {
        mark_object((uintptr_t)arena_hooks(i));
    }
}

static void note_ignored(uintptr_t start, uintptr_t end, void *context) {
    (void)end;
    (void)context;
    mark_ignored(start);
}

static bool prepare(char *why, size_t why_bytes) {
    g->apart = work_map(MOST_RANGES * sizeof(g->apart[0]));
    g->stacks = work_map(MOST_RANGES * sizeof(g->stacks[0]));
    if (g->apart == NULL || g->stacks == NULL || !list_users()) {
        fmt_text(why, why_bytes, "there is no memory for a check");
        return false;
    }
    if (!read_maps()) {
        fmt_text(why, why_bytes, "/proc/self/maps cannot be read");
        return false;
    }
    return true;
}

bool roots_name(const struct roots_wish *wish, struct roots_found *found, char *why,
                size_t why_bytes) {
    g = work_map(sizeof(*g));
    if (g == NULL) {
        fmt_text(why, why_bytes, "there is no memory for a check");
        return false;
    }
    g->wish = *wish;
    if (!prepare(why, why_bytes)) {
        return false;
    }
    heap_walk_notes(set_apart, NULL);
    own_walk_memory(set_apart, NULL);
    stop_walk_memory(set_apart, NULL);
    ignore_walk_memory(set_apart, NULL);
    work_walk(set_apart, NULL);
    sort_apart();
    walk_mappings(find_blocks);
    walk_mappings(find_first_stack);
    sort_apart();
    if (g->is_full) {
        fmt_text(why, why_bytes, "the address space is in too many pieces");
        return false;
    }
    found->is_in_motion = g->is_in_motion;
    if (g->is_in_motion) {
        fmt_text(why, why_bytes, "a thread that cannot be stopped is in the allocator");
        return false;
    }
    name_threads();
    name_hooks();
    walk_mappings(name_regions);
    if (!wish->skip_globals) {
        walk_mappings(name_mapping);
    } else if (!wish->skip_threads) {
        name_stacks();
    }
    ignore_walk_objects(note_ignored, NULL);
    found->bytes = g->bytes;
    return true;
}
