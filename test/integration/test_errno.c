/* SPDX-License-Identifier: MIT
 *
 * test_errno.c - return values and errno: the 24 rows that a malloc replacement has to get
 * right, one test each, in the order of the table. "Kept" means that errno has the value it had
 * before the call, which is stricter than the standard asks for successful calls and what POSIX
 * 2024 asks of free.
 *
 * Sizes and alignments are volatile, because the compiler knows that some of them cannot be
 * served and would warn about, or answer, the call itself. Functions that libc does not have are
 * looked up by name, so that this file also compiles and runs where the library is missing, and
 * then fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

/* A value that no system call leaves behind. */
enum { KEPT = 4242 };

static const size_t KIB = 1024;
static const size_t MIB = 1024 * 1024;
static const size_t TOO_LARGE = (size_t)PTRDIFF_MAX + 1;

typedef void free_sized_fn(void *p, size_t size);
typedef void free_aligned_sized_fn(void *p, size_t alignment, size_t size);

static size_t opaque(size_t value) {
    volatile size_t hidden = value;
    return hidden;
}

static void *look_up(const char *name) {
    void *function = dlsym(RTLD_DEFAULT, name);
    if (function == NULL) {
        test_say("    not defined: ", name, "\n", NULL);
    }
    check(function != NULL);
    return function;
}

static void call_free_sized(void *p, size_t size) {
    free_sized_fn *function = (free_sized_fn *)look_up("free_sized");
    function(p, size);
}

static void call_free_aligned_sized(void *p, size_t alignment, size_t size) {
    free_aligned_sized_fn *function = (free_aligned_sized_fn *)look_up("free_aligned_sized");
    function(p, alignment, size);
}

static void check_refused(void *p, int expected_errno) {
    int seen = errno;
    check_eq(p, NULL);
    check_eq(seen, expected_errno);
    errno = KEPT;
}

static void check_served(void *p) {
    int seen = errno;
    check(p != NULL);
    check_eq(seen, KEPT);
}

static bool aligned_to(const void *p, size_t alignment) {
    return ((uintptr_t)p & (alignment - 1)) == 0;
}

static void fill(void *p, size_t size) {
    memset(p, 0x5a, size);
}

static void check_filled(const void *p, size_t size) {
    for (size_t i = 0; i < size; i++) {
        check_eq(((const unsigned char *)p)[i], 0x5a);
    }
}

TEST(row_01_malloc_of_almost_everything_gives_enomem) {
    errno = KEPT;
    check_refused(malloc(opaque(SIZE_MAX - 100)), ENOMEM);
}

TEST(row_02_malloc_of_two_to_the_63_gives_enomem) {
    errno = KEPT;
    check_refused(malloc(opaque((size_t)1 << 63)), ENOMEM);
}

/* Every function that takes a size, for one impossible size. */
static void check_all_refuse(size_t size) {
    void *untouched = &untouched;
    void *old = malloc(100);
    fill(old, 100);
    errno = KEPT;
    check_refused(malloc(size), ENOMEM);
    check_refused(calloc(1, size), ENOMEM);
    check_refused(calloc(size, 1), ENOMEM);
    check_refused(realloc(NULL, size), ENOMEM);
    check_refused(realloc(test_launder(old), size), ENOMEM);
    check_refused(reallocarray(test_launder(old), 1, size), ENOMEM);
    check_refused(memalign(64, size), ENOMEM);
    check_refused(aligned_alloc(64, size), ENOMEM);
    check_refused(aligned_alloc(MIB, size), ENOMEM);
    check_refused(valloc(size), ENOMEM);
    check_refused(pvalloc(size), ENOMEM);
    check_eq(posix_memalign(&untouched, 64, size), ENOMEM);
    check_eq(untouched, &untouched);
    check_filled(old, 100);
    free(old);
}

TEST(row_03_any_request_above_ptrdiff_max_gives_enomem) {
    for (size_t below = 0; below < 70000; below += below < 100 ? 1 : 997) {
        check_all_refuse(opaque(SIZE_MAX - below));
    }
    check_all_refuse(opaque(TOO_LARGE));
    check_all_refuse(opaque(TOO_LARGE + 1));
    check_all_refuse(opaque(TOO_LARGE + 4096));
    check_all_refuse(opaque(TOO_LARGE | TOO_LARGE >> 1));
}

TEST(row_04_calloc_that_overflows_gives_enomem) {
    size_t half = (size_t)1 << 32;
    errno = KEPT;
    check_refused(calloc(opaque(half), opaque(half)), ENOMEM);
    check_refused(calloc(opaque(SIZE_MAX), opaque(2)), ENOMEM);
    check_refused(calloc(opaque(2), opaque(SIZE_MAX)), ENOMEM);
    check_refused(calloc(opaque(SIZE_MAX), opaque(SIZE_MAX)), ENOMEM);
    check_refused(calloc(opaque(SIZE_MAX / 16 + 2), opaque(16)), ENOMEM);
    check_refused(calloc(opaque(half + 1), opaque(half)), ENOMEM);
}

