/* SPDX-License-Identifier: MIT
 *
 * list.h - objects chained through their first word, so that a test or a bench needs no array of pointers.
 * Memory that cannot be had ends the program.
 */
#ifndef TALLY_TEST_LIST_H
#define TALLY_TEST_LIST_H

#include <stdlib.h>

struct link {
    struct link *next;
};

static inline struct link *build_list(size_t count, size_t size) {
    struct link *list = NULL;
    for (size_t i = 0; i < count; i++) {
        struct link *made = malloc(size);
        if (made == NULL) {
            abort();
        }
        made->next = list;
        list = made;
    }
    return list;
}

/* Frees every object of the list but each `keep_each`-th; 0 keeps none.  Returns the kept ones. */
static inline struct link *thin_list(struct link *list, size_t keep_each) {
    struct link *kept = NULL;
    for (size_t i = 1; list != NULL; i++) {
        struct link *next = list->next;
        if (keep_each != 0 && i % keep_each == 0) {
            list->next = kept;
            kept = list;
        } else {
            free(list);
        }
        list = next;
    }
    return kept;
}

#endif
