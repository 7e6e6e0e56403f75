/* SPDX-License-Identifier: MIT
 *
 * cxx.c - operator new and delete, defined by their mangled names.
 *
 * Without these, C++ programs would reach malloc through libstdc++'s operators, which cost a call
 * and lose the size that sized delete knows.  The C++ runtime is not linked: what the standard asks
 * of a failing new (call the new-handler until it helps, then throw bad_alloc) is done through weak
 * references, which are there whenever a C++ program is.
 *
 * A nothrow new must also swallow what a new-handler throws, which C cannot.  In that rare case the
 * call is handed to the operator of the C++ runtime that ours hides, which calls ours and catches.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <tally/tally.h>

#include "base/common.h"
#include "base/log.h"
#include "opt/opt.h"

#if TALLY_OVERRIDE

typedef void (*new_handler)(void);
extern new_handler std_get_new_handler(void) __asm__("_ZSt15get_new_handlerv")
    __attribute__((weak));
extern void *dlopen(const char *, int) __attribute__((weak)); /* absent from static programs */
extern _Noreturn void std_throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv")
    __attribute__((weak));

static void *try_alloc(size_t size, size_t alignment) {
    return alignment == 0 ? tally_malloc(size) : tally_aligned_alloc(alignment, size);
}

/* A C program may load C++ code late, and with it the runtime that was not there at our start. */
static COLD void *late_symbol(const char *name) {
    void *runtime = dlopen != NULL ? dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    return runtime != NULL ? dlsym(runtime, name) : NULL;
}

static COLD new_handler current_handler(void) {
    new_handler (*get)(void) = std_get_new_handler;
    if (get == NULL) {
        get = (new_handler(*)(void))late_symbol("_ZSt15get_new_handlerv");
    }
    return get != NULL ? get() : NULL;
}

/* The option experimental_infallible_new: no handler, no exception, no NULL. */
static COLD void end_if_infallible(size_t size) {
    if (opt.experimental_infallible_new) {
        fatal("operator new(%zu): out of memory, and experimental_infallible_new:true ends the"
              " program%s",
              size, size >= 1 << 30 ? "; a size like this may come from a corrupted variable" : "");
    }
}

static COLD void *new_slow(size_t size, size_t alignment) {
    end_if_infallible(size);
    for (;;) {
        new_handler handler = current_handler();
        if (handler == NULL) {
            break;
        }
        handler();
        void *object = try_alloc(size, alignment);
        if (object != NULL) {
            return object;
        }
    }
    void (*throw_bad_alloc)(void) = std_throw_bad_alloc;
    if (throw_bad_alloc == NULL) {
        throw_bad_alloc = (void (*)(void))late_symbol("_ZSt17__throw_bad_allocv");
    }
    if (throw_bad_alloc != NULL) {
        throw_bad_alloc();
    }
    fatal("operator new(%zu): out of memory, and there is no C++ runtime to throw with", size);
}

static inline void *new_or_throw(size_t size) {
    void *object = tally_malloc(size);
    return LIKELY(object != NULL) ? object : new_slow(size, 0);
}

static inline void *new_aligned_or_throw(size_t size, size_t alignment) {
    void *object = tally_aligned_alloc(alignment, size);
    return LIKELY(object != NULL) ? object : new_slow(size, alignment);
}

typedef void *(*nothrow_new)(size_t, const void *);
typedef void *(*nothrow_new_aligned)(size_t, size_t, const void *);

/* The C++ runtime's own definition, behind ours.  The next definition may be another allocator's,
 * so the usual runtime is asked first, by its name. */
static COLD void *hidden_symbol(const char *name) {
    void *hidden = late_symbol(name);
    return hidden != NULL ? hidden : dlsym(RTLD_NEXT, name);
}

/* The handler of a failed nothrow new runs inside the C++ runtime's own operator. */
static COLD void *nothrow_slow(size_t size, const void *tag) {
    end_if_infallible(size);
    if (current_handler() == NULL) {
        return NULL;
    }
    nothrow_new hidden = (nothrow_new)hidden_symbol("_ZnwmRKSt9nothrow_t");
    return hidden != NULL ? hidden(size, tag) : NULL;
}

static COLD void *nothrow_aligned_slow(size_t size, size_t alignment, const void *tag) {
    end_if_infallible(size);
    if (current_handler() == NULL) {
        return NULL;
    }
    nothrow_new_aligned hidden =
        (nothrow_new_aligned)hidden_symbol("_ZnwmSt11align_val_tRKSt9nothrow_t");
    return hidden != NULL ? hidden(size, alignment, tag) : NULL;
}

static inline void *new_nothrow(size_t size, const void *tag) {
    void *object = tally_malloc(size);
    return LIKELY(object != NULL) ? object : nothrow_slow(size, tag);
}

