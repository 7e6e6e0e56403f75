/* SPDX-License-Identifier: MIT
 *
 * ctl_sizes.c - the parts of arenas.* that never change: sizes, and how many there are.
 */
#include "base/os.h"
#include "control/ctl.h"
#include "heap/counts.h"

static int give_size(struct ctl_call *call, size_t value) {
    call->value.size = value;
    return 0;
}

static int give_unsigned(struct ctl_call *call, unsigned value) {
    call->value.number = value;
    return 0;
}

static int give_uint32(struct ctl_call *call, uint32_t value) {
    call->value.uint32 = value;
    return 0;
}

/* Bin j serves size class j + 1. */
static const struct size_class *class_of(const struct ctl_call *call) {
    return &size_classes[call->word[0] + 1];
}

static size_t largest_cached(void) {
    union value most = {.size = SMALL_MAX};
    ctl_option("tcache_max", &most);
    return min_size(most.size, SMALL_MAX);
}

int arenas_quantum(struct ctl_call *call) {
    return give_size(call, SMALLEST);
}

int arenas_page(struct ctl_call *call) {
    return give_size(call, os_facts.page_bytes);
}

int arenas_hugepage(struct ctl_call *call) {
    return give_size(call, CHUNK_BYTES);
}

int arenas_tcache_max(struct ctl_call *call) {
    size_t most = largest_cached();
    return give_size(call, most == 0 ? 0 : size_classes[size_class_of(most)].size);
}

int arenas_nbins(struct ctl_call *call) {
    return give_unsigned(call, BIN_CLASSES);
}

int arenas_nhbins(struct ctl_call *call) {
    size_t most = largest_cached();
    return give_unsigned(call, most == 0 ? 0 : size_class_of(most));
}

int arenas_nlextents(struct ctl_call *call) {
    return give_unsigned(call, LEXTENT_CLASSES);
}

int arenas_bin_size(struct ctl_call *call) {
    return give_size(call, class_of(call)->size);
}

int arenas_bin_nregs(struct ctl_call *call) {
    return give_uint32(call, class_of(call)->total);
}

int arenas_bin_slab_size(struct ctl_call *call) {
    return give_size(call, (size_t)class_of(call)->slab_mask + 1);
}

int arenas_bin_nshards(struct ctl_call *call) {
    return give_uint32(call, 1);
}

int arenas_lextent_size(struct ctl_call *call) {
    return give_size(call, counts_lextent_size((unsigned)call->word[0]));
}
