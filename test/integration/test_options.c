/* SPDX-License-Identifier: MIT
 *
 * test_options.c - options do what they say: each test starts the program again with a MALLOC_CONF
 * and looks at what its calls do.
 *
 * The program with an argument is the one under test: it does what the argument names and exits with
 * 0 if it found what it should.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

enum { FOUND = 0, NOT_FOUND = 9, MANY = 200 };

static const size_t sizes[] = {1, 16, 100, 1000, 5000, 32768, 40000, 300000, 5000000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static bool is_filled(const unsigned char *from, const unsigned char *to, unsigned char byte) {
    for (; from < to; from++) {
        if (*from != byte) {
            return false;
        }
    }
    return true;
}

/* Sizes the compiler does not know, or it would warn of what is done here on purpose. */
static volatile size_t too_large = (size_t)PTRDIFF_MAX + 1;
static volatile size_t no_bytes;

static void expect(bool condition) {
    if (!condition) {
        _exit(NOT_FOUND);
    }
}

/* ---------------------------------------------------------------- what the program does */

/* All of the usable size of what is allocated, in each way, reads as this byte. */
static void new_memory_is(unsigned char byte) {
    for (unsigned round = 0; round < MANY; round++) {
        unsigned char *p = malloc(sizes[round % SIZES]);
        expect(p != NULL && is_filled(p, p + malloc_usable_size(p), byte));
        memset(p, round & 0xff, malloc_usable_size(p));
        size_t old = malloc_usable_size(p);
        p = realloc(p, old * 3);
        expect(p != NULL && is_filled(p, p + old, round & 0xff));
        expect(is_filled(p + old, p + malloc_usable_size(p), byte));
        free(p);
        p = aligned_alloc(256, sizes[round % SIZES]);
        expect(p != NULL && is_filled(p, p + malloc_usable_size(p), byte));
        memset(p, 1, malloc_usable_size(p));
        free(p);
        p = calloc(1, sizes[round % SIZES]);
        expect(p != NULL && is_filled(p, p + sizes[round % SIZES], 0));
        memset(p, 1, malloc_usable_size(p));
        free(p);
    }
}

static void junk_new(void) {
    new_memory_is(0xa5);
}

static void zero_new(void) {
    new_memory_is(0);
}

static void *junk_in_thread(void *unused) {
    new_memory_is(0xa5);
    return unused;
}

static void junk_everywhere(void) {
    pthread_t thread;
    expect(pthread_create(&thread, NULL, junk_in_thread, NULL) == 0);
    expect(pthread_join(thread, NULL) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        new_memory_is(0xa5);
        _exit(FOUND);
    }
    int status = -1;
    expect(waitpid(pid, &status, 0) == pid && status == 0);
}

/* A freed object has 0x5a where the heap keeps nothing of its own. */
static void junk_old(void) {
    for (unsigned round = 0; round < MANY; round++) {
        unsigned char *volatile p = malloc(1000);
        expect(p != NULL);
        memset((void *)p, 1, 1000);
        size_t usable = malloc_usable_size((void *)p);
        free((void *)p);
        unsigned char *old = test_launder((void *)p);
        expect(is_filled(old + 16, old + usable, 0x5a));
    }
}

static void realloc_frees(void) {
    void *p = malloc(100);
    errno = 7;
    expect(realloc(p, 0) == NULL && errno == 7);
}

static void realloc_allocates(void) {
    char *p = malloc(100);
    memset(p, 3, 100);
    p = realloc(p, no_bytes);
    expect(p != NULL && malloc_usable_size(p) == 16 && p[0] == 3);
    free(p);
}

static void fail_malloc(void) {
    expect(malloc(PTRDIFF_MAX) == NULL && errno == ENOMEM);
}

static void fail_calloc(void) {
    expect(calloc(too_large, 2) == NULL && errno == ENOMEM);
}

static void fail_realloc(void) {
    expect(realloc(malloc(1), too_large) == NULL && errno == ENOMEM);
}

static void fail_aligned(void) {
    volatile size_t three = 3; /* Compilers warn of the number itself. */
    expect(aligned_alloc(three, 8) == NULL && errno == EINVAL);
}

static void fail_posix(void) {
    void *p;
    expect(posix_memalign(&p, 16, PTRDIFF_MAX) == ENOMEM);
}

