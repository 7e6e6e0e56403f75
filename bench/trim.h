/* SPDX-License-Identifier: MIT
 *
 * "Give back what you can", in the words of the allocator that is loaded.  malloc_trim is libc's in
 * every process, so it counts only where malloc comes from the same library.
 */
#pragma once

#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline const char *library_of(const char *name) {
    Dl_info found;
    void *address = dlsym(RTLD_DEFAULT, name);
    return address != NULL && dladdr(address, &found) != 0 ? found.dli_fname : "";
}

/* Nothing happens where the allocator has no such call. */
static inline void trim_everything(void) {
    if (strcmp(library_of("malloc"), library_of("malloc_trim")) == 0) {
        malloc_trim(0);
        return;
    }
    void (*collect)(bool), (*release)(void);
    int (*control)(const char *, void *, size_t *, void *, size_t);
    *(void **)&collect = dlsym(RTLD_DEFAULT, "mi_collect");
    *(void **)&release = dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory");
    *(void **)&control = dlsym(RTLD_DEFAULT, "mallctl");
    if (collect != NULL) {
        collect(true);
    } else if (release != NULL) {
        release();
    } else if (control != NULL) {
        control("thread.tcache.flush", NULL, NULL, NULL, 0);
        control("arena.4096.purge", NULL, NULL, NULL, 0); /* all arenas */
    }
}
