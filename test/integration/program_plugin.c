/* SPDX-License-Identifier: MIT
 *
 * program_plugin.c - a plug-in and its host, for test_replay_programs.sh, which compiles the file twice.
 *
 * As a library (PLUGIN defined) it allocates and frees.  As a program it opens that library with
 * RTLD_DEEPBIND: the library's malloc would then be libc's own, whatever was preloaded, and a block
 * that goes from one to the other would end in the wrong heap.
 *
 *      host PLUGIN own       the plug-in and the host use memory, each its own; prints "done"
 *      host PLUGIN crossed   the host frees what the plug-in allocated
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 1000 };

static int use_memory(void) {
    static char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(i * 97 % 20000 + 1);
        if (blocks[i] == NULL) {
            return 1;
        }
        memset(blocks[i], (int)i, i * 97 % 20000 + 1);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i][0] != (char)i || blocks[i][i * 97 % 20000] != (char)i) {
            return 1;
        }
        blocks[i] = realloc(blocks[i], i + 1);
        free(blocks[i]);
    }
    return 0;
}

#ifdef PLUGIN
int plugin_use(void);
int plugin_use(void) {
    return use_memory();
}

void *plugin_allocate(void);
void *plugin_allocate(void) {
    return malloc(100);
}
#else
static void *open_plugin(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return handle;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    void *plugin = open_plugin(argv[1]);
    if (strcmp(argv[2], "own") == 0) {
        int (*use)(void) = (int (*)(void))dlsym(plugin, "plugin_use");
        for (int i = 0; i < 20; i++) {
            if (use() != 0 || use_memory() != 0) {
                return 1;
            }
        }
        puts("done");
        return 0;
    }
    void *(*allocate)(void) = (void *(*)(void))dlsym(plugin, "plugin_allocate");
    void *block = allocate();
    free(block);
    puts("freed");
    return 0;
}
#endif
