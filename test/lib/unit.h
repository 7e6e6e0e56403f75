/* SPDX-License-Identifier: MIT
 *
 * unit.h - what several unit tests need: a started heap, captured messages, threads.
 *
 * Each test is a process of its own (test.h), so a test may configure and start the heap as it
 * likes: start_heap() is the first allocation of that process.
 */
#ifndef TALLY_TEST_UNIT_H
#define TALLY_TEST_UNIT_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tally/tally.h>

#include "base/attention.h"
#include "random.h"
#include "test.h"

/* What runs under a sanitizer, and how much slower that makes a test that counts its steps. */
#if defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1, SLOWER = 10 };

/* A child that is forked beside threads cannot join them. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "report_thread_leaks=0";
}
#elif defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1, SLOWER = 3 };
#else
enum { SANITIZED = 0, SLOWER = 1 };
#endif

/* Limits the address space of this process, which is then window mode for a heap that starts.  A
 * sanitizer's own needs know no limit: there the limit is one in name only. */
static inline void limit_address_space(rlim_t bytes) {
    struct rlimit limit = {bytes, bytes};
    if (SANITIZED) {
        limit.rlim_cur = limit.rlim_max = (rlim_t)1 << 62;
    }
    check(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* Starts the heap as the first call of a program does. */
static inline void start_heap(void) {
    tally_free(tally_malloc(1));
}

/* The same with a TALLY_CONF. */
static inline void start_heap_with(const char *conf) {
    setenv("TALLY_CONF", conf, 1);
    start_heap();
}

/* What happens in the child of a fork, at once and in this process. */
static inline void pretend_fork(void) {
    attention_forget();
    check(attention_notice_fork());
}

/* A file of this text, opened, in place of one of the kernel's; with an empty text there is none. */
static inline int open_text(const char *text) {
    char name[] = "/tmp/tally-unit-XXXXXX";
    size_t length = strlen(text);
    if (length == 0) {
        return -ENOENT;
    }
    int file = mkstemp(name);
    check(file >= 0 && unlink(name) == 0);
    check(write(file, text, length) == (ssize_t)length && lseek(file, 0, SEEK_SET) == 0);
    return file;
}

/* Descriptor 2 redirected into a file, so that a message of any length fits. */
struct capture {
    int file;
    int saved;
};

static inline struct capture capture_begin(void) {
    char name[] = "/tmp/tally-unit-XXXXXX";
    struct capture capture = {mkstemp(name), dup(2)};
    check(capture.file >= 0 && capture.saved >= 0);
    unlink(name);
    dup2(capture.file, 2);
    return capture;
}

/* Ends the capture and returns what was written, up to a mebibyte, in a static buffer. */
static inline const char *capture_end(struct capture capture) {
    static char text[(1 << 20) + 1];
    dup2(capture.saved, 2);
    close(capture.saved);
    ssize_t n = pread(capture.file, text, sizeof text - 1, 0);
    close(capture.file);
    check(n >= 0);
    text[n] = '\0';
    return text;
}

static inline unsigned count_lines(const char *text) {
    unsigned lines = 0;
    for (; *text != '\0'; text++) {
        lines += *text == '\n';
    }
    return lines;
}

/* Runs `body` in `count` threads (at most 16) at once and waits for all of them. */
static inline void run_threads(unsigned count, void *(*body)(void *), void *argument) {
    pthread_t threads[16];
    check(count <= 16);
    for (unsigned i = 0; i < count; i++) {
        check(pthread_create(&threads[i], NULL, body, argument) == 0);
    }
    for (unsigned i = 0; i < count; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
}

#endif
