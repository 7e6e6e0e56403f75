/* SPDX-License-Identifier: MIT
 *
 * tc.c - gperftools' tc_ functions: a library of its own, libtally-gperftools.so, over libtally.so.
 *
 * Few programs call these, and those that do are linked with gperftools or built for it.  They
 * preload this library instead of libtally.so, which it brings along.  It is marked as an auxiliary
 * filter of libtally.so: the loader puts a filtered library before its filter, and so before
 * gperftools, whereas a library that is merely needed would come after gperftools.
 *
 * Almost all functions are a jump into libtally.so, so that call stacks do not show them.
 *
 * Errors      Where tc_set_new_mode(1) was called, a failed request of the C functions goes on as a
 *             nothrow new: the program's new-handler is called until it helps or gives up.
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <errno.h>
#include <gperftools/malloc_extension_c.h>
#include <gperftools/nallocx.h>
#include <gperftools/tcmalloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally/tally.h>

#include "base/common.h"

/* As in the header, which declares them for C++ alone, where an alignment is a size_t and a nothrow
 * tag is passed by address. */
EXPORT int tc_set_new_mode(int flag);
EXPORT int tc_query_new_mode(void);
EXPORT void *tc_new(size_t size);
EXPORT void *tc_newarray(size_t size);
EXPORT void *tc_new_nothrow(size_t size, const void *tag);
EXPORT void *tc_newarray_nothrow(size_t size, const void *tag);
EXPORT void *tc_new_aligned(size_t size, size_t alignment);
EXPORT void *tc_newarray_aligned(size_t size, size_t alignment);
EXPORT void *tc_new_aligned_nothrow(size_t size, size_t alignment, const void *tag);
EXPORT void *tc_newarray_aligned_nothrow(size_t size, size_t alignment, const void *tag);
EXPORT void tc_delete(void *pointer);
EXPORT void tc_deletearray(void *pointer);
EXPORT void tc_delete_nothrow(void *pointer, const void *tag);
EXPORT void tc_deletearray_nothrow(void *pointer, const void *tag);
EXPORT void tc_delete_sized(void *pointer, size_t size);
EXPORT void tc_deletearray_sized(void *pointer, size_t size);
EXPORT void tc_delete_aligned(void *pointer, size_t alignment);
EXPORT void tc_deletearray_aligned(void *pointer, size_t alignment);
EXPORT void tc_delete_aligned_nothrow(void *pointer, size_t alignment, const void *tag);
EXPORT void tc_deletearray_aligned_nothrow(void *pointer, size_t alignment, const void *tag);
EXPORT void tc_delete_sized_aligned(void *pointer, size_t size, size_t alignment);
EXPORT void tc_deletearray_sized_aligned(void *pointer, size_t size, size_t alignment);

static _Atomic int new_mode;

/* ---------------------------------------------------------------- operators */

/* The operators of libtally.so itself: a plain call would reach replacements by the program, which
 * may call these functions.  Either all or none are set. */
static struct {
    _Atomic(void *(*)(size_t)) plain;
    _Atomic(void *(*)(size_t, const void *)) nothrow;
    _Atomic(void *(*)(size_t, size_t)) aligned;
    _Atomic(void *(*)(size_t, size_t, const void *)) aligned_nothrow;
} operators;

static void *find_operator(void *library, const char *name) {
    void *found = library != NULL ? dlsym(library, name) : NULL;
    if (found == NULL) {
        abort(); /* This library was installed with another build of libtally.so. */
    }
    return found;
}

/* `plain`, which is tested, is set last. */
static COLD void find_operators(void) {
    Dl_info info;
    void *library = dladdr((void *)tally_malloc, &info) != 0
                        ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                        : NULL;
    operators.nothrow = find_operator(library, "_ZnwmRKSt9nothrow_t");
    operators.aligned = find_operator(library, "_ZnwmSt11align_val_t");
    operators.aligned_nothrow = find_operator(library, "_ZnwmSt11align_val_tRKSt9nothrow_t");
    operators.plain = find_operator(library, "_Znwm");
}