TEST(row_05_reallocarray_that_overflows_leaves_the_block_alone) {
    char *p = malloc(200);
    fill(p, 200);
    errno = KEPT;
    check_refused(reallocarray(test_launder(p), opaque(SIZE_MAX / 16 + 2), opaque(16)), ENOMEM);
    check_refused(reallocarray(test_launder(p), opaque((size_t)1 << 32), opaque((size_t)1 << 32)),
                  ENOMEM);
    check_refused(reallocarray(NULL, opaque(SIZE_MAX), opaque(3)), ENOMEM);
    check_filled(p, 200);
    free(p);
}

TEST(row_06_realloc_that_cannot_be_served_leaves_the_block_alone) {
    size_t sizes[] = {1, 100, 5000, 40000, 3 * MIB};
    size_t impossible[] = {PTRDIFF_MAX, PTRDIFF_MAX - 4095, (size_t)1 << 62, (size_t)1 << 47};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *p = malloc(sizes[i]);
        fill(p, sizes[i]);
        for (size_t j = 0; j < sizeof impossible / sizeof *impossible; j++) {
            errno = KEPT;
            check_refused(realloc(test_launder(p), opaque(impossible[j])), ENOMEM);
        }
        check_filled(p, sizes[i]);
        free(p);
    }
}

TEST(row_07_realloc_to_zero_frees_and_returns_null) {
    size_t sizes[] = {1, 100, 10000, 40000, 3 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *p = malloc(sizes[i]);
        errno = KEPT;
        check_eq(realloc(p, opaque(0)), NULL);
        check_eq(errno, KEPT);
    }
    /* If the blocks were not freed, this would leave 640 MiB. */
    size_t before = test_anonymous_bytes();
    for (int i = 0; i < 64 * 1024; i++) {
        void *p = malloc(10 * KIB);
        fill(p, 10 * KIB);
        check_eq(realloc(p, opaque(0)), NULL);
    }
    check(test_anonymous_bytes() < before + 64 * MIB);
}

TEST(row_08_realloc_of_null_is_malloc) {
    errno = KEPT;
    char *p = realloc(NULL, 100);
    check_served(p);
    check(malloc_usable_size(p) >= 100);
    fill(p, 100);
    free(p);
    void *zero = realloc(NULL, opaque(0));
    check_served(zero);
    free(zero);
    check_refused(realloc(NULL, opaque(PTRDIFF_MAX)), ENOMEM);
}

TEST(row_09_zero_bytes_are_a_unique_block) {
    static void *blocks[3000];
    errno = KEPT;
    for (size_t i = 0; i < 1000; i++) {
        blocks[3 * i] = malloc(opaque(0));
        blocks[3 * i + 1] = calloc(opaque(0), 8);
        blocks[3 * i + 2] = calloc(8, opaque(0));
    }
    check_eq(errno, KEPT);
    for (size_t i = 0; i < 3000; i++) {
        check(blocks[i] != NULL);
        for (size_t j = 0; j < i; j++) {
            check(blocks[i] != blocks[j]);
        }
    }
    for (size_t i = 0; i < 3000; i++) {
        free(blocks[i]);
    }
    check_eq(errno, KEPT);
}

TEST(row_10_posix_memalign_refuses_a_wrong_alignment) {
    size_t wrong[] = {0, 1, 2, 4, 7, 9, 12, 24, 48, 4095, 4097, 3 * MIB, SIZE_MAX, TOO_LARGE + 8};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        void *untouched = &untouched;
        errno = KEPT;
        check_eq(posix_memalign(&untouched, opaque(wrong[i]), 100), EINVAL);
        check_eq(untouched, &untouched);
        check_eq(errno, KEPT);
    }
}

TEST(row_11_posix_memalign_without_memory_leaves_pointer_and_errno_alone) {
    size_t impossible[] = {PTRDIFF_MAX, SIZE_MAX, SIZE_MAX - 4096, (size_t)1 << 47};
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        void *untouched = &untouched;
        errno = KEPT;
        check_eq(posix_memalign(&untouched, 4096, opaque(impossible[i])), ENOMEM);
        check_eq(untouched, &untouched);
        check_eq(errno, KEPT);
    }
}

