/* SPDX-License-Identifier: MIT
 *
 * ignore.c - objects that are no leaks, by address, and a list of regions that are roots.
 *
 * A large object, and a small one that is tracked, carries the mark itself and loses it when it is freed.  For
 * other small objects the address is kept: when such an object is freed and another gets its memory, that
 * one is ignored in its place until the program says otherwise.  Where leaks are looked for, every object is
 * tracked.
 *
 * Threads     One lock, a leaf; its holder is inside, so it is never held while threads are stopped.
 */
#include "leak/ignore.h"

#include "base/hash.h"
#include "base/lock.h"
#include "base/os.h"
#include "heap/heap.h"
#include "leak/leak.h"

struct item {
    uintptr_t start, end;
};

struct list {
    struct item *items;
    size_t count, capacity;
};

/* Addresses by their hash, no more than half full; 0: free. */
struct set {
    uintptr_t *words;
    size_t capacity; /* a power of two, or 0 */
    size_t used;     /* and those that were taken out */
};
enum { TAKEN_OUT = 1 };

static struct {
    struct lock lock;
    struct set objects;
    struct list roots;
} g = {.lock = LOCK_OF_RANK(RANK_IGNORED)};

/* ---------------------------------------------------------------- lists */

static size_t bytes_of(const struct list *list) {
    return list->capacity * sizeof(list->items[0]);
}

static bool grow(struct list *list) {
    size_t bytes = max_size(2 * bytes_of(list), 64 << 10);
    struct item *items = os_map(bytes);
    if (items == NULL) {
        return false;
    }
    if (list->items != NULL) {
        __builtin_memcpy(items, list->items, list->count * sizeof(items[0]));
        os_unmap(list->items, bytes_of(list));
    }
    list->items = items;
    list->capacity = bytes / sizeof(items[0]);
    return true;
}

static struct item *find(const struct list *list, struct item item) {
    for (size_t i = list->count; i-- > 0;) {
        if (list->items[i].start == item.start && list->items[i].end == item.end) {
            return &list->items[i];
        }
    }
    return NULL;
}

/* A fork may have cut a change short; the entries that are counted are whole. */
static void enter(void) {
    thread_set_inside(true);
    (void)lock_acquire(&g.lock);
}

static void leave(void) {
    lock_release(&g.lock);
    thread_set_inside(false);
}

static bool add(struct list *list, struct item item) {
    enter();
    bool done = list->count < list->capacity || grow(list);
    if (done) {
        list->items[list->count] = item;
        list->count++;
    }
    leave();
    return done;
}

static bool take_out(struct list *list, struct item item) {
    enter();
    struct item *found = find(list, item);
    if (found != NULL) {
        *found = list->items[list->count - 1];
        list->count--;
    }
    leave();
    return found != NULL;
}

/* ---------------------------------------------------------------- the set */

/* Where the word is, or would be put. */
static uintptr_t *find_word(const struct set *set, uintptr_t word) {
    size_t at = hash_masked(word, set->capacity - 1);
    while (set->words[at] != 0 && set->words[at] != word) {
        at = (at + 1) & (set->capacity - 1);
    }
    return &set->words[at];
}

/* What was taken out is left behind. */
static bool rehash(struct set *set) {
    struct set wider = {.capacity = max_size(2 * set->capacity, 8192)};
    wider.words = os_map(wider.capacity * sizeof(wider.words[0]));
    if (wider.words == NULL) {
        return false;
    }
    for (size_t i = 0; i < set->capacity; i++) {
        if (set->words[i] > TAKEN_OUT) {
            *find_word(&wider, set->words[i]) = set->words[i];
            wider.used++;
        }
    }
    if (set->words != NULL) {
        os_unmap(set->words, set->capacity * sizeof(set->words[0]));
    }
    *set = wider;
    return true;
}

static bool add_word(struct set *set, uintptr_t word) {
    enter();
    bool has_room = set->used < set->capacity / 2 || rehash(set);
    uintptr_t *place = has_room ? find_word(set, word) : NULL;
    bool done = place != NULL && *place == 0;
    if (done) {
        *place = word;
        set->used++;
    }
    leave();
    return done;
}

static bool take_word_out(struct set *set, uintptr_t word) {
    enter();
    uintptr_t *place = set->capacity != 0 ? find_word(set, word) : NULL;
    bool done = place != NULL && *place == word;
    if (done) {
        *place = TAKEN_OUT;
    }
    leave();
    return done;
}

/* ---------------------------------------------------------------- for the search */

void ignore_walk_objects(ignore_visit *visit, void *context) {
    for (size_t i = 0; i < g.objects.capacity; i++) {
        uintptr_t word = g.objects.words[i];
        if (word > TAKEN_OUT) {
            visit(word, word, context);
        }
    }
}

void ignore_walk_roots(ignore_visit *visit, void *context) {
    for (size_t i = 0; i < g.roots.count; i++) {
        visit(g.roots.items[i].start, g.roots.items[i].end, context);
    }
}

void ignore_walk_memory(ignore_visit *visit, void *context) {
    uintptr_t words = (uintptr_t)g.objects.words, items = (uintptr_t)g.roots.items;
    visit(words, words + g.objects.capacity * sizeof(g.objects.words[0]), context);
    visit(items, items + bytes_of(&g.roots), context);
}

/* ---------------------------------------------------------------- what the program says */

/* The live object that the pointer leads into. */
static bool find_object(const void *pointer, struct heap_object *object) {
    *object = heap_locate(pointer);
    if (object->verdict == HEAP_INTERIOR) {
        *object = heap_look((const void *)object->base);
    } else if (object->verdict == HEAP_LIVE) {
        *object = heap_look(pointer);
    }
    return object->verdict == HEAP_LIVE && object->span != NULL;
}

static bool set_ignored(const void *pointer, bool is_ignored) {
    struct heap_object object;
    if (thread_is_inside()) {
        return false;
    }
    thread_set_inside(true);
    bool is_live = find_object(pointer, &object);
    enum track_marked marked = is_live ? track_set_ignored(&object, is_ignored) : TRACK_NO_CHANGE;
    thread_set_inside(false);
    if (marked != TRACK_NO_PLACE) {
        return marked == TRACK_CHANGED;
    }
    return is_ignored ? add_word(&g.objects, object.base) : take_word_out(&g.objects, object.base);
}

bool leak_ignore(const void *pointer) {
    return set_ignored(pointer, true);
}

bool leak_unignore(const void *pointer) {
    return set_ignored(pointer, false);
}

bool leak_add_root(const void *start, size_t size) {
    struct item item = {(uintptr_t)start, (uintptr_t)start + size};
    return size != 0 && item.end > item.start && !thread_is_inside() && add(&g.roots, item);
}

bool leak_remove_root(const void *start, size_t size) {
    struct item item = {(uintptr_t)start, (uintptr_t)start + size};
    return !thread_is_inside() && take_out(&g.roots, item);
}

static __thread unsigned disabled; /* how often */

void leak_disable(void) {
    if (disabled++ == 0) {
        track_ignore_mine(true);
    }
}

void leak_enable(void) {
    if (disabled != 0 && --disabled == 0) {
        track_ignore_mine(false);
    }
}

void leak_thread_ends(void) {
    if (disabled != 0) {
        disabled = 0;
        track_ignore_mine(false);
    }
}

STARTUP void leak_forked(void) {
    track_ignore_forked(disabled != 0);
}
