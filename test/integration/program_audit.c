/* SPDX-License-Identifier: MIT
 *
 * program_audit.c - a library for LD_AUDIT. The loader maps it, with a libc of its own, before the
 * program's libraries are relocated, and calls it at every object it opens. It allocates each time;
 * test_life.sh links it to our library, so that ours is what serves it, and once without.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

static void *kept[64];
static unsigned count;

static void allocate(size_t size) {
    void **slot = &kept[count++ % 64];
    free(*slot);
    *slot = malloc(size);
    if (*slot == NULL) {
        abort();
    }
    memset(*slot, 1, size);
}

unsigned la_version(unsigned version) {
    allocate(100);
    return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie) {
    (void)map;
    (void)namespace;
    (void)cookie;
    allocate(5000);
    allocate(200000);
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to,
                       unsigned *flags, const char *name) {
    (void)index;
    (void)from;
    (void)to;
    (void)flags;
    allocate(strlen(name) + 1);
    return symbol->st_value;
}
