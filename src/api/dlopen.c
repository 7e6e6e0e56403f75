/* SPDX-License-Identifier: MIT
 *
 * dlopen.c - dlopen as the program calls it, without RTLD_DEEPBIND.
 *
 * A library that is opened with that flag finds libc's free before ours, and gets blocks of ours to
 * free from the program: php opens its modules so, and crashed.  Without the flag the names of the
 * program come first, as for every other library.
 *
 * libc looks at the address that dlopen returns to, for the caller's search path and $ORIGIN.  So the
 * call of libc's own is a jump (-foptimize-sibling-calls), and its caller stays ours.
 *
 * A part of libtally.so only: a static program has no dlopen worth the name, and one that is linked
 * with libtally.a and opens libraries in this way has two allocators.
 *
 * Threads     Any: threads that look libc's dlopen up at the same time find the same.
 */
#define _GNU_SOURCE /* RTLD_NEXT, RTLD_DEEPBIND */
#include <dlfcn.h>
#include <stdatomic.h>

#include "base/common.h"
#include "base/log.h"

typedef void *opener(const char *file, int mode);

static opener *find_next(void) {
    static _Atomic(opener *) next;
    opener *found = atomic_load_explicit(&next, memory_order_relaxed);
    if (UNLIKELY(found == NULL)) {
        *(void **)&found = dlsym(RTLD_NEXT, "dlopen");
        ensure(found != NULL);
        atomic_store_explicit(&next, found, memory_order_relaxed);
    }
    return found;
}

EXPORT void *dlopen(const char *file, int mode) {
    return find_next()(file, mode & ~RTLD_DEEPBIND);
}
