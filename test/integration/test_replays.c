/* SPDX-License-Identifier: MIT
 *
 * test_replays.c - bugs that other allocators had, replayed: zeroing, sizes above 2 GiB, errno when
 * the kernel refuses, memory that libc frees, growth by threads that only free.
 *
 * Those about races are in test_replay_races.c, those about the loader and exceptions in
 * test_replay_storm.cc, those that need a program compiled in a special way in test_replay_programs.sh.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <iconv.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <locale.h>
#include <malloc.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <tally/tally.h>

#include "random.h"
#include "watch.h"

TEST_SETUP(require_tally);

/* ---------------------------------------------------------------- zeroing */

enum { ZERO_BLOCKS = 400, ZERO_ROUNDS = 12, ZERO_WHOLE_ROUNDS = 3000 };

static void check_zero(const unsigned char *p, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (p[i] != 0) {
            check_eq(p[i], 0);
        }
    }
}

static size_t zero_size(struct random *random) {
    uint64_t kind = random_below(random, 100);
    return 1 + random_below(random, kind < 60   ? 300
                                    : kind < 90 ? 9000
                                    : kind < 99 ? 90000
                                                : 900000);
}

/* Writes into every byte the block has, beyond what was asked for too. */
static void make_dirty(void *p) {
    memset(p, 0xa5, malloc_usable_size(p));
}

/*
 * Blocks are dirtied and given back in all ways there are; then calloc must find none of it.  The
 * same with realloc and aligned blocks among those given back.
 */
static void dirty_then_calloc(struct random *random, unsigned round) {
    static unsigned char *blocks[ZERO_BLOCKS];
    for (unsigned i = 0; i < ZERO_BLOCKS; i++) {
        size_t size = zero_size(random);
        blocks[i] = i % 5 == 0 ? memalign((size_t)16 << i % 9, size) : malloc(size);
        check(blocks[i] != NULL);
        make_dirty(blocks[i]);
        if (i % 7 == 0) {
            blocks[i] = realloc(blocks[i], zero_size(random));
            make_dirty(blocks[i]);
        }
    }
    for (unsigned i = 0; i < ZERO_BLOCKS; i++) {
        free(blocks[i]);
        if (round % 4 == 1 && i % 50 == 0) {
            malloc_trim(0);
        }
    }
    if (round % 2 == 0) {
        tally_purge();
    }
    for (unsigned i = 0; i < ZERO_BLOCKS; i++) {
        size_t size = zero_size(random);
        blocks[i] = calloc(1, size);
        check(blocks[i] != NULL);
        check_zero(blocks[i], size);
        make_dirty(blocks[i]);
    }
    for (unsigned i = 0; i < ZERO_BLOCKS; i++) {
        free(blocks[i]);
    }
}

static void zero_rounds(void) {
    struct random random = random_start(24, 0);
    for (unsigned round = 0; round < slice_or(ZERO_ROUNDS, ZERO_WHOLE_ROUNDS); round++) {
        dirty_then_calloc(&random, round);
    }
}

TEST(calloc_gives_zeros_after_every_way_to_give_memory_back) {
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    zero_rounds();
}

/* Locked pages cannot be given back: the kernel says no, and what was dirty stays dirty. */
TEST(calloc_gives_zeros_when_the_kernel_refuses_to_take_pages_back) {
    free(malloc(4 << 20));
    if (mlockall(MCL_CURRENT | MCL_ONFAULT) != 0) {
        skip("this process may not lock its memory");
    }
    zero_rounds();
}

/* ---------------------------------------------------------------- system calls that fail */

