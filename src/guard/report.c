/* SPDX-License-Identifier: MIT
 *
 * report.c - one readable sentence about a misuse, then the end.
 *
 * The heap has proved the verdict; here it is only put into words.  Each sentence has a program in
 * test/misuse, or a test, that makes it appear.
 *
 * Threads     No lock is held and none is taken.
 */
#include <errno.h>

#include "base/log.h"
#include "guard/guard.h"
#include "heap/heap.h"
#include "opt/opt.h"

void guard_refuse(const char *function, const void *address, const struct heap_object *object) {
    switch (object->verdict) {
    case HEAP_DOUBLE_FREE:
        fatal("%s(%p): the %zu-byte object is already free", function, address, object->size);
    case HEAP_NEVER_ALLOCATED:
        fatal("%s(%p): this %zu-byte object was never allocated", function, address, object->size);
    case HEAP_INTERIOR:
        fatal("%s(%p): not the start of an object: %zu bytes into the %zu-byte object at %p",
              function, address, (uintptr_t)address - object->base, object->size,
              (void *)object->base);
    case HEAP_SLAB_END:
        fatal("%s(%p): no object is here: behind the last %zu-byte object of a slab", function,
              address, object->size);
    case HEAP_FREE_PAGES:
        fatal("%s(%p): no object is here: this memory of the heap is free", function, address);
    case HEAP_FOREIGN:
        fatal("%s(%p): not memory of this heap", function, address);
    case HEAP_LIVE:
        break;
    }
    /* The object was live a moment ago and no longer is: two threads freed it at once. */
    fatal("%s(%p): the %zu-byte object is already free", function, address, object->size);
}

void guard_refuse_size(const char *function, const void *address, const struct heap_object *object,
                       size_t size, size_t expected) {
    fatal("%s(%p, %zu): wrong size: the object has %zu bytes, one of that size would have %zu",
          function, address, size, object->size, expected);
}

/* In jemalloc's words. */
void guard_refuse_cache(unsigned number) {
    fatal("invalid tcache id (%u).", number);
}

void guard_fail(const char *function, int error) {
    if (opt.xmalloc) {
        fatal("%s(): %s, and xmalloc:true ends the program", function,
              error == EINVAL ? "invalid alignment" : "out of memory");
    }
}
