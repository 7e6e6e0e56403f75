/* SPDX-License-Identifier: MIT
 *
 * tables.c - asks libgcc for the tables of an address.
 *
 * libgcc is opened, and used once, in tables_prepare.
 */
#define _GNU_SOURCE /* dladdr */
#include "stack/tables.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "base/os.h"
#include "stack/libgcc.h"
#include "stack/stack.h"

enum state { STATE_NEW, STATE_PREPARING, STATE_READY, STATE_MUTE /* not to be asked again */ };

static struct {
    _Atomic int state;
    struct code_range libgcc; /* its code, if it is a library of its own */
    libgcc_finder *find;
} g;

struct code_range range_of_file(const void *start) {
    const ElfW(Ehdr) *file = start;
    if (memcmp(file->e_ident, ELFMAG, SELFMAG) != 0) {
        return (struct code_range){0};
    }
    const ElfW(Phdr) *headers = (const void *)((uintptr_t)start + file->e_phoff);
    uintptr_t low = UINTPTR_MAX;
    uintptr_t high = 0;
    for (unsigned i = 0; i < file->e_phnum; i++) {
        if (headers[i].p_type == PT_LOAD) {
            low = min_size(low, headers[i].p_vaddr);
            high = max_size(high, headers[i].p_vaddr + headers[i].p_memsz);
        }
    }
    uintptr_t bias = (uintptr_t)start - align_down(low, os_facts.page_bytes);
    return (struct code_range){bias + low, bias + high};
}

#pragma weak dladdr

static void find_range_of_libgcc(void) {
    Dl_info info;
    if (&dladdr != NULL && dladdr((void *)g.find, &info) != 0) {
        struct code_range range = range_of_file(info.dli_fbase);
        bool is_program = is_within(range, os_program_headers());
        g.libgcc = is_program ? (struct code_range){0} : range;
    }
}

/* In a static program libgcc knows no tables before its constructor has run. */
static bool has_tables_for_us(void) {
    struct libgcc_bases bases;
    return g.find((void *)tables_prepare, &bases) != NULL;
}

void tables_prepare(void) {
    int expected = STATE_NEW;
    if (!atomic_compare_exchange_strong(&g.state, &expected, STATE_PREPARING)) {
        return;
    }
    g.find = libgcc_find();
    if (g.find == NULL || !has_tables_for_us()) {
        g.state = STATE_NEW; /* Perhaps next time. */
        return;
    }
    find_range_of_libgcc();
    /* Release shows the rest to whoever acquires the state. */
    atomic_store_explicit(&g.state, STATE_READY, memory_order_release);
}

void unwind_forked(void) {
    if (g.state == STATE_READY && g.libgcc.high == 0) {
        g.state = STATE_MUTE;
    }
}

bool tables_may_ask(uintptr_t caller) {
    return atomic_load_explicit(&g.state, memory_order_acquire) == STATE_READY &&
           !is_within(g.libgcc, caller);
}

/* Includes the length itself. */
static size_t bytes_of(const unsigned char *part) {
    uint32_t length;
    memcpy(&length, part, sizeof(length));
    return length != UINT32_MAX ? sizeof(length) + length : 0;
}

struct cfi_rule tables_find(uintptr_t address) {
    struct libgcc_bases bases;
    struct cfi_rule rule;
    uint32_t back;
    const unsigned char *own = g.find((void *)address, &bases);
    if (own == NULL) {
        return (struct cfi_rule){.frame = CFI_NO_TABLE};
    }
    memcpy(&back, own + sizeof(uint32_t), sizeof(back));
    const unsigned char *shared = own + sizeof(uint32_t) - back;
    struct cfi_parts parts = {own, shared, bytes_of(own), bytes_of(shared)};
    bool is_found = cfi_find_rule(&parts, (uintptr_t)bases.function, address, &rule);
    return is_found ? rule : (struct cfi_rule){.frame = CFI_NO_TABLE};
}