static inline void *new_aligned_nothrow(size_t size, size_t alignment, const void *tag) {
    void *object = tally_aligned_alloc(alignment, size);
    return LIKELY(object != NULL) ? object : nothrow_aligned_slow(size, alignment, tag);
}

/* m: size_t, v: void, Pv: void *, RKSt9nothrow_t: the nothrow tag, St11align_val_t: alignment. */
#define MANGLED(name) __asm__(name) __attribute__((visibility("default")))
void *op_new(size_t) MANGLED("_Znwm");
void *op_new_array(size_t) MANGLED("_Znam");
void *op_new_nothrow(size_t, const void *) MANGLED("_ZnwmRKSt9nothrow_t");
void *op_new_array_nothrow(size_t, const void *) MANGLED("_ZnamRKSt9nothrow_t");
void *op_new_aligned(size_t, size_t) MANGLED("_ZnwmSt11align_val_t");
void *op_new_array_aligned(size_t, size_t) MANGLED("_ZnamSt11align_val_t");
void *op_new_aligned_nothrow(size_t, size_t, const void *)
    MANGLED("_ZnwmSt11align_val_tRKSt9nothrow_t");
void *op_new_array_aligned_nothrow(size_t, size_t, const void *)
    MANGLED("_ZnamSt11align_val_tRKSt9nothrow_t");
void op_delete(void *) MANGLED("_ZdlPv");
void op_delete_array(void *) MANGLED("_ZdaPv");
void op_delete_nothrow(void *, const void *) MANGLED("_ZdlPvRKSt9nothrow_t");
void op_delete_array_nothrow(void *, const void *) MANGLED("_ZdaPvRKSt9nothrow_t");
void op_delete_sized(void *, size_t) MANGLED("_ZdlPvm");
void op_delete_array_sized(void *, size_t) MANGLED("_ZdaPvm");
void op_delete_aligned(void *, size_t) MANGLED("_ZdlPvSt11align_val_t");
void op_delete_array_aligned(void *, size_t) MANGLED("_ZdaPvSt11align_val_t");
void op_delete_aligned_nothrow(void *, size_t, const void *)
    MANGLED("_ZdlPvSt11align_val_tRKSt9nothrow_t");
void op_delete_array_aligned_nothrow(void *, size_t, const void *)
    MANGLED("_ZdaPvSt11align_val_tRKSt9nothrow_t");
void op_delete_sized_aligned(void *, size_t, size_t) MANGLED("_ZdlPvmSt11align_val_t");
void op_delete_array_sized_aligned(void *, size_t, size_t) MANGLED("_ZdaPvmSt11align_val_t");

void *op_new(size_t size) {
    return new_or_throw(size);
}
void *op_new_array(size_t size) {
    return new_or_throw(size);
}
void *op_new_nothrow(size_t size, const void *tag) {
    return new_nothrow(size, tag);
}
void *op_new_array_nothrow(size_t size, const void *tag) {
    return new_nothrow(size, tag);
}
void *op_new_aligned(size_t size, size_t alignment) {
    return new_aligned_or_throw(size, alignment);
}
void *op_new_array_aligned(size_t size, size_t alignment) {
    return new_aligned_or_throw(size, alignment);
}
void *op_new_aligned_nothrow(size_t size, size_t alignment, const void *tag) {
    return new_aligned_nothrow(size, alignment, tag);
}
void *op_new_array_aligned_nothrow(size_t size, size_t alignment, const void *tag) {
    return new_aligned_nothrow(size, alignment, tag);
}
void op_delete(void *pointer) {
    tally_free(pointer);
}
void op_delete_array(void *pointer) {
    tally_free(pointer);
}
void op_delete_nothrow(void *pointer, const void *tag) {
    (void)tag;
    tally_free(pointer);
}
void op_delete_array_nothrow(void *pointer, const void *tag) {
    (void)tag;
    tally_free(pointer);
}
void op_delete_sized(void *pointer, size_t size) {
    tally_free_sized(pointer, size);
}
void op_delete_array_sized(void *pointer, size_t size) {
    tally_free_sized(pointer, size);
}
void op_delete_aligned(void *pointer, size_t alignment) {
    (void)alignment;
    tally_free(pointer);
}
void op_delete_array_aligned(void *pointer, size_t alignment) {
    (void)alignment;
    tally_free(pointer);
}
void op_delete_aligned_nothrow(void *pointer, size_t alignment, const void *tag) {
    (void)alignment;
    (void)tag;
    tally_free(pointer);
}
void op_delete_array_aligned_nothrow(void *pointer, size_t alignment, const void *tag) {
    (void)alignment;
    (void)tag;
    tally_free(pointer);
}
void op_delete_sized_aligned(void *pointer, size_t size, size_t alignment) {
    tally_free_aligned_sized(pointer, alignment, size);
}
void op_delete_array_sized_aligned(void *pointer, size_t size, size_t alignment) {
    tally_free_aligned_sized(pointer, alignment, size);
}
#endif