static inline void need_operators(void) {
    if (UNLIKELY(operators.plain == NULL)) {
        find_operators();
    }
}

/* A request of the C functions has failed, and the new-handler is to be called. */
static COLD void *try_handler(size_t size, size_t alignment) {
    static const char nothrow;
    need_operators();
    return alignment == 0 ? operators.nothrow(size, &nothrow)
                          : operators.aligned_nothrow(size, alignment, &nothrow);
}

EXPORT int tc_set_new_mode(int flag) {
    return __atomic_exchange_n((int *)&new_mode, flag, __ATOMIC_RELAXED);
}

EXPORT int tc_query_new_mode(void) {
    return new_mode;
}

/* ---------------------------------------------------------------- C */

EXPORT const char *tc_version(int *major, int *minor, const char **patch) {
    if (major != NULL) {
        *major = TC_VERSION_MAJOR;
    }
    if (minor != NULL) {
        *minor = TC_VERSION_MINOR;
    }
    if (patch != NULL) {
        *patch = TC_VERSION_PATCH;
    }
    return TC_VERSION_STRING;
}

EXPORT void *tc_malloc(size_t size) {
    if (LIKELY(new_mode == 0)) {
        return tally_malloc(size);
    }
    return try_handler(size, 0);
}

EXPORT void *tc_malloc_skip_new_handler(size_t size) {
    return tally_malloc(size);
}

EXPORT void tc_free(void *pointer) {
    tally_free(pointer);
}

EXPORT void tc_cfree(void *pointer) {
    tally_free(pointer);
}

EXPORT void tc_free_sized(void *pointer, size_t size) {
    tally_free_sized(pointer, size);
}

EXPORT void tc_free_aligned_sized(void *pointer, size_t alignment, size_t size) {
    tally_free_aligned_sized(pointer, alignment, size);
}

EXPORT void *tc_calloc(size_t count, size_t size) {
    size_t bytes;
    if (LIKELY(new_mode == 0) || __builtin_mul_overflow(count, size, &bytes)) {
        return tally_calloc(count, size);
    }
    void *object = try_handler(bytes, 0);
    return object != NULL ? memset(object, 0, bytes) : NULL;
}

static void *realloc_by_handler(void *pointer, size_t size) {
    void *object = tally_realloc(pointer, size);
    if (object != NULL || size == 0) {
        return object;
    }
    object = try_handler(size, 0);
    if (object != NULL && pointer != NULL) {
        memcpy(object, pointer, min_size(size, tally_usable_size(pointer)));
        tally_free(pointer);
    }
    return object;
}

EXPORT void *tc_realloc(void *pointer, size_t size) {
    if (LIKELY(new_mode == 0)) {
        return tally_realloc(pointer, size);
    }
    return realloc_by_handler(pointer, size);
}

EXPORT void *tc_memalign(size_t alignment, size_t size) {
    if (LIKELY(new_mode == 0) || !is_power_of_two(alignment)) {
        return tally_memalign(alignment, size);
    }
    return try_handler(size, alignment);
}

EXPORT int tc_posix_memalign(void **result, size_t alignment, size_t size) {
    int error = tally_posix_memalign(result, alignment, size);
    void *object = error == ENOMEM && new_mode != 0 ? try_handler(size, alignment) : NULL;
    if (object == NULL) {
        return error;
    }
    *result = object;
    return 0;
}

EXPORT void *tc_valloc(size_t size) {
    return tally_valloc(size);
}

EXPORT void *tc_pvalloc(size_t size) {
    return tally_pvalloc(size);
}

EXPORT size_t tc_malloc_size(void *pointer) {
    return tally_usable_size(pointer);
}

EXPORT size_t tc_nallocx(size_t size, int flags) {
    return nallocx(size, flags);
}

/* ---------------------------------------------------------------- questions */

