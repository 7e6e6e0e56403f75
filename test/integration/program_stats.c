/* SPDX-License-Identifier: MIT
 *
 * program_stats.c - holds a known number of objects and prints the statistics on standard output.
 *
 *     program_stats LETTERS
 *
 * Used by test_stats_json.sh.  The function that is called allocates, as that of a server that puts
 * the text into a string of its own does.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 1000, LARGE = 3 };

static void gather(void *opaque, const char *text) {
    char **all = opaque;
    size_t length = *all != NULL ? strlen(*all) : 0;
    *all = realloc(*all, length + strlen(text) + 1);
    strcpy(*all + length, text);
}

int main(int count, char **arguments) {
    void (*print)(void (*)(void *, const char *), void *, const char *);
    *(void **)&print = dlsym(RTLD_DEFAULT, "malloc_stats_print");
    if (print == NULL || count != 2) {
        fprintf(stderr,
                "usage: program_stats LETTERS, under a library that has malloc_stats_print\n");
        return 2;
    }
    static void *small[SMALL], *large[LARGE];
    for (unsigned i = 0; i < SMALL; i++) {
        small[i] = malloc(100);
    }
    for (unsigned i = 0; i < SMALL; i += 2) {
        free(small[i]);
    }
    for (unsigned i = 0; i < LARGE; i++) {
        large[i] = malloc(100000);
    }
    free(large[0]);
    usleep(20000); /* the coarse clock has moved: the process is older than 0 */
    char *all = NULL;
    print(gather, &all, arguments[1]);
    fputs(all != NULL ? all : "", stdout);
    return 0;
}
