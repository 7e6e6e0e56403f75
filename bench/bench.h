/* SPDX-License-Identifier: MIT
 *
 * What every bench program needs: arguments of the form key=value, clocks, a random generator
 * with a fixed seed, memory that does not come from malloc, and the resident size of the process.
 *
 * The rule behind all of it is that the harness must not disturb what it measures.  Its arrays
 * come from mmap, its files are read with plain read() into static buffers, and its text leaves
 * through write(), so the allocator under test sees the calls of the pattern and no others.
 *
 * A preload that the loader cannot map is skipped without an error that scripts would see, and the
 * program would then measure libc.  So when BENCH_EXPECT is set, bench_begin() looks for that
 * text in the memory map of the process and ends it with status 3 when it is absent.
 *
 * Threads: everything here is called by the main thread only, except rng_next and keep.
 */
#pragma once

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_NOT_LOADED = 3, TEXT_BYTES = 1 << 18 };

static struct {
    int count;
    char **text;
    bool used[64]; /* which arguments some pattern asked for; the others are mistakes */
} bench_args;

static char bench_text[TEXT_BYTES]; /* a /proc file, or the line being printed */

/* Print one line to `fd` without stdio, whose buffers would come from malloc. */
__attribute__((format(printf, 2, 3))) static inline void say(int fd, const char *format, ...) {
    static char line[512];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (length < 0 || write(fd, line, (size_t)length) != length) {
        _exit(1);
    }
}

/* Make the compiler believe that `p` and all memory are used here. */
static inline void keep(void *p) {
    __asm__ volatile("" : : "r"(p) : "memory");
}

/* The text of argument `key`, the last where there are several, or `fallback`. */
static inline const char *arg_text(const char *key, const char *fallback) {
    size_t length = strlen(key);
    const char *value = NULL;
    for (int i = 0; i < bench_args.count; i++) {
        const char *text = bench_args.text[i];
        if (strncmp(text, key, length) == 0 && text[length] == '=') {
            bench_args.used[i] = true;
            value = text + length + 1;
        }
    }
    return value == NULL ? fallback : value;
}

/* The number of argument `key`; anything but a plain decimal number ends the program. */
static inline size_t arg_number(const char *key, size_t fallback) {
    const char *text = arg_text(key, NULL);
    if (text == NULL) {
        return fallback;
    }
    size_t value = 0;
    for (const char *digit = text; *digit != '\0' || digit == text; digit++) {
        if (*digit < '0' || *digit > '9') {
            say(2, "%s=%s is not a number\n", key, text);
            _exit(EXIT_USAGE);
        }
        value = value * 10 + (size_t)(*digit - '0');
    }
    return value;
}

/* To be called when a pattern has read its arguments: a key nobody asked for is a typing error. */
static inline void args_end(void) {
    for (int i = 0; i < bench_args.count; i++) {
        if (!bench_args.used[i]) {
            say(2, "unknown argument '%s'\n", bench_args.text[i]);
            _exit(EXIT_USAGE);
        }
    }
}

/* Read a /proc file into the static buffer; the result is a string, cut at the buffer's end. */
static inline const char *read_proc(const char *path) {
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && length < TEXT_BYTES - 1) {
        ssize_t got = read(fd, bench_text + length, TEXT_BYTES - 1 - length);
        if (got <= 0) {
            break;
        }
        length += (size_t)got;
    }
    if (fd >= 0) {
        close(fd);
    }
    bench_text[length] = '\0';
    return bench_text;
}

/* The number behind `field` in a text such as /proc/self/status; 0 when there is none. */
static inline size_t field_kib(const char *text, const char *field) {
    const char *found = strstr(text, field);
    return found == NULL ? 0 : strtoul(found + strlen(field), NULL, 10);
}

/*
 * Resident size in KiB.  The current figures come from smaps_rollup, which counts page tables and
 * is exact; the peak comes from the kernel's running counters, which may lag by some pages per
 * CPU, so it is raised to the current figure where that is higher.
 */
struct memory {
    size_t peak_kib, rss_kib, anon_kib;
};

static inline struct memory read_memory(void) {
    struct memory now;
    const char *rollup = read_proc("/proc/self/smaps_rollup");
    now.rss_kib = field_kib(rollup, "\nRss:");
    now.anon_kib = field_kib(rollup, "\nAnonymous:");
    now.peak_kib = field_kib(read_proc("/proc/self/status"), "\nVmHWM:");
    if (now.peak_kib < now.rss_kib) {
        now.peak_kib = now.rss_kib;
    }
    return now;
}

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/*
 * Run `body` `rounds` times and return the shortest round in ns per pair.  Single-threaded
 * patterns are timed in CPU time, which leaves out what other processes took; patterns with
 * threads in wall time, because waiting for one another is part of their cost.
 */
static inline double best_ns(clockid_t clock, size_t rounds, size_t pairs, void (*body)(void *),
                             void *context) {
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < rounds; i++) {
        uint64_t start = clock_ns(clock);
        body(context);
        uint64_t taken = clock_ns(clock) - start;
        best = taken < best ? taken : best;
    }
    return (double)best / (double)pairs;
}

/* A xorshift generator: the same sequence in every run, on every machine. */
static inline uint32_t rng_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}

/* Zeroed memory for the harness itself, from the kernel and never given back. */
static inline void *harness_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        say(2, "no memory for the arrays of the bench itself\n");
        _exit(1);
    }
    return memory;
}

/* Remember the arguments, and verify that the allocator under test is the one that was meant. */
static inline void bench_begin(int count, char **text) {
    bench_args.count = count < 64 ? count : 64;
    bench_args.text = text;
    const char *expected = getenv("BENCH_EXPECT");
    if (expected != NULL && strstr(read_proc("/proc/self/maps"), expected) == NULL) {
        say(2, "'%s' is not in the memory map of this process\n", expected);
        _exit(EXIT_NOT_LOADED);
    }
}
