/* SPDX-License-Identifier: MIT
 *
 * program_dlopen.c - a program that does not know the library and opens it late, beside libc's
 * malloc. Started by test_dlopen.sh with the path of the library; prints "opened" and exits with
 * 0 when all went well.
 *
 * Blocks of the two heaps live side by side, each freed where it came from. The library is
 * opened and closed many times while a thread holds blocks of it: closing must not pull the code
 * away.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 20000 };

static struct {
    void *handle;
    void *(*malloc)(size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
    size_t (*usable_size)(void *);
} library;

static void expect(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "failed: %s\n", what);
        exit(1);
    }
}

static void *open_symbol(const char *name) {
    void *symbol = dlsym(library.handle, name);
    expect(symbol != NULL, name);
    return symbol;
}

static void open_library(const char *path, int flags) {
    library.handle = dlopen(path, RTLD_NOW | flags);
    if (library.handle == NULL) {
        fprintf(stderr, "failed: %s\n", dlerror());
        exit(1);
    }
    library.malloc = (void *(*)(size_t))open_symbol("malloc");
    library.realloc = (void *(*)(void *, size_t))open_symbol("realloc");
    library.free = (void (*)(void *))open_symbol("free");
    library.usable_size = (size_t(*)(void *))open_symbol("malloc_usable_size");
    expect(library.malloc != malloc, "its malloc is not libc's");
}

static void *use_both_heaps(void *unused) {
    static char *theirs[COUNT];
    static char *ours[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        size_t size = i * 7 % 3000 + 1;
        ours[i] = library.malloc(size);
        theirs[i] = malloc(size);
        expect(ours[i] != NULL && library.usable_size(ours[i]) >= size, "malloc of the library");
        memset(ours[i], 1, size);
        memset(theirs[i], 2, size);
    }
    for (size_t i = 0; i < COUNT; i++) {
        expect(ours[i][0] == 1 && theirs[i][0] == 2, "contents");
        ours[i] = library.realloc(ours[i], i % 5000 + 1);
        expect(ours[i] != NULL && ours[i][0] == 1, "realloc of the library");
        library.free(ours[i]);
        free(theirs[i]);
    }
    return unused;
}

/* A thread whose only call goes into the library, so that it ends with the library's state to
 * clean up. */
static void *allocate_once(void *unused) {
    char *p = library.malloc(100);
    expect(p != NULL, "malloc of the library in a thread");
    p[0] = 1;
    library.free(p);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    expect(argc == 2, "one argument, the path of the library");
    for (int i = 0; i < 200; i++) {
        open_library(argv[1], i % 2 == 0 ? RTLD_LOCAL : RTLD_GLOBAL);
        if (i % 50 == 0) {
            use_both_heaps(NULL);
        }
        expect(pthread_create(&thread, NULL, i == 100 ? use_both_heaps : allocate_once, NULL) == 0,
               "pthread_create");
        expect(dlclose(library.handle) == 0, "dlclose returns 0");
        expect(pthread_join(thread, NULL) == 0, "pthread_join");
    }
    puts("opened");
    return 0;
}