TEST(row_12_alignments_are_real_up_to_1_gib_and_refused_beyond_reason) {
    for (size_t alignment = 8; alignment <= 1024 * MIB; alignment *= 2) {
        void *p = NULL;
        errno = KEPT;
        check_eq(posix_memalign(&p, alignment, 100), 0);
        check_served(p);
        check(aligned_to(p, alignment));
        fill(p, 100);
        void *q = aligned_alloc(alignment, 100);
        check_served(q);
        check(aligned_to(q, alignment));
        fill(q, 100);
        free(p);
        free(q);
    }
    void *untouched = &untouched;
    size_t absurd = (size_t)1 << 46;
    errno = KEPT;
    check_refused(aligned_alloc(opaque(absurd), 100), ENOMEM);
    check_refused(memalign(opaque(absurd), 100), ENOMEM);
    check_eq(posix_memalign(&untouched, opaque(absurd), 100), ENOMEM);
    check_eq(untouched, &untouched);
}

TEST(row_13_aligned_alloc_refuses_what_is_no_power_of_two) {
    size_t wrong[] = {0, 3, 5, 24, 100, 4095, SIZE_MAX, TOO_LARGE + 1};
    errno = KEPT;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        check_refused(aligned_alloc(opaque(wrong[i]), 64), EINVAL);
    }
    /* The size need not be a multiple of the alignment. */
    void *p = aligned_alloc(opaque(4096), opaque(17));
    check_served(p);
    check(aligned_to(p, 4096));
    free(p);
    p = aligned_alloc(opaque(1), opaque(17));
    check_served(p);
    free(p);
}

TEST(row_14_memalign_rounds_an_odd_alignment_up) {
    static const struct {
        size_t asked, given;
    } rows[] = {{0, 16},  {1, 16},    {3, 16},      {24, 32},
                {33, 64}, {100, 128}, {3000, 4096}, {5000, 8192}};
    errno = KEPT;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *blocks[8];
        for (size_t j = 0; j < 8; j++) {
            blocks[j] = memalign(opaque(rows[i].asked), 40);
            check_served(blocks[j]);
            check(aligned_to(blocks[j], rows[i].given));
        }
        for (size_t j = 0; j < 8; j++) {
            free(blocks[j]);
        }
    }
    check_refused(memalign(opaque(TOO_LARGE + 1), 40), EINVAL);
    check_refused(memalign(opaque(SIZE_MAX), 40), EINVAL);
}

TEST(row_15_pvalloc_gives_whole_pages_and_does_not_wrap) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    errno = KEPT;
    void *p = pvalloc(opaque(0));
    check_served(p);
    check(aligned_to(p, page));
    check(malloc_usable_size(p) >= page);
    free(p);
    p = pvalloc(page + 1);
    check_served(p);
    check(aligned_to(p, page));
    check(malloc_usable_size(p) >= 2 * page);
    free(p);
    p = valloc(opaque(1));
    check_served(p);
    check(aligned_to(p, page));
    free(p);
    check_refused(pvalloc(opaque(SIZE_MAX)), ENOMEM);
    check_refused(pvalloc(opaque(SIZE_MAX - page)), ENOMEM);
    check_refused(pvalloc(opaque(SIZE_MAX - page + 2)), ENOMEM);
}

static void free_all_sizes(void) {
    for (size_t size = 1; size <= 64 * MIB; size += size / 3 + 1) {
        void *p = malloc(size);
        void *q = aligned_alloc(4096, size);
        check(p != NULL && q != NULL);
        errno = KEPT;
        free(p);
        free(q);
        check_eq(errno, KEPT);
    }
}

static void *free_everything(void *blocks) {
    for (void **block = blocks; *block != NULL; block++) {
        errno = KEPT;
        free(*block);
        check_eq(errno, KEPT);
    }
    return NULL;
}

TEST(row_16_free_keeps_errno_for_every_size) {
    free_all_sizes();
    free_all_sizes();
}

TEST(row_16_free_keeps_errno_in_bulk_and_in_another_thread) {
    static void *blocks[20001];
    size_t sizes[] = {16, 100, 1000, 5000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t j = 0; j < 20000; j++) {
            blocks[j] = malloc(sizes[i]);
        }
        if (i % 2 == 0) {
            free_everything(blocks);
        } else {
            pthread_t thread;
            check_eq(pthread_create(&thread, NULL, free_everything, blocks), 0);
            check_eq(pthread_join(thread, NULL), 0);
        }
    }
}

TEST(row_16_free_keeps_errno_when_the_kernel_refuses_to_take_pages_back) {
    /* Pages locked into memory make the kernel refuse MADV_DONTNEED and MADV_FREE with EINVAL. */
    size_t sizes[] = {16 * KIB, 256 * KIB, 3 * MIB, 70 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *blocks[8];
        for (size_t j = 0; j < 8; j++) {
            blocks[j] = malloc(sizes[i]);
            check(blocks[j] != NULL);
            if (mlock(blocks[j], 4 * KIB) != 0) {
                skip("this process may not lock memory");
            }
        }
        for (size_t j = 0; j < 8; j++) {
            errno = KEPT;
            free(blocks[j]);
            check_eq(errno, KEPT);
        }
        malloc_trim(0);
    }
}

