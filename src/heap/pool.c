/* SPDX-License-Identifier: MIT
 *
 * pool.c - empty magazines that nobody uses, and their pages, which can go back to the kernel.
 *
 *      empty    [. . . . .] -> [. . . . .] -> ...
 *      bare     [page page page - -] -> ...        addresses of pages without memory, in magazines
 *
 * When many threads sleep, their empty magazines are most of what is left of them: two of 1 KiB for
 * each class that a thread has used.  A page all of whose magazines are empty is given back, and its
 * address noted in a magazine that stays.  Bare pages are used again when no other is empty, before
 * new ones are made.
 *
 * Threads     One lock.
 * Invariant   Each magazine is in use, or empty, or in `bare`, or lies in one bare page.  Each in `bare`
 *             has a note.
 * Fork        A pool whose holder vanished is dropped.
 */
#include "heap/pool.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/meta.h"
#include "heap/verify.h"

enum { WORTH_WHILE = 64 }; /* magazines that are left as they are */

static struct {
    struct lock lock;
    struct magazine *empty;
    size_t empty_count;
    struct magazine *bare;
    unsigned noted; /* in the first of `bare`; the others are full */
    size_t made;    /* magazines */
} g;

void pool_init(void) {
    g.lock = (struct lock)LOCK_OF_RANK(RANK_POOL);
}

static void enter(void) {
    if (UNLIKELY(lock_acquire(&g.lock) == LOCK_ABANDONED)) {
        g.empty = g.bare = NULL;
        g.empty_count = g.noted = 0;
    }
}

static void push(struct magazine *empty) {
    assert(lock_is_mine(&g.lock) && (uintptr_t)empty % MAGAZINE_BYTES == 0);
    empty->next = g.empty;
    g.empty = empty;
    g.empty_count++;
}

/* ---------------------------------------------------------------- bare pages */

static size_t magazines_per_page(void) {
    return os_facts.page_bytes / MAGAZINE_BYTES;
}

static bool has_room_for_note(void) {
    return g.bare != NULL && g.noted < MAGAZINE_MOST;
}

/* Notes a bare page, in a magazine of `stay` if need be. */
static void note(void *page, struct magazine **stay) {
    assert(lock_is_mine(&g.lock));
    if (!has_room_for_note()) {
        struct magazine *notes = *stay;
        *stay = notes->next;
        notes->next = g.bare;
        g.bare = notes;
        g.noted = 0;
    }
    g.bare->slots[g.noted++] = page;
}

/* The magazines of the page that was noted last are empty ones again. */
static void use_bare_page(void) {
    assert(lock_is_mine(&g.lock) && g.bare != NULL && g.noted >= 1);
    struct magazine *notes = g.bare;
    struct magazine *page = notes->slots[--g.noted];
    if (g.noted == 0) {
        g.bare = notes->next;
        g.noted = g.bare != NULL ? MAGAZINE_MOST : 0;
        push(notes);
    }
    for (size_t i = 0; i < magazines_per_page(); i++) {
        push(page + i);
    }
}

struct magazine *pool_take(void) {
    enter();
    if (g.empty == NULL && g.bare != NULL) {
        use_bare_page();
    }
    struct magazine *magazine = g.empty;
    if (LIKELY(magazine != NULL)) {
        g.empty = magazine->next;
        g.empty_count--;
    } else {
        magazine = meta_alloc(sizeof(struct magazine), MAGAZINE_BYTES);
        g.made += magazine != NULL;
    }
    lock_release(&g.lock);
    return magazine;
}

void pool_put(struct magazine *empty) {
    assert(empty != NULL);
    enter();
    push(empty);
    lock_release(&g.lock);
}

/* ---------------------------------------------------------------- giving back */

static struct magazine *merge(struct magazine *a, struct magazine *b) {
    struct magazine *first = NULL, **end = &first;
    while (a != NULL && b != NULL) {
        struct magazine **lower = a < b ? &a : &b;
        *end = *lower;
        *lower = (*lower)->next;
        end = &(*end)->next;
    }
    *end = a != NULL ? a : b;
    return first;
}

