/* SPDX-License-Identifier: MIT
 *
 * test_meta.c - our own memory: zeroed, aligned, never handed out twice, counted.
 */
#include "heap/meta.h"

#include "base/os.h"
#include "unit.h"

TEST_SETUP(os_init);

enum { PIECES = 2000, THREADS = 4 };

struct piece {
    unsigned char *start;
    size_t bytes;
    unsigned char mark;
};

static bool filled_with(const struct piece *piece, unsigned char value) {
    for (size_t i = 0; i < piece->bytes; i++) {
        if (piece->start[i] != value) {
            return false;
        }
    }
    return true;
}

/* Takes pieces of all sizes and fills each with its own mark; an overlap shows as a wrong mark. */
static void take_pieces(struct piece *pieces, unsigned count, struct random *random) {
    for (unsigned i = 0; i < count; i++) {
        size_t alignment = (size_t)1 << random_below(random, 16);
        size_t bytes = random_below(random, 50) == 0 ? 100000 : random_below(random, 700) + 1;
        pieces[i] =
            (struct piece){meta_alloc(bytes, alignment), bytes, (unsigned char)(i % 255 + 1)};
        check(pieces[i].start != NULL);
        check_eq((uintptr_t)pieces[i].start % alignment, 0);
        check(filled_with(&pieces[i], 0));
        memset(pieces[i].start, pieces[i].mark, bytes);
    }
}

TEST(pieces_are_zeroed_aligned_disjoint_and_counted) {
    static struct piece pieces[PIECES];
    struct random random = random_start(11, 0);
    size_t before = meta_bytes(), sum = 0;
    take_pieces(pieces, PIECES, &random);
    for (unsigned i = 0; i < PIECES; i++) {
        check(filled_with(&pieces[i], pieces[i].mark));
        sum += pieces[i].bytes;
    }
    check_eq(meta_bytes() - before, sum);
}

TEST(request_larger_than_any_step_is_served) {
    size_t bytes = 5 << 20;
    char *small = meta_alloc(16, 16);
    char *large = meta_alloc(bytes, 4096);
    check(small != NULL && large != NULL);
    memset(large, 1, bytes);
    check_eq(small[0], 0);
    check(meta_alloc(16, 16) != NULL);
}

TEST(refused_request_leaves_everything_as_it_was) {
    char *before = meta_alloc(64, 64);
    size_t bytes = meta_bytes();
    check(meta_alloc((size_t)1 << 60, 64) == NULL);
    check_eq(meta_bytes(), bytes);
    check_eq(meta_alloc(64, 64), before + 64);
}

TEST(limited_address_space_is_taken_in_small_steps) {
    os_facts.address_space_limited = true;
    char *first = meta_alloc(1000, 8), *last = first;
    for (unsigned i = 0; i < 1000; i++) {
        last = meta_alloc(1000, 8);
        check(last != NULL);
        memset(last, 1, 1000);
    }
}

static struct piece shared_pieces[THREADS][PIECES];
static _Atomic unsigned next_thread;

static void *take_in_thread(void *unused) {
    (void)unused;
    unsigned me = next_thread++;
    struct random random = random_start(12, me);
    take_pieces(shared_pieces[me], PIECES, &random);
    return NULL;
}

TEST(threads_get_disjoint_pieces) {
    run_threads(THREADS, take_in_thread, NULL);
    for (unsigned t = 0; t < THREADS; t++) {
        for (unsigned i = 0; i < PIECES; i++) {
            check(filled_with(&shared_pieces[t][i], shared_pieces[t][i].mark));
        }
    }
}