TEST(row_17_freeing_null_does_nothing) {
    errno = KEPT;
    free(NULL);
    call_free_sized(NULL, 100);
    call_free_sized(NULL, 0);
    call_free_aligned_sized(NULL, 64, 100);
    check_eq(errno, KEPT);
}

TEST(row_18_null_has_no_usable_bytes) {
    errno = KEPT;
    check_eq(malloc_usable_size(NULL), 0);
    check_eq(errno, KEPT);
}

TEST(row_19_free_sized_takes_the_size_of_the_last_realloc) {
    size_t sizes[] = {1, 8, 16, 17, 100, 1000, 1024, 1025, 5000, 32 * KIB, 40000, MIB, 3 * MIB};
    size_t count = sizeof sizes / sizeof *sizes;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            void *p = realloc(malloc(sizes[i]), sizes[j]);
            errno = KEPT;
            call_free_sized(p, sizes[j]);
            check_eq(errno, KEPT);
        }
    }
    call_free_sized(malloc(opaque(0)), 0);
}

TEST(row_20_free_aligned_sized_takes_a_size_below_the_alignment) {
    for (size_t alignment = 8; alignment <= 16 * MIB; alignment *= 2) {
        for (size_t size = 1; size <= 2 * alignment; size *= 2) {
            void *p = aligned_alloc(alignment, size);
            check(p != NULL);
            errno = KEPT;
            call_free_aligned_sized(p, alignment, size);
            check_eq(errno, KEPT);
        }
    }
}

TEST(row_21_success_keeps_errno) {
    for (size_t size = 1; size <= 64 * MIB; size += size / 2 + 1) {
        void *blocks[10];
        errno = KEPT;
        blocks[0] = malloc(size);
        blocks[1] = calloc(1, size);
        blocks[2] = realloc(malloc(size / 2 + 1), size);
        blocks[3] = realloc(malloc(size), size / 2 + 1);
        blocks[4] = reallocarray(NULL, 1, size);
        blocks[5] = memalign(256, size);
        blocks[6] = aligned_alloc(64, size);
        blocks[7] = valloc(size);
        blocks[8] = pvalloc(size);
        check_eq(posix_memalign(&blocks[9], 32, size), 0);
        for (size_t i = 0; i < 10; i++) {
            check_served(blocks[i]);
            check(malloc_usable_size(blocks[i]) > 0);
            free(blocks[i]);
        }
        check_eq(errno, KEPT);
    }
}

TEST(row_22_every_result_is_aligned_to_16) {
    for (size_t size = 0; size <= 70000; size += size < 5000 ? 1 : 37) {
        void *blocks[3] = {malloc(opaque(size)), calloc(1, opaque(size)), NULL};
        blocks[2] = realloc(malloc(1), size + 1);
        for (size_t i = 0; i < 3; i++) {
            check(blocks[i] != NULL);
            check(aligned_to(blocks[i], 16));
            free(blocks[i]);
        }
    }
}

TEST(row_23_mallopt_knows_its_parameters) {
    static const struct {
        int parameter, value;
    } known[] = {
        {M_MXFAST, 64},      {M_TRIM_THRESHOLD, 131072}, {M_TOP_PAD, 0}, {M_MMAP_THRESHOLD, 131072},
        {M_MMAP_MAX, 65536}, {M_CHECK_ACTION, 3},        {M_PERTURB, 0}, {M_ARENA_TEST, 8},
        {M_ARENA_MAX, 8}};
    errno = KEPT;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        check_eq(mallopt(known[i].parameter, known[i].value), 1);
    }
    check_eq(mallopt(12345, 1), 0);
    check_eq(mallopt(-12345, 1), 0);
    check_eq(errno, KEPT);
}

TEST(row_24_malloc_trim_tells_whether_memory_went_back) {
    enum { COUNT = 64 * 1024 };
    static void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = malloc(1000);
        fill(blocks[i], 1000);
    }
    size_t full = test_anonymous_bytes();
    check(full > 60 * MIB);
    for (size_t i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    size_t freed = test_anonymous_bytes();
    errno = KEPT;
    int first = malloc_trim(0);
    check_eq(errno, KEPT);
    size_t trimmed = test_anonymous_bytes();
    check(trimmed < 16 * MIB);
    check_eq(first, trimmed < freed);
    int second = malloc_trim(0);
    check_eq(errno, KEPT);
    check_eq(second, 0);
}
