/* SPDX-License-Identifier: MIT
 *
 * libgcc_opened.c - libgcc's unwinder from the shared library; a program in C++ has it loaded already.
 */
#include <dlfcn.h>

#include "prof/libgcc.h"

bool libgcc_find(struct libgcc *libgcc) {
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return false;
    }
    *(void **)&libgcc->table = dlsym(library, "_Unwind_Find_FDE");
    *(void **)&libgcc->backtrace = dlsym(library, "_Unwind_Backtrace");
    *(void **)&libgcc->address = dlsym(library, "_Unwind_GetIPInfo");
    *(void **)&libgcc->reg = dlsym(library, "_Unwind_GetGR");
    *(void **)&libgcc->stack = dlsym(library, "_Unwind_GetCFA");
    return libgcc->table != NULL && libgcc->backtrace != NULL && libgcc->address != NULL &&
           libgcc->reg != NULL && libgcc->stack != NULL;
}