extern void *operator_new(size_t) __asm__("_Znwm");
extern void *operator_new_nothrow(size_t, const void *) __asm__("_ZnwmRKSt9nothrow_t");

static void fail_new(void) {
    operator_new((size_t)1 << 62);
}

static void fail_new_nothrow(void) {
    expect(operator_new_nothrow((size_t)1 << 62, "") == NULL);
}

static void nothing(void) {
    free(malloc(1));
}

/* Text of ours comes to a function that allocates more than it takes to print again. */
static unsigned lines, depth;

static void allocate(void *opaque, const char *text) {
    (void)opaque;
    (void)text;
    lines++;
    expect(++depth == 1);
    void *volatile block = malloc(100000);
    free(block);
    errno = EDOM;
    depth--;
}

static void say_and_allocate(void) {
    *(void (**)(void *, const char *))dlsym(RTLD_DEFAULT, "malloc_message") = allocate;
    errno = 0;
    void *volatile block = malloc(200000);
    expect(block != NULL && errno == 0 && lines > 0);
    free(block);
}

/* 64 MiB in blocks of 64 KiB, in two threads. */
static void *churn_half(void *unused) {
    for (unsigned i = 0; i < 512; i++) {
        free(test_launder(malloc(64 << 10)));
    }
    return unused;
}

static void churn(void) {
    pthread_t thread;
    expect(pthread_create(&thread, NULL, churn_half, NULL) == 0);
    expect(pthread_join(thread, NULL) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        churn_half(NULL);
        _exit(FOUND);
    }
    int status = -1;
    expect(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Objects that were freed are kept for reuse by the thread, or not. */
static void cache_nothing(void) {
    void *blocks[MANY];
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < MANY; i++) {
            blocks[i] = malloc(2000);
            expect(blocks[i] != NULL);
        }
        for (unsigned i = 0; i < MANY; i++) {
            free(blocks[i]);
        }
    }
    struct tally_totals totals;
    tally_totals(&totals);
    expect(totals.cached < 20000);
}

static const struct job {
    const char *name;
    void (*run)(void);
} jobs[] = {
    {"junk_new", junk_new},
    {"junk_old", junk_old},
    {"junk_everywhere", junk_everywhere},
    {"zero_new", zero_new},
    {"realloc_frees", realloc_frees},
    {"realloc_allocates", realloc_allocates},
    {"fail_malloc", fail_malloc},
    {"fail_calloc", fail_calloc},
    {"fail_realloc", fail_realloc},
    {"fail_aligned", fail_aligned},
    {"fail_posix", fail_posix},
    {"fail_new", fail_new},
    {"fail_new_nothrow", fail_new_nothrow},
    {"nothing", nothing},
    {"churn", churn},
    {"say_and_allocate", say_and_allocate},
    {"cache_nothing", cache_nothing},
};

/* Before main of the harness, which would take the argument for the name of a test. */
__attribute__((constructor)) static void run_job(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof jobs / sizeof jobs[0]; i++) {
        if (strcmp(argv[1], jobs[i].name) == 0) {
            jobs[i].run();
            exit(FOUND);
        }
    }
}

/* ---------------------------------------------------------------- what is expected of it */

static void become(const char *conf, const char *job) {
    setenv("MALLOC_CONF", conf, 1);
    execl("/proc/self/exe", "test_options", job, (char *)NULL);
    _exit(127);
}

