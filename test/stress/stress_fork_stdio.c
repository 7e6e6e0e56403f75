/* SPDX-License-Identifier: MIT
 *
 * stress_fork_stdio.c - threads that fork, read lines and flush all streams, together.
 *
 * An allocator that holds its locks across fork hangs here, in a circle of three:
 *
 *      fork()          has the allocator's locks, wants libc's list of streams
 *      fflush(NULL)    has the list of streams, wants one stream
 *      getline()       has that stream, grows its line and wants the allocator
 *
 * The same again with a dozen popen streams, whose chain is one more lock inside libc's fork, and
 * with so many fork handlers that libc allocates while it holds the lock of their list.  The
 * process is watched from outside.  STRESS=1 takes ten times 60 seconds of each.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>

#include "random.h"
#include "watch.h"

TEST_SETUP(require_tally);

enum {
    FORKERS = 3,
    READERS = 6,
    LINES = 120,
    POPEN_STREAMS = 12,
    HANDLERS = 80,
    LATE_HANDLERS = 25
};
enum { FLUSHER = FORKERS + READERS, OPENER, REGISTRAR, THREADS_MOST };
enum { FLUSHED_BYTES = 100000, CHILD_BLOCKS = 100, SLICE_SECONDS = 5, WHOLE_SECONDS = 60 };
enum { ROUNDS_WHOLE = 10 };

static struct {
    atomic_bool stop;
    unsigned seconds;
} g;

/* Line lengths grow and shrink, so that getline has to allocate. */
static size_t line_length(unsigned line) {
    return (size_t)line * line * 7 % 5000 + (line % 40 == 39 ? 150000 : 1);
}

static int file_of_lines(void) {
    static char text[160000];
    int file = memfd_create("lines", MFD_CLOEXEC);
    check(file >= 0);
    memset(text, 'x', sizeof text);
    for (unsigned line = 0; line < LINES; line++) {
        size_t length = line_length(line);
        check_eq(write(file, text, length), length);
        check_eq(write(file, "\n", 1), 1);
    }
    return file;
}

static void read_all_lines(int file) {
    check_eq(lseek(file, 0, SEEK_SET), 0);
    FILE *stream = fdopen(dup(file), "r");
    check(stream != NULL);
    char *line = NULL;
    size_t room = 0;
    for (unsigned i = 0; i < LINES; i++) {
        check_eq(getline(&line, &room, stream), line_length(i) + 1);
        if (i % 4 == 3) {
            free(line);
            line = NULL;
            room = 0;
        }
    }
    check(getline(&line, &room, stream) < 0);
    free(line);
    check_eq(fclose(stream), 0);
}

static void *read_again_and_again(void *number) {
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* they share a buffer */
    pthread_mutex_lock(&one_at_a_time);
    int file = file_of_lines();
    pthread_mutex_unlock(&one_at_a_time);
    while (!atomic_load(&g.stop)) {
        read_all_lines(file);
        step((unsigned)(uintptr_t)number);
    }
    close(file);
    return NULL;
}

static void use_heap_in_child(uint64_t seed) {
    struct random random = random_start(seed, (uint64_t)getpid());
    void *blocks[CHILD_BLOCKS];
    for (unsigned i = 0; i < CHILD_BLOCKS; i++) {
        size_t size = (size_t)1 << random_below(&random, 20);
        blocks[i] = malloc(size);
        check(blocks[i] != NULL);
        memset(blocks[i], 1, size < 64 ? size : 64);
    }
    for (unsigned i = 0; i < CHILD_BLOCKS; i++) {
        free(blocks[i]);
    }
}

static void *fork_again_and_again(void *number) {
    while (!atomic_load(&g.stop)) {
        int status = -1;
        pid_t pid = fork();
        check(pid >= 0);
        if (pid == 0) {
            use_heap_in_child((uintptr_t)number);
            _exit(0);
        }
        check_eq(waitpid(pid, &status, 0), pid);
        check_eq(status, 0);
        step((unsigned)(uintptr_t)number);
    }
    return NULL;
}

static void *flush_again_and_again(void *number) {
    while (!atomic_load(&g.stop)) {
        check_eq(fflush(NULL), 0);
        char *block = malloc(FLUSHED_BYTES);
        check(block != NULL);
        memset(block, 1, FLUSHED_BYTES);
        free(block);
        step((unsigned)(uintptr_t)number);
    }
    return NULL;
}