/* From here on every call in the list fails with the error.  False where filters are forbidden. */
static bool refuse_calls(const int *calls, unsigned count, int error) {
    struct sock_filter code[32];
    unsigned n = 0;
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; i++) {
        code[n++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        code[n++] =
            (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)n, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { ERRNO_BLOCKS = 300 };

/* Every kind of free, and what comes with it: caches emptied, pages given back, blocks resized. */
static void free_in_all_ways(void *blocks[ERRNO_BLOCKS]) {
    for (unsigned i = 0; i < ERRNO_BLOCKS; i++) {
        errno = 77;
        free(blocks[i]);
        check_eq(errno, 77);
        if (i % 100 == 0) {
            errno = 78;
            malloc_trim(0);
            check_eq(errno, 78);
        }
    }
}

static size_t errno_size(unsigned i) {
    static const size_t sizes[] = {24, 500, 3000, 20000, 50000, 300000, 3000000};
    return sizes[i % 7] + i;
}

static void check_errno_with(const int *calls, unsigned count, int error) {
    static void *blocks[ERRNO_BLOCKS];
    for (unsigned i = 0; i < ERRNO_BLOCKS; i++) {
        blocks[i] = malloc(errno_size(i));
        check(blocks[i] != NULL);
        memset(blocks[i], 1, errno_size(i));
    }
    if (!refuse_calls(calls, count, error)) {
        skip("this process may not filter its system calls");
    }
    free_in_all_ways(blocks);
    /* Nothing was lost: what came back serves again, without a new page from the kernel. */
    for (unsigned i = 0; i < ERRNO_BLOCKS; i++) {
        errno = 79;
        blocks[i] = malloc(errno_size(i));
        check(blocks[i] != NULL || errno == ENOMEM);
        check(blocks[i] == NULL || errno == 79);
        if (blocks[i] != NULL) {
            memset(blocks[i], 2, errno_size(i));
            void *moved = realloc(blocks[i], errno_size(i) / 2);
            check(moved != NULL || errno == ENOMEM);
            blocks[i] = moved != NULL ? moved : blocks[i];
        }
    }
    free_in_all_ways(blocks);
    tally_verify();
}

TEST(free_keeps_errno_when_madvise_and_munmap_fail) {
    static const int calls[] = {SYS_madvise, SYS_munmap};
    check_errno_with(calls, 2, ENOMEM);
}

TEST(free_keeps_errno_when_every_call_about_memory_fails) {
    static const int calls[] = {SYS_madvise, SYS_munmap, SYS_mmap, SYS_mprotect, SYS_mremap};
    check_errno_with(calls, 5, ENOMEM);
}

TEST(free_keeps_errno_when_calls_about_memory_do_not_exist) {
    static const int calls[] = {SYS_madvise, SYS_mremap, SYS_clock_gettime};
    check_errno_with(calls, 3, ENOSYS);
}

/* ---------------------------------------------------------------- above 2 GiB */

static const size_t gib = (size_t)1 << 30;

static void mark(unsigned char *p, size_t size) {
    for (size_t at = 0; at < size; at += gib / 4) {
        p[at] = (unsigned char)(at / gib + 1);
    }
    p[size - 1] = 99;
}

static void check_marks(const unsigned char *p, size_t size) {
    for (size_t at = 0; at < size; at += gib / 4) {
        check_eq(p[at], at / gib + 1);
    }
}

TEST(blocks_above_2_and_4_gib_are_whole) {
    static const size_t sizes[] = {2 * gib - 1, 2 * gib,        2 * gib + 4097,
                                   3 * gib,     4 * gib + 4097, 5 * gib};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p = test_launder(malloc(sizes[i]));
        if (p == NULL) {
            skip("the kernel does not promise 5 GiB");
        }
        unsigned char *q = malloc(100);
        check(malloc_usable_size(p) >= sizes[i]);
        mark(p, sizes[i]);
        check(q < p || q >= p + sizes[i]);
        check_marks(p, sizes[i]);
        check_eq(p[sizes[i] - 1], 99);
        free(q);
        tally_free_sized(p, sizes[i]);
    }
    tally_verify();
}

/* What a huge block leaves behind serves smaller ones, and a block that needs more does not get it. */
TEST(a_huge_block_is_grown_shrunk_recycled_and_zeroed) {
    unsigned char *p = malloc(2 * gib + 1);
    if (p == NULL) {
        skip("the kernel does not promise 5 GiB");
    }
    mark(p, 2 * gib + 1);
    unsigned char *grown = realloc(p, 3 * gib + 5);
    check(grown != NULL);
    check_marks(grown, 2 * gib);
    mark(grown, 3 * gib + 5);
    unsigned char *shrunk = realloc(grown, gib + 7);
    check(shrunk != NULL);
    check_marks(shrunk, gib + 7);
    free(shrunk);
    unsigned char *first = malloc(2 * gib);
    unsigned char *second = calloc(5, gib / 2);
    check(first != NULL && second != NULL);
    check(first + 2 * gib <= second || second + 5 * gib / 2 <= first);
    for (size_t at = 0; at < 5 * gib / 2; at += gib / 4) {
        check_eq(second[at], 0);
    }
    mark(first, 2 * gib);
    check_eq(second[0], 0);
    free(first);
    free(second);
    tally_verify();
}

/* ---------------------------------------------------------------- what libc frees */

enum { LIBC_THREADS = 8 };

static void resolve(const char *host, const char *service, int flags) {
    struct addrinfo hints = {.ai_flags = flags, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    if (getaddrinfo(host, service, &hints, &list) == 0) {
        freeaddrinfo(list);
    }
}

/* Functions of libc that allocate on one side and free on another, some of it when the thread ends:
 * resolver state, locale, iconv, user data base, streams, error strings. */
static void *use_libc(void *unused) {
    (void)unused;
    resolve("localhost", "80", 0);
    resolve("127.0.0.1", "http", AI_NUMERICHOST);
    resolve("::1", "0", AI_NUMERICHOST | AI_NUMERICSERV);
    struct hostent *host = gethostbyname("localhost");
    (void)host;
    struct passwd *user = getpwnam("root");
    (void)user;
    locale_t locale = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    if (locale != (locale_t)0) {
        locale_t before = uselocale(locale);
        (void)strerror(12345);
        uselocale(before);
        freelocale(locale);
    }
    iconv_t conversion = iconv_open("UTF-16", "UTF-8");
    if (conversion != (iconv_t)-1) {
        iconv_close(conversion);
    }
    regex_t expression;
    check(regcomp(&expression, "(a|b)*c{2,5}[[:alpha:]]+", REG_EXTENDED) == 0);
    regfree(&expression);
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    check(stream != NULL);
    for (int i = 0; i < 2000; i++) {
        fprintf(stream, "%d %s ", i, "words");
    }
    fclose(stream);
    check(size > 2000);
    free(text);
    check(asprintf(&text, "%*d", 3000, 7) == 3000);
    free(text);
    step(0);
    return NULL;
}

static void use_libc_in_threads(void) {
    for (unsigned round = 0; round < slice_or(20, 1000); round++) {
        pthread_t threads[LIBC_THREADS];
        for (unsigned i = 0; i < LIBC_THREADS; i++) {
            check(pthread_create(&threads[i], NULL, use_libc, NULL) == 0);
        }
        for (unsigned i = 0; i < LIBC_THREADS; i++) {
            check(pthread_join(threads[i], NULL) == 0);
        }
    }
    tally_verify();
}

TEST(libc_frees_what_its_threads_and_resolvers_allocated) {
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    run_watched(use_libc_in_threads);
}

extern void __libc_freeres(void);

/* Leak checkers make libc free everything it ever allocated for itself, also before main. */
static void free_all_of_libc(void) {
    use_libc(NULL);
    setlocale(LC_ALL, "C.UTF-8");
    __libc_freeres();
    step(1);
}

TEST(libc_can_free_all_that_it_ever_allocated) {
    run_watched(free_all_of_libc);
}

/* ---------------------------------------------------------------- threads that only free */

enum { PRODUCERS = 16, LIVE_BYTES = 160 << 20, RING = 1 << 18, PRODCONS_SECONDS = 3 };

/* The oldest blocks wait in a ring; one thread frees them.  Producers stop while more than
 * LIVE_BYTES are alive. */
static struct {
    _Atomic(void *) blocks[RING];
    _Atomic size_t head, tail;
    _Atomic size_t live;
    _Atomic bool stop;
} ring;

static void *produce(void *number) {
    struct random random = random_start(36, (uintptr_t)number);
    while (!atomic_load(&ring.stop)) {
        if (atomic_load(&ring.live) >= LIVE_BYTES) {
            nap_us(1000);
            continue;
        }
        size_t size = 16 + random_below(&random, random_below(&random, 20) == 0 ? 20000 : 600);
        void *p = malloc(size);
        check(p != NULL);
        memset(p, 1, size);
        atomic_fetch_add(&ring.live, malloc_usable_size(p));
        size_t slot = atomic_fetch_add(&ring.head, 1) % RING;
        while (atomic_load(&ring.blocks[slot]) != NULL) {
            nap_us(1000);
        }
        atomic_store(&ring.blocks[slot], p);
        step((unsigned)(uintptr_t)number);
    }
    return NULL;
}

/* Waits until there is much, so that what is alive stays near the bound. */
static void *consume(void *unused) {
    (void)unused;
    for (;;) {
        size_t slot = atomic_load(&ring.tail) % RING;
        void *p = atomic_exchange(&ring.blocks[slot], NULL);
        if (p == NULL) {
            if (atomic_load(&ring.stop)) {
                return NULL;
            }
            nap_us(1000);
            continue;
        }
        atomic_fetch_add(&ring.tail, 1);
        while (atomic_load(&ring.live) < LIVE_BYTES * 7 / 8 && !atomic_load(&ring.stop)) {
            nap_us(1000);
        }
        atomic_fetch_sub(&ring.live, malloc_usable_size(p));
        free(p);
        step(PRODUCERS);
    }
}

static void produce_and_consume(void) {
    pthread_t threads[PRODUCERS + 1];
    size_t before = test_anonymous_bytes();
    size_t most = 0;
    for (uintptr_t i = 0; i <= PRODUCERS; i++) {
        check(pthread_create(&threads[i], NULL, i < PRODUCERS ? produce : consume, (void *)i) == 0);
    }
    for (unsigned tick = 0; tick < 10 * slice_or(PRODCONS_SECONDS, 600); tick++) {
        nap_us(100000);
        size_t now = test_anonymous_bytes() - before;
        most = now > most ? now : most;
    }
    atomic_store(&ring.stop, true);
    for (unsigned i = 0; i <= PRODUCERS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    char text[3][24];
    test_say("    ", test_decimal(text[0], (long long)watch_sum()), " blocks came and went; ",
             test_decimal(text[1], (long long)(most >> 20)), " MiB resident at most, ",
             test_decimal(text[2], LIVE_BYTES >> 20), " MiB alive\n", NULL);
    check(most > LIVE_BYTES / 2);
    /* Which producers run is up to the kernel, and each arena keeps the slabs of its own; that adds
     * up to half of what is alive, and no more with time. */
    check(most <= LIVE_BYTES / 4 * 7);
}

TEST(one_thread_frees_what_sixteen_allocate_and_nothing_piles_up) {
    test_allow_seconds(slice_or(TEST_SECONDS, 1800));
    run_watched(produce_and_consume);
}
