/* SPDX-License-Identifier: MIT
 *
 * program_dlopen.c - a program that does not know the library and opens it late, beside libc's
 * malloc. Started by test_dlopen.sh with the path of the library; prints "opened" and exits with
 * 0 when all went well.
 *
 * Blocks of the two heaps live side by side, each freed where it came from. The library is
 * opened and closed a thousand times while threads use it and others end with state of it:
 * closing succeeds and must not pull the code away.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 20000, OPENINGS = 1000, RESIDENTS = 2 };

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

static atomic_bool stop;

/* A thread that is inside the library whenever that is closed. */
static void *live_in_it(void *unused) {
    void *(*get)(size_t) = library.malloc;
    void (*give)(void *) = library.free;
    char *kept[100] = {NULL};
    for (size_t i = 0; !atomic_load(&stop); i++) {
        char **slot = &kept[i % 100];
        expect(*slot == NULL || **slot == (char)(i % 100), "contents in a living thread");
        give(*slot);
        *slot = get(i * 13 % 5000 + 1);
        expect(*slot != NULL, "malloc in a living thread");
        **slot = (char)(i % 100);
    }
    for (size_t i = 0; i < 100; i++) {
        give(kept[i]);
    }
    return unused;
}

static int is_mapped(const char *path) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    expect(maps != NULL, "/proc/self/maps");
    while (!found && fgets(line, sizeof line, maps) != NULL) {
        found = strstr(line, path) != NULL;
    }
    fclose(maps);
    return found;
}

static void open_and_close(const char *path, int i) {
    pthread_t thread;
    open_library(path, i % 2 == 0 ? RTLD_LOCAL : RTLD_GLOBAL);
    if (i % 250 == 0) {
        use_both_heaps(NULL);
    }
    expect(pthread_create(&thread, NULL, i == 500 ? use_both_heaps : allocate_once, NULL) == 0,
           "pthread_create");
    expect(dlclose(library.handle) == 0, "dlclose returns 0");
    expect(pthread_join(thread, NULL) == 0, "pthread_join");
}

int main(int argc, char **argv) {
    pthread_t residents[RESIDENTS];
    expect(argc == 2, "one argument, the path of the library");
    open_and_close(argv[1], 0);
    for (int i = 0; i < RESIDENTS; i++) {
        expect(pthread_create(&residents[i], NULL, live_in_it, NULL) == 0, "pthread_create");
    }
    for (int i = 1; i < OPENINGS; i++) {
        open_and_close(argv[1], i);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < RESIDENTS; i++) {
        expect(pthread_join(residents[i], NULL) == 0, "pthread_join");
    }
    expect(is_mapped(argv[1]), "the library stays where it is");
    puts("opened");
    return 0;
}
