/* SPDX-License-Identifier: MIT
 *
 * fill.c - the bytes of junk and zero; see guard.h.
 *
 * Threads     The caller owns the object, or is about to give it up.
 */
#include <string.h>

#include "guard/guard.h"

enum { JUNK_NEW = 0xa5, JUNK_OLD = 0x5a };

COLD void fill_new_bytes(void *object, size_t from, bool *zeroed) {
    if (object == NULL) {
        return;
    }
    size_t size = heap_locate(object).size;
    if (from >= size || (opt.zero && *zeroed)) {
        return;
    }
    if (opt.zero && from == 0) {
        heap_zero_new(object, size);
        *zeroed = true;
    } else if (opt.zero) {
        memset((char *)object + from, 0, size - from);
    } else if (opt.junk != JUNK_FREE) {
        memset((char *)object + from, JUNK_NEW, size - from);
        *zeroed = false;
    }
}

void fill_zeros(void *object, size_t bytes) {
    if (UNLIKELY(opt.junk != JUNK_FALSE)) {
        memset(object, 0, bytes);
    } else {
        heap_zero_new(object, bytes);
    }
}

COLD void fill_freed_bytes(const struct heap_object *object) {
    if (object->verdict == HEAP_LIVE && object->span != NULL && opt.junk != JUNK_ALLOC) {
        memset((void *)object->base, JUNK_OLD, object->size);
    }
}