/* By address: lists[i] has none or 2^i. */
static struct magazine *sort(struct magazine *list) {
    enum { LG_MOST = 40 };
    struct magazine *lists[LG_MOST] = {NULL}, *sorted = NULL;
    while (list != NULL) {
        struct magazine *one = list;
        list = list->next;
        one->next = NULL;
        unsigned i = 0;
        for (; lists[i] != NULL; i++) {
            one = merge(lists[i], one);
            lists[i] = NULL;
        }
        lists[i] = one;
    }
    for (unsigned i = 0; i < LG_MOST; i++) {
        sorted = merge(lists[i], sorted);
    }
    return sorted;
}

/* Is this the first magazine of a page, and are all the others next in the list? */
static bool begins_page(const struct magazine *first) {
    if ((uintptr_t)first % os_facts.page_bytes != 0) {
        return false;
    }
    size_t count = 1;
    for (const struct magazine *m = first; m->next == m + 1 && count < magazines_per_page();
         m = m->next) {
        count++;
    }
    return count == magazines_per_page();
}

static struct magazine *behind_page(struct magazine *first) {
    for (size_t i = 1; i < magazines_per_page(); i++) {
        first = first->next;
    }
    return first->next;
}

/* Parts a sorted list into whole pages, linked by their first magazines, and the rest. */
static struct magazine *part(struct magazine *list, struct magazine **rest) {
    struct magazine *pages = NULL;
    *rest = NULL;
    while (list != NULL) {
        bool is_page = begins_page(list);
        struct magazine *next = is_page ? behind_page(list) : list->next;
        struct magazine **to = is_page ? &pages : rest;
        list->next = *to;
        *to = list;
        list = next;
    }
    return pages;
}

/* A page that the kernel does not take is as good as before; so is one that is needed for notes. */
static void purge_pages(struct magazine *pages, struct magazine *stay) {
    assert(lock_is_mine(&g.lock));
    for (struct magazine *page = pages, *next; page != NULL; page = next) {
        next = page->next;
        if ((stay != NULL || has_room_for_note()) && os_purge(page, os_facts.page_bytes) == 0) {
            note(page, &stay);
            continue;
        }
        for (size_t i = 0; i < magazines_per_page(); i++) {
            page[i].next = stay;
            stay = &page[i];
        }
    }
    for (struct magazine *next; stay != NULL; stay = next) {
        next = stay->next;
        push(stay);
    }
}

void pool_purge(void) {
    enter();
    if (g.empty_count > WORTH_WHILE) {
        struct magazine *stay, *pages = part(sort(g.empty), &stay);
        g.empty = NULL;
        g.empty_count = 0;
        purge_pages(pages, stay);
    }
    lock_release(&g.lock);
}

/* ---------------------------------------------------------------- verifying */

static void verify_notes(const struct magazine *notes, unsigned count, struct verify *walk) {
    ensure(count >= 1 && count <= MAGAZINE_MOST);
    verify_magazine(walk, notes);
    for (unsigned i = 0; i < count; i++) {
        const struct magazine *page = notes->slots[i];
        ensure((uintptr_t)page % os_facts.page_bytes == 0);
        for (size_t m = 0; m < magazines_per_page(); m++) {
            verify_magazine(walk, page + m);
        }
    }
}

void pool_verify(struct verify *walk) {
    enter();
    size_t count = 0;
    for (const struct magazine *empty = g.empty; empty != NULL; empty = empty->next) {
        verify_magazine(walk, empty);
        count++;
    }
    ensure(count == g.empty_count);
    unsigned noted = g.noted;
    for (const struct magazine *notes = g.bare; notes != NULL; notes = notes->next) {
        verify_notes(notes, noted, walk);
        noted = MAGAZINE_MOST;
    }
    size_t met = verify_magazine_count(walk);
    ensure(met == g.made || (met < g.made && lock_is_in_child()));
    lock_release(&g.lock);
}