EXPORT void tc_malloc_stats(void) {
    char text[4096];
    MallocExtension_GetStats(text, sizeof(text));
    fputs(text, stderr);
}

/* 1 is refusal: there are no such knobs. */
EXPORT int tc_mallopt(int command, int value) {
    (void)command;
    (void)value;
    return 1;
}

EXPORT struct mallinfo2 tc_mallinfo2(void) {
    struct tally_totals totals;
    tally_totals(&totals);
    size_t small = totals.cached + totals.slab_free;
    size_t rest = totals.mapped - min_size(totals.live + small, totals.mapped);
    return (struct mallinfo2){
        .arena = totals.mapped, .fsmblks = small, .fordblks = rest, .uordblks = totals.live};
}

EXPORT struct mallinfo tc_mallinfo(void) {
    struct mallinfo2 wide = tc_mallinfo2();
    return (struct mallinfo){
        .arena = saturate_int(wide.arena),
        .fsmblks = saturate_int(wide.fsmblks),
        .fordblks = saturate_int(wide.fordblks),
        .uordblks = saturate_int(wide.uordblks),
    };
}

/* ---------------------------------------------------------------- C++ */

EXPORT void *tc_new(size_t size) {
    need_operators();
    return operators.plain(size);
}

EXPORT void *tc_new_nothrow(size_t size, const void *tag) {
    need_operators();
    return operators.nothrow(size, tag);
}

EXPORT void *tc_new_aligned(size_t size, size_t alignment) {
    need_operators();
    return operators.aligned(size, alignment);
}

EXPORT void *tc_new_aligned_nothrow(size_t size, size_t alignment, const void *tag) {
    need_operators();
    return operators.aligned_nothrow(size, alignment, tag);
}

EXPORT void *tc_newarray(size_t size) {
    need_operators();
    return operators.plain(size);
}

EXPORT void *tc_newarray_nothrow(size_t size, const void *tag) {
    need_operators();
    return operators.nothrow(size, tag);
}

EXPORT void *tc_newarray_aligned(size_t size, size_t alignment) {
    need_operators();
    return operators.aligned(size, alignment);
}

EXPORT void *tc_newarray_aligned_nothrow(size_t size, size_t alignment, const void *tag) {
    need_operators();
    return operators.aligned_nothrow(size, alignment, tag);
}

EXPORT void tc_delete(void *pointer) {
    tally_free(pointer);
}

EXPORT void tc_deletearray(void *pointer) {
    tally_free(pointer);
}

EXPORT void tc_delete_nothrow(void *pointer, const void *tag) {
    (void)tag;
    tally_free(pointer);
}

EXPORT void tc_deletearray_nothrow(void *pointer, const void *tag) {
    (void)tag;
    tally_free(pointer);
}

EXPORT void tc_delete_sized(void *pointer, size_t size) {
    tally_free_sized(pointer, size);
}

EXPORT void tc_deletearray_sized(void *pointer, size_t size) {
    tally_free_sized(pointer, size);
}

EXPORT void tc_delete_aligned(void *pointer, size_t alignment) {
    (void)alignment;
    tally_free(pointer);
}

EXPORT void tc_deletearray_aligned(void *pointer, size_t alignment) {
    (void)alignment;
    tally_free(pointer);
}

EXPORT void tc_delete_aligned_nothrow(void *pointer, size_t alignment, const void *tag) {
    (void)alignment;
    (void)tag;
    tally_free(pointer);
}

EXPORT void tc_deletearray_aligned_nothrow(void *pointer, size_t alignment, const void *tag) {
    (void)alignment;
    (void)tag;
    tally_free(pointer);
}

EXPORT void tc_delete_sized_aligned(void *pointer, size_t size, size_t alignment) {
    tally_free_aligned_sized(pointer, alignment, size);
}

EXPORT void tc_deletearray_sized_aligned(void *pointer, size_t size, size_t alignment) {
    tally_free_aligned_sized(pointer, alignment, size);
}