/* Its exit status; standard error goes to `said`. */
static int run_into(const char *conf, const char *job, char *said, size_t bytes) {
    int ends[2];
    check(pipe(ends) == 0);
    pid_t pid = fork();
    check(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        become(conf, job);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t n;
    while (length < bytes - 1 && (n = read(ends[0], said + length, bytes - 1 - length)) > 0) {
        length += (size_t)n;
    }
    said[length] = '\0';
    close(ends[0]);
    int status = -1;
    check(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int run(const char *conf, const char *job, char said[4096]) {
    return run_into(conf, job, said, 4096);
}

static void check_works(const char *conf, const char *job) {
    char said[4096];
    int status = run(conf, job, said);
    check_str(said, "");
    check_eq(status, FOUND);
}

static void check_fails(const char *conf, const char *job) {
    char said[4096];
    check_eq(run(conf, job, said), NOT_FOUND);
}

TEST(junk_fills_what_is_allocated) {
    check_works("junk:true", "junk_new");
    check_works("junk:alloc", "junk_new");
    check_fails("junk:free", "junk_new");
    check_fails("junk:false", "junk_new");
}

TEST(junk_fills_what_is_freed) {
    check_works("junk:true", "junk_old");
    check_works("junk:free", "junk_old");
    check_fails("junk:alloc", "junk_old");
    check_fails("", "junk_old");
}

TEST(junk_is_there_in_threads_and_after_fork) {
    check_works("junk:true", "junk_everywhere");
}

TEST(zero_clears_what_is_allocated_and_wins_over_junk) {
    check_works("zero:true", "zero_new");
    check_works("zero:true,junk:true", "zero_new");
    check_fails("", "zero_new");
}

TEST(realloc_to_nothing_does_what_the_option_says) {
    check_works("", "realloc_frees");
    check_works("zero_realloc:free", "realloc_frees");
    check_works("zero_realloc:alloc", "realloc_allocates");
    check_dies(become("zero_realloc:abort", "realloc_frees"),
               "tally: realloc(%p, 0): zero_realloc:abort ends the program\n", SIGABRT);
}

TEST(failing_requests_end_the_program_if_asked_to) {
    static const char *const failing[] = {"fail_malloc", "fail_calloc", "fail_realloc",
                                          "fail_aligned", "fail_posix"};
    for (size_t i = 0; i < sizeof failing / sizeof failing[0]; i++) {
        check_works("", failing[i]);
    }
    check_dies(become("xmalloc:true", "fail_malloc"),
               "tally: malloc(): out of memory, and xmalloc:true ends the program\n", SIGABRT);
    check_dies(become("xmalloc:true", "fail_calloc"), "tally: calloc(): out of memory", SIGABRT);
    check_dies(become("xmalloc:true", "fail_realloc"), "tally: realloc(): out of memory", SIGABRT);
    check_dies(become("xmalloc:true", "fail_aligned"), "tally: aligned_alloc(): invalid alignment",
               SIGABRT);
    check_dies(become("xmalloc:true", "fail_posix"), "tally: posix_memalign(): out of memory",
               SIGABRT);
}

TEST(infallible_new_ends_the_program) {
    check_works("", "fail_new_nothrow");
    check_dies(become("experimental_infallible_new:true", "fail_new"),
               "tally: operator new(4611686018427387904): out of memory, and"
               " experimental_infallible_new:true ends the program; a size like this may come from"
               " a corrupted variable\n",
               SIGABRT);
    check_dies(become("experimental_infallible_new:true", "fail_new_nothrow"),
               "experimental_infallible_new:true ends the program", SIGABRT);
}

TEST(statistics_are_printed_at_the_end_if_asked_for) {
    char said[4096];
    check_eq(run("stats_print:true", "nothing", said), FOUND);
    check(strlen(said) > 200);
    check_eq(run("stats_print:false,stats_print_opts:J", "nothing", said), FOUND);
    check_str(said, "");
}

TEST(statistics_are_printed_each_time_so_much_was_allocated) {
    enum { MOST = 1 << 20 };
    static char said[MOST];
    /* Half of 64 MiB in a thread, half in a child: about 6 times in all. */
    check_eq(run_into("stats_interval:10m,stats_interval_opts:mdablxe", "churn", said, MOST),
             FOUND);
    unsigned times = 0;
    for (const char *at = said; (at = strstr(at, "where the heap's bytes are")) != NULL; at++) {
        times++;
    }
    check(times >= 4 && times <= 8);
    check_eq(run_into("stats_interval:-1", "churn", said, MOST), FOUND);
    check_str(said, "");
}

TEST(function_that_gets_the_statistics_may_allocate) {
    check_works("stats_interval:50000", "say_and_allocate");
}

TEST(threads_cache_nothing_if_told_so) {
    check_fails("", "cache_nothing");
    check_works("tcache:false", "cache_nothing");
    check_works("tcache_max:1024", "cache_nothing");
    check_works("tcache_ncached_max:1024-4096:0", "cache_nothing");
    check_fails("tcache_ncached_max:1024-1536:0", "cache_nothing");
    check_works("thread_cache_bytes:0,depot_bytes:0", "cache_nothing");
}
