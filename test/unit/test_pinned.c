/* SPDX-License-Identifier: MIT
 *
 * test_pinned.c - the free space that live objects keep is told by site, and is what addresses say it is.
 *
 * The truth is counted from the addresses of all live objects, page by page, without asking the heap.
 * Seeds are given, so that a run can be repeated.
 */
#include <stdio.h>

#include "heap/counts.h"
#include "heap/heap.h"
#include "heap/track.h"
#include "prof/extract.h"
#include "prof/prof.h"
#include "unit.h"

enum { PAGE = 4096, KIB = 1024 };

/* ---------------------------------------------------------------- two sites */

enum { SITES = 2, MOST = 200000, SITE_BYTES = 64 };

static __attribute__((noinline, aligned(SITE_BYTES))) void *keep_few(size_t size) {
    void *object = tally_malloc(size);
    __asm__ volatile("" : "+r"(object));
    return object;
}

static __attribute__((noinline, aligned(SITE_BYTES))) void *keep_all(size_t size) {
    void *object = tally_malloc(size);
    __asm__ volatile("" : "+r"(object) : : "memory");
    return object;
}

typedef void *site(size_t size);
static site *const sites[SITES] = {keep_few, keep_all};

static struct {
    void *object;
    unsigned site;
    size_t usable;
} held[MOST];
static unsigned nheld;

static void hold(unsigned at, size_t size) {
    void *object = sites[at](size);
    check(object != NULL && nheld < MOST);
    held[nheld].object = object;
    held[nheld].site = at;
    held[nheld++].usable = tally_usable_size(object);
}

static void let_go(unsigned i) {
    tally_free(held[i].object);
    held[i] = held[--nheld];
}

/* Frees nine in ten of what the first site has allocated. */
static void thin_out(struct random *random) {
    for (unsigned i = nheld; i-- > 0;) {
        if (held[i].site == 0 && random_below(random, 10) != 0) {
            let_go(i);
        }
    }
}

/* ---------------------------------------------------------------- the truth */

enum { PAGES = 1 << 17 };
static struct {
    uintptr_t page;
    unsigned live;
    size_t bytes;
} pages[PAGES];

static unsigned page_of(uintptr_t page) {
    unsigned at = (unsigned)(page / PAGE * 2654435761u) % PAGES;
    while (pages[at].page != page && pages[at].page != 0) {
        at = (at + 1) % PAGES;
    }
    pages[at].page = page;
    return at;
}

static size_t bytes_on(uintptr_t object, size_t usable, uintptr_t page) {
    uintptr_t start = object > page ? object : page;
    uintptr_t end = object + usable < page + PAGE ? object + usable : page + PAGE;
    return end - start;
}

static void find_truth(double truth[SITES]) {
    memset(pages, 0, sizeof(pages));
    truth[0] = truth[1] = 0;
    for (int share = 0; share <= 1; share++) {
        for (unsigned i = 0; i < nheld; i++) {
            uintptr_t object = (uintptr_t)held[i].object;
            for (uintptr_t page = object / PAGE * PAGE; page < object + held[i].usable;
                 page += PAGE) {
                unsigned at = page_of(page);
                if (share) {
                    truth[held[i].site] +=
                        (double)(PAGE - pages[at].bytes) / (double)pages[at].live;
                } else {
                    pages[at].live++;
                    pages[at].bytes += bytes_on(object, held[i].usable, page);
                }
            }
        }
    }
}

/* ---------------------------------------------------------------- what is told */

static bool is_from(const struct extract *extract, const struct extract_row *row, site *function) {
    for (uint32_t i = 0; i < row->depth; i++) {
        if (extract_address(extract, row, i) - (uintptr_t)function < SITE_BYTES) {
            return true;
        }
    }
    return false;
}

static void ask(double told[SITES]) {
    struct extract extract;
    check_eq(extract_read(&extract, DUMP_NOW), 0);
    check_eq(extract_read_pinned(&extract), 0);
    told[0] = told[1] = 0;
    for (uint32_t i = 0; i < extract.count; i++) {
        const struct extract_row *row = extract_row(&extract, i);
        for (unsigned at = 0; at < SITES; at++) {
            told[at] += is_from(&extract, row, sites[at]) ? row->pinned : 0;
        }
    }
    extract_release(&extract);
}

static void begin(unsigned lg_sample, uint64_t seed) {
    if (sysconf(_SC_PAGESIZE) != PAGE) {
        skip("pages are not 4 KiB");
    }
    start_heap();
    track_seed(seed);
    prof_start(lg_sample);
}

static bool is_near(double a, double b, double share) {
    return a >= b * (1 - share) && a <= b * (1 + share);
}

/* ---------------------------------------------------------------- cases */

static void compare_exactly(void) {
    double truth[SITES], told[SITES];
    find_truth(truth);
    ask(told);
    for (unsigned at = 0; at < SITES; at++) {
        check(is_near(told[at], truth[at], 1e-9));
    }
}