static void *open_pipes_again_and_again(void *number) {
    while (!atomic_load(&g.stop)) {
        FILE *stream = popen("echo line", "r");
        char *line = NULL;
        size_t room = 0;
        check(stream != NULL);
        check_eq(getline(&line, &room, stream), 5);
        free(line);
        check_eq(pclose(stream), 0);
        step((unsigned)(uintptr_t)number);
    }
    return NULL;
}

/* Handlers run one after another in the thread that forks, but several threads fork at once. */
static void allocate_in_handler(void) {
    static _Atomic size_t calls;
    size_t size = (size_t)1 << atomic_fetch_add(&calls, 1) % 18;
    char *block = malloc(size);
    check(block != NULL);
    block[0] = 1;
    free(block);
}

static void register_handlers(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        check_eq(pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler), 0);
    }
}

/*
 * glibc (2.36) reads its array of handlers after it has let go of the lock, and registering another
 * may just have moved the array: it then calls what it finds in freed memory, with any allocator that
 * writes there (MALLOC_PERTURB_ shows it with glibc's own).  The array has places for 48, 73 and 110,
 * so the late ones stay below the next move.
 */
static void *register_again_and_again(void *number) {
    for (long count = 0; !atomic_load(&g.stop); count++) {
        if (count < LATE_HANDLERS) {
            register_handlers(1);
        }
        step((unsigned)(uintptr_t)number);
        nap_us(count * 3000 < 500000 ? 1000 + count * 3000 : 500000);
    }
    return NULL;
}

static void run_together(void *(*extra)(void *), unsigned extra_number) {
    pthread_t threads[THREADS_MOST];
    unsigned count = 0;
    for (; count < FLUSHER; count++) {
        void *(*body)(void *) = count < FORKERS ? fork_again_and_again : read_again_and_again;
        check_eq(pthread_create(&threads[count], NULL, body, (void *)(uintptr_t)count), 0);
    }
    check_eq(pthread_create(&threads[count++], NULL, flush_again_and_again, (void *)FLUSHER), 0);
    if (extra != NULL) {
        void *number = (void *)(uintptr_t)extra_number;
        check_eq(pthread_create(&threads[count++], NULL, extra, number), 0);
    }
    sleep(g.seconds);
    atomic_store(&g.stop, true);
    for (unsigned i = 0; i < count; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
}

static void fork_read_flush(void) {
    run_together(NULL, 0);
}

/* The streams stay open, each with its shell that reads until the other end is closed. */
static void fork_read_flush_popen(void) {
    for (unsigned i = 0; i < POPEN_STREAMS; i++) {
        check(popen("exec cat >/dev/null", "w") != NULL);
    }
    run_together(open_pipes_again_and_again, OPENER);
}

static void fork_read_flush_with_handlers(void) {
    register_handlers(HANDLERS);
    run_together(register_again_and_again, REGISTRAR);
}

static uint64_t sum_of(unsigned first, unsigned behind) {
    uint64_t sum = 0;
    for (unsigned i = first; i < behind; i++) {
        sum += atomic_load(&watch_counters[i]);
    }
    return sum;
}

static void say_what_was_done(void) {
    char text[3][24];
    test_say("    the last round: ", test_decimal(text[0], (long long)sum_of(0, FORKERS)),
             " forks, ", test_decimal(text[1], (long long)sum_of(FORKERS, FLUSHER)),
             " files read, ", test_decimal(text[2], (long long)sum_of(FLUSHER, FLUSHER + 1)),
             " flushes\n", NULL);
}

static void run_rounds(void (*work)(void), unsigned slice_seconds) {
    unsigned rounds = slice_or(1, ROUNDS_WHOLE);
    g.seconds = slice_or(slice_seconds, WHOLE_SECONDS);
    test_allow_seconds(rounds * (g.seconds + 60));
    unsetenv("LD_PRELOAD"); /* The shells of popen are not what is tested. */
    for (unsigned round = 0; round < rounds; round++) {
        run_watched(work);
    }
    say_what_was_done();
}

TEST(threads_that_fork_read_and_flush_do_not_hang) {
    run_rounds(fork_read_flush, SLICE_SECONDS);
}

TEST(threads_that_fork_read_and_flush_beside_popen_streams_do_not_hang) {
    run_rounds(fork_read_flush_popen, SLICE_SECONDS - 2);
}

TEST(threads_that_fork_read_and_flush_with_many_fork_handlers_do_not_hang) {
    run_rounds(fork_read_flush_with_handlers, SLICE_SECONDS - 2);
}
