/* SPDX-License-Identifier: MIT
 *
 * test_mark.c - which objects of a small graph can be come by.  A graph is a list of pointers between letters;
 * what is said of each object is a letter, too.  test_leak.c has the same through whole checks.
 */
#include "leak/mark.h"

#include <jemalloc/jemalloc.h>

#include "unit.h"

/* A pointer that points no farther inside than 64 counts as one to the start. */
enum { OBJECTS = 4, WORDS = 16, BEYOND = 72 };

/* "ab" leads from a to the beginning of b, "aB" to its inside; r is the root, and i is what is ignored. */
struct graph {
    const char *edges[8];
    const char *states; /* of a, b, c, d, as in `letters` */
};

static const char letters[] = {
    [MARK_NONE] = 'N',     [MARK_INSIDE] = 'N', [MARK_REACHABLE] = 'R', [MARK_IGNORED] = 'I',
    [MARK_POSSIBLE] = 'P', [MARK_SEEN] = 'N',   [MARK_DEFINITE] = 'D',  [MARK_INDIRECT] = 'i',
};

static uintptr_t *objects[OBJECTS];
static uintptr_t roots[WORDS];
static char found[OBJECTS + 1];

static void note(const struct mark_live *live, void *unused) {
    (void)unused;
    for (int i = 0; i < OBJECTS; i++) {
        if ((uintptr_t)objects[i] == live->at) {
            check_eq(found[i], '?'); /* it comes once */
            found[i] = letters[live->state];
        }
    }
}

static void make_graph(const struct graph *graph) {
    unsigned used[OBJECTS] = {0}, root = 0;
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = tally_calloc(WORDS, sizeof(uintptr_t));
        check(objects[i] != NULL);
    }
    for (const char *const *edge = graph->edges; *edge != NULL; edge++) {
        char to = (*edge)[1];
        bool is_inside = to < 'a';
        uintptr_t address =
            (uintptr_t)objects[to - (is_inside ? 'A' : 'a')] + (is_inside ? BEYOND : 0);
        if ((*edge)[0] == 'r') {
            roots[root++] = address;
        } else if ((*edge)[0] == 'i') {
            mark_ignored(address);
        } else {
            int from = (*edge)[0] - 'a';
            objects[from][used[from]++] = address;
        }
    }
}

static void check_graph(const struct graph *graph, bool all_definite) {
    struct mark_options options = {.step = sizeof(uintptr_t), .deadline_ns = UINT64_MAX};
    start_heap();
    tally_free(tally_malloc(1)); /* the heap is there */
    check(mark_begin(&options));
    make_graph(graph);
    mark_root((uintptr_t)roots, (uintptr_t)(roots + WORDS));
    mark_follow();
    mark_sort_lost(all_definite);
    memset(found, '?', OBJECTS);
    mark_walk(note, NULL);
    check_str(found, graph->states);
    check(!mark_is_late());
}

#define GRAPH(name, states, ...)                                                                   \
    TEST(name) {                                                                                   \
        check_graph(&(struct graph){{__VA_ARGS__, NULL}, states}, false);                          \
    }                                                                                              \
    struct test_case

GRAPH(what_roots_lead_to_is_reachable_at_any_distance, "RRRR", "ra", "ab", "bc", "cd");
GRAPH(what_nothing_leads_to_is_definite, "RDDD", "ra");
GRAPH(what_the_lost_lead_to_is_indirect, "RDii", "ra", "bc", "cd");
GRAPH(of_a_lost_ring_one_is_definite, "RDii", "ra", "bc", "cd", "db");
GRAPH(a_pointer_to_the_inside_is_possible_with_what_follows, "PPDD", "rA", "ab");
GRAPH(a_pointer_to_the_start_wins_over_one_to_the_inside, "RRDD", "rA", "ab", "ra");
GRAPH(a_reachable_object_makes_what_it_leads_to_reachable, "RRDD", "ra", "rB", "ab");
GRAPH(an_ignored_object_is_no_leak_nor_is_what_it_leads_to, "IIDD", "ia", "ab");
GRAPH(what_roots_lead_to_is_not_ignored, "RIDD", "ra", "ia", "ib");

TEST(all_that_is_lost_may_be_called_definite) {
    check_graph(&(struct graph){{"ra", "bc", "cd", NULL}, "RDDD"}, true);
}

TEST(a_search_whose_time_is_over_says_so) {
    struct mark_options options = {.step = sizeof(uintptr_t), .deadline_ns = 1};
    start_heap();
    tally_free(tally_malloc(1));
    check(mark_begin(&options));
    check(mark_is_over());
    check(mark_is_late());
}