static void run_exactly(size_t size) {
    begin(0, 1);
    struct random random = random_start(size, 1);
    unsigned count = size < KIB ? 20000 : 2000;
    for (unsigned i = 0; i < count; i++) {
        hold(i >= count / 2, size); /* first one site, then the other */
    }
    compare_exactly();
    thin_out(&random);
    compare_exactly();
    double told[SITES];
    ask(told);
    check(size % PAGE == 0 || told[0] > told[1]);
    tally_purge(); /* the pages that nothing is on any more change nothing */
    compare_exactly();
}

TEST(where_all_are_sampled_each_site_is_told_what_its_addresses_say) {
    run_exactly(200);
}

TEST(the_same_for_the_smallest_objects) {
    run_exactly(16);
}

TEST(the_same_for_objects_that_reach_over_pages) {
    run_exactly(3000);
}

TEST(objects_of_whole_pages_keep_nothing) {
    run_exactly(8192);
    double told[SITES];
    ask(told);
    check(told[0] == 0 && told[1] == 0);
}

TEST(large_objects_keep_nothing) {
    begin(0, 1);
    for (unsigned i = 0; i < 100; i++) {
        hold(0, 100000);
    }
    double told[SITES];
    ask(told);
    check(told[0] == 0);
}

/* All pages were used and each still holds something, so that none is given back. */
TEST(the_classes_with_most_free_space_are_told_to_the_byte) {
    static void *objects[3][8192];
    static const size_t sizes[3] = {512, 64, 1024};
    static const unsigned kept[3] = {8, 32, 2}; /* of which the first stays */
    start_heap();
    for (unsigned k = 0; k < 3; k++) {
        for (unsigned i = 0; i < 8192; i++) {
            objects[k][i] = tally_malloc(sizes[k]);
        }
    }
    size_t freed[3] = {0};
    for (unsigned k = 0; k < 3; k++) {
        for (unsigned i = 0; i < 8192; i++) {
            if (i % kept[k] != 0) {
                tally_free(objects[k][i]);
                freed[k] += sizes[k];
            }
        }
    }
    tally_purge();
    struct heap_totals totals = heap_totals();
    const unsigned order[3] = {2, 0, 1};
    for (unsigned i = 0; i < 3; i++) {
        check_eq(totals.worst[i].size, sizes[order[i]]);
        check(totals.worst[i].bytes >= freed[order[i]]);
        check(totals.worst[i].bytes <= freed[order[i]] + 128 * KIB); /* the rest of the last slab */
    }
    check(totals.worst[0].bytes + totals.worst[1].bytes + totals.worst[2].bytes <=
          totals.slab_free - totals.untouched);
}

enum { LG_RATE = 16, FIRST_SEED = 4001, SEEDS = 12 };

/* Sums over all seeds, of the truth and of what is told. */
static void run_sampled(const size_t *sizes, unsigned nsizes, double truth[SITES],
                        double told[SITES]) {
    truth[0] = truth[1] = told[0] = told[1] = 0;
    for (uint64_t seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) {
        begin(LG_RATE, seed);
        struct random random = random_start(seed, 2);
        for (unsigned i = 0; i < 100000 / SLOWER; i++) {
            hold(i >= 80000 / SLOWER, sizes[i % nsizes]);
        }
        thin_out(&random);
        double now[SITES], then[SITES];
        find_truth(now);
        ask(then);
        for (unsigned at = 0; at < SITES; at++) {
            truth[at] += now[at];
            told[at] += then[at];
        }
        while (nheld > 0) {
            let_go(nheld - 1);
        }
        tally_purge();
    }
}

TEST(an_estimate_from_few_samples_is_right_on_average) {
    const size_t sizes[] = {200};
    double truth[SITES], told[SITES];
    run_sampled(sizes, 1, truth, told);
    printf("truth %.0f %.0f, told %.0f %.0f\n", truth[0], truth[1], told[0], told[1]);
    check(is_near(told[0], truth[0], SLOWER > 1 ? 0.3 : 0.1));
    check(told[1] < truth[1] + truth[0] / 20);
}

/* Each size has a few samples only: they share a page of sampled objects with nobody. */
TEST(a_size_with_few_samples_is_not_blamed_for_the_pages_of_samples) {
    size_t sizes[48];
    for (unsigned i = 0; i < 48; i++) {
        sizes[i] = i < 16 ? 16 + i * 16 : 256 + (i - 15) * 32;
    }
    double truth[SITES], told[SITES];
    run_sampled(sizes, 48, truth, told);
    printf("truth %.0f %.0f, told %.0f %.0f\n", truth[0], truth[1], told[0], told[1]);
    check(is_near(told[0], truth[0], SLOWER > 1 ? 0.3 : 0.1));
    check(told[1] < truth[1] + truth[0] / 20);
}
