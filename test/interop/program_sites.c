/* SPDX-License-Identifier: MIT
 *
 * program_sites.c - a program that allocates at known lines, for sites.sh, which preloads the library.
 *
 *      sites PREFIX [ENDING ...]    writes PREFIX-before.ENDING and PREFIX-after.ENDING by prof.dump
 *
 * It prints what a reader must find, at the first profile and at the second:
 *
 *      before total 1234 567890             objects and bytes that the heap holds, if all are sampled
 *      before site_small 100 4800           objects and bytes that lie at a function, by usable size
 *      ever site_small 300 14400            the same of what was ever allocated, at the end
 *
 * The script finds the line of a function's call by the word "site:" behind it.  It compiles the file as C
 * and as C++, with frame pointers and without.  A function allocates and then does something, or the
 * compiler would turn the call into a jump and there would be no such frame.
 */
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
#include <new>
extern "C" {
#endif
/* From the preloaded library; there is no header of it in a program that knows nothing of it. */
extern int mallctl(const char *name, void *old, size_t *old_length, void *value, size_t length)
    __attribute__((weak));
#ifdef __cplusplus
}
#endif

#define NOINLINE __attribute__((noinline))

enum { SITES = 8, BLOCKS = 5000 };

/* What a function has allocated so far. */
struct site {
    const char *name;
    unsigned long live, live_bytes, ever, ever_bytes;
};

static struct site sites[SITES];
static struct {
    void *block;
    struct site *site;
} held[BLOCKS];
static unsigned blocks;

/* The compiler may not know what becomes of it, and not throw the caller's frame away. */
NOINLINE static void *keep(struct site *site, const char *name, void *block) {
    if (block == NULL) {
        exit(3);
    }
    size_t bytes = malloc_usable_size(block);
    memset(block, 1, bytes < 64 ? bytes : 64);
    site->name = name;
    site->live++, site->live_bytes += bytes;
    site->ever++, site->ever_bytes += bytes;
    held[blocks].block = block;
    held[blocks++].site = site;
    return block;
}

static void forget(unsigned which) {
    struct site *site = held[which].site;
    site->live--;
    site->live_bytes -= malloc_usable_size(held[which].block);
    held[which] = held[--blocks];
}

NOINLINE static void site_small(void) {
    void *block = malloc(40); /* site: small */
    keep(&sites[0], "site_small", block);
}

NOINLINE static void site_medium(size_t size) {
    void *block = calloc(3, size); /* site: medium */
    keep(&sites[1], "site_medium", block);
}

NOINLINE static void site_large(void) {
    void *block = malloc(300000); /* site: large */
    keep(&sites[2], "site_large", block);
}

NOINLINE static void site_aligned(void) {
    void *block = NULL;
    if (posix_memalign(&block, 4096, 5000) != 0) { /* site: aligned */
        exit(3);
    }
    keep(&sites[3], "site_aligned", block);
}

/* What was allocated elsewhere belongs to this function from now on. */
NOINLINE static void site_grow(unsigned which) {
    void *block = held[which].block;
    forget(which);
    block = realloc(block, 700); /* site: grow */
    keep(&sites[4], "site_grow", block);
}

NOINLINE static void site_deep(unsigned depth) {
    if (depth > 0) {
        site_deep(depth - 1);
        __asm__ volatile("");
        return;
    }
    void *block = malloc(100); /* site: deep */
    keep(&sites[5], "site_deep", block);
}

#ifdef __cplusplus
NOINLINE static void site_new(void) {
    void *block = new char[200]; /* site: new */
    keep(&sites[6], "site_new", block);
}

/* A call through a template, whose name a reader has to make readable. */
template <typename Kind> NOINLINE static void site_template(void) {
    void *block = ::operator new(sizeof(Kind)); /* site: template */
    keep(&sites[7], "site_template", block);
}
#endif

NOINLINE static void work(unsigned times) {
    for (unsigned i = 0; i < times; i++) {
        site_small();
        site_medium(50 + i % 7 * 100);
        site_deep(10);
#ifdef __cplusplus
        site_new();
        site_template<double[16]>();
#endif
    }
    site_large();
    site_aligned();
    site_grow(blocks - 3);
    __asm__ volatile("");
}

/* Frees two of three. */
static void thin_out(void) {
    for (unsigned i = blocks; i-- > 0;) {
        if (i % 3 != 0) {
            void *block = held[i].block;
            forget(i);
            free(block);
        }
    }
}

static void *work_in_thread(void *times) {
    work(*(unsigned *)times);
    return NULL;
}

static void print_sites(const char *when) {
    for (unsigned i = 0; i < SITES; i++) {
        if (sites[i].name != NULL) {
            printf("%s %s %lu %lu\n", when, sites[i].name, sites[i].live, sites[i].live_bytes);
        }
    }
}

/* Nothing is allocated from the first profile to the last: they are equal. */
static void write_profiles(const char *when, char **argv) {
    unsigned long allocated = 0, epoch = 1;
    size_t length = sizeof allocated;
    char path[512];
    const char *name = path;
    mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
    mallctl("stats.allocated", &allocated, &length, NULL, 0);
    for (char **ending = argv + 2; *ending != NULL; ending++) {
        snprintf(path, sizeof path, "%s-%s.%s", argv[1], when, *ending);
        int error = mallctl("prof.dump", NULL, NULL, &name, sizeof name);
        if (error != 0) {
            fprintf(stderr, "prof.dump of %s: %s\n", path, strerror(error));
            exit(4);
        }
    }
    printf("%s total 0 %lu\n", when, allocated);
    print_sites(when);
}

int main(int argc, char **argv) {
    static char buffer[1 << 16];
    unsigned times = 50;
    pthread_t thread;
    if (argc < 2 || mallctl == NULL) {
        fprintf(stderr, "there is no mallctl, or no prefix was given\n");
        return 2;
    }
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    work(100);
    thin_out();
    if (pthread_create(&thread, NULL, work_in_thread, &times) != 0) {
        return 3;
    }
    pthread_join(thread, NULL);
    write_profiles("before", argv);
    work(20);
    write_profiles("after", argv);
    for (unsigned i = 0; i < SITES; i++) {
        if (sites[i].name != NULL) {
            printf("ever %s %lu %lu\n", sites[i].name, sites[i].ever, sites[i].ever_bytes);
        }
    }
    return 0;
}
