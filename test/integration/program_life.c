/* SPDX-License-Identifier: MIT
 *
 * program_life.c - uses the heap in every hour of a process's life, and as a library, with LIFE_MARK
 * defined, in the hours that a library sees. test_life.sh compiles both and starts them in many
 * ways.
 *
 * Each hour allocates in several ways, looks at what the hour before it left, frees that, leaves
 * blocks of its own, and writes one letter:
 *
 *      p   .preinit_array                      c   constructor
 *      m   main                                t   a thread
 *      y x z   exit handlers: registered in a constructor, in main, in an exit handler
 *      d   destructor                          q   a handler of quick_exit
 *
 * A library writes the letter LIFE_MARK in its constructor and in its destructor, which runs when
 * the exit handlers are through.
 *
 * Resolvers of indirect functions are not among the hours: the loader runs them before it gives
 * thread-local variables their values.
 *
 * Arguments: quick leaves through quick_exit; bare looks, at the end of main, that no file
 * descriptor is open, and writes nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEFT = 40, BROKEN = 9, DESCRIPTORS = 256 };

static struct {
    unsigned char *p;
    size_t size;
} left[LEFT];
static int bare;

static void expect(int condition) {
    if (!condition) {
        _exit(BROKEN);
    }
}

static unsigned char *get(size_t i, size_t size) {
    void *p = NULL;
    switch (i % 5) {
    case 0:
        return malloc(size);
    case 1:
        return calloc(1, size);
    case 2:
        return realloc(malloc(size / 2 + 1), size);
    case 3:
        return memalign(256, size);
    default:
        return posix_memalign(&p, 4096, size) == 0 ? p : NULL;
    }
}

static void give_back(size_t i) {
    if (left[i].p != NULL) {
        expect(left[i].p[0] == i && left[i].p[left[i].size - 1] == i);
        free(left[i].p);
    }
}

static void live_through(char mark) {
    for (size_t i = 0; i < LEFT; i++) {
        size_t size = (size_t)10 << i % 14;
        unsigned char *p = get(i, size);
        expect(p != NULL && malloc_usable_size(p) >= size);
        p[0] = p[size - 1] = (unsigned char)i;
        give_back(i);
        left[i].p = p;
        left[i].size = size;
    }
    expect(bare || write(STDOUT_FILENO, &mark, 1) == 1);
}

#ifdef LIFE_MARK

__attribute__((constructor)) static void begin(void) {
    bare = fcntl(STDOUT_FILENO, F_GETFD) < 0;
    live_through(LIFE_MARK);
}

__attribute__((destructor)) static void end(void) {
    live_through(LIFE_MARK);
}

#else

static void exit_early_bird(void) {
    live_through('y');
}

static void exit_last(void) {
    live_through('z');
}

static void exit_handler(void) {
    live_through('x');
    expect(atexit(exit_last) == 0);
}

static void quick_handler(void) {
    live_through('q');
}

static void before_constructors(void) {
    bare = fcntl(STDOUT_FILENO, F_GETFD) < 0;
    live_through('p');
}

__attribute__((section(".preinit_array"),
               used)) static void (*const first)(void) = before_constructors;

__attribute__((constructor)) static void begin(void) {
    live_through('c');
    expect(atexit(exit_early_bird) == 0);
}

__attribute__((destructor)) static void end(void) {
    live_through('d');
}

static void *thread_main(void *unused) {
    live_through('t');
    return unused;
}

static void expect_no_descriptor(void) {
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        expect(fcntl(fd, F_GETFD) < 0 && errno == EBADF);
    }
}

int main(int argc, char **argv) {
    pthread_t thread;
    live_through('m');
    expect(pthread_create(&thread, NULL, thread_main, NULL) == 0);
    expect(pthread_join(thread, NULL) == 0);
    expect(atexit(exit_handler) == 0 && at_quick_exit(quick_handler) == 0);
    if (argc == 2 && strcmp(argv[1], "bare") == 0) {
        expect_no_descriptor();
    }
    if (argc == 2 && strcmp(argv[1], "quick") == 0) {
        quick_exit(0);
    }
    return 0;
}

#endif
