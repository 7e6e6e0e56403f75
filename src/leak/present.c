/* SPDX-License-Identifier: MIT
 *
 * present.c - asks the kernel's page map, a few thousand pages at a time.
 */
#include "leak/present.h"

#include "base/os.h"
#include "leak/work.h"

enum { ENTRIES = 4096 };

/* Of an entry. */
#define PAGE_PRESENT (UINT64_C(1) << 63)
#define PAGE_SWAPPED (UINT64_C(1) << 62)
#define PAGE_SHARED (UINT64_C(1) << 61) /* or of a file */

static struct {
    int file;
    uint64_t *entries;
} g = {.file = -1};

bool present_begin(void) {
    g.entries = work_map(ENTRIES * sizeof(g.entries[0]));
    g.file = os_open("/proc/thread-self/pagemap");
    return g.entries != NULL;
}

void present_end(void) {
    if (g.file >= 0) {
        os_close(g.file);
    }
    g.file = -1;
    g.entries = NULL;
}

bool present_is_known(void) {
    return g.file >= 0;
}

/* A page in swap is there; but so looks one that must not be touched, by which glibc guards stacks. */
static bool holds_something(uint64_t entry, uintptr_t page, enum present_which which) {
    if (which == PRESENT_WRITTEN && entry & PAGE_SHARED) {
        return false;
    }
    return entry & PAGE_PRESENT || (entry & PAGE_SWAPPED && os_is_readable(page));
}

/* The pages of the next entries, starting at `page`; how many entries there were. */
static size_t read_entries(uintptr_t page, uintptr_t end) {
    size_t wanted = min_size((end - page) / os_facts.page_bytes, ENTRIES);
    uint64_t offset = (uint64_t)page / os_facts.page_bytes * sizeof(g.entries[0]);
    ssize_t got = os_read_at(g.file, g.entries, wanted * sizeof(g.entries[0]), offset);
    return got > 0 ? (size_t)got / sizeof(g.entries[0]) : 0;
}

void present_walk(uintptr_t start, uintptr_t end, enum present_which which,
                  void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context) {
    size_t bytes = os_facts.page_bytes;
    if (g.file < 0) {
        visit(start, end, context);
        return;
    }
    uintptr_t run = 0; /* where what is there begins; 0: nowhere */
    uintptr_t last = align_up(end, bytes);
    for (uintptr_t page = align_down(start, bytes); page < last;) {
        size_t count = read_entries(page, last);
        for (size_t i = 0; i < max_size(count, 1); i++, page += bytes) {
            bool is_there = count == 0 || holds_something(g.entries[i], page, which);
            if (is_there && run == 0) {
                run = max_size(page, start);
            } else if (!is_there && run != 0) {
                visit(run, page, context);
                run = 0;
            }
        }
    }
    if (run != 0) {
        visit(run, end, context);
    }
}
