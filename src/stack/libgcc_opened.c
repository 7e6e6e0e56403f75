/* SPDX-License-Identifier: MIT
 *
 * libgcc_opened.c - libgcc from the shared library; a program in C++ has it loaded already.
 */
#include <dlfcn.h>
#include <stddef.h>

#include "stack/libgcc.h"

libgcc_finder *libgcc_find(void) {
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
    libgcc_finder *finder = NULL;
    if (library != NULL) {
        *(void **)&finder = dlsym(library, "_Unwind_Find_FDE");
    }
    return finder;
}
