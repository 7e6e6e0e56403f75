/* SPDX-License-Identifier: MIT
 *
 * ctl_experimental.c - how full the slab of an object is, and many objects at once.
 *
 * Programs that defragment themselves ask for the fill of a slab and of its bin, and move an object
 * when its slab is emptier than the others.
 *
 * Threads     Figures are those of a moment; for an object that is freed meanwhile they may be
 *             anything.
 */
#include <errno.h>
#include <string.h>

#include "control/ctl.h"
#include "heap/heap.h"
#include "prof/prof.h"

int utilization_query(struct ctl_call *call) {
    void *address;
    struct bin_use use;
    if (call->oldp == NULL || call->oldlenp == NULL || *call->oldlenp != sizeof(use) ||
        call->newp == NULL || ctl_take_new(call, &address, sizeof(address)) != 0) {
        return EINVAL;
    }
    use = bin_query(address);
    return ctl_put_old(call, &use, sizeof(use));
}

/* The answer about each of many objects. */
struct fill {
    size_t nfree;
    size_t nregs;
    size_t size;
};

int utilization_batch_query(struct ctl_call *call) {
    size_t count = call->newlen / sizeof(void *);
    if (call->oldp == NULL || call->oldlenp == NULL || call->newp == NULL || count == 0 ||
        call->newlen % sizeof(void *) != 0 || *call->oldlenp / sizeof(struct fill) != count ||
        *call->oldlenp % sizeof(struct fill) != 0) {
        return EINVAL;
    }
    for (size_t i = 0; i < count; i++) {
        void *address;
        memcpy(&address, (char *)call->newp + i * sizeof(address), sizeof(address));
        struct bin_use use = bin_query(address);
        struct fill fill = {use.nfree, use.nregs, use.size};
        memcpy((char *)call->oldp + i * sizeof(fill), &fill, sizeof(fill));
    }
    return 0;
}

/* ---------------------------------------------------------------- many objects at once */

struct batch {
    void **ptrs;
    size_t num;
    size_t size;
    int flags;
};

static size_t fill_batch(const struct batch *batch) {
    struct place_request request = place_parse_flags(batch->flags);
    int cache = request.place.cache;
    size_t filled = 0;
    if (batch->size > PTRDIFF_MAX || request.alignment > PTRDIFF_MAX ||
        (cache >= 0 && !tcaches_exists((unsigned)cache))) {
        return 0;
    }
    for (; filled < batch->num; filled++) {
        bool zeroed;
        void *object = sample_alloc(request.place, batch->size, request.alignment, &zeroed);
        if (LIKELY(object == NULL)) {
            object = place_alloc(request.place, batch->size, request.alignment, &zeroed);
        }
        if (object == NULL) {
            break;
        }
        if (request.zero && !zeroed) {
            heap_zero_new(object, heap_size_for(batch->size, request.alignment));
        }
        batch->ptrs[filled] = object;
    }
    return filled;
}

int batch_alloc(struct ctl_call *call) {
    struct batch batch;
    int error = ctl_verify_old(call, sizeof(size_t));
    if (error != 0) {
        return error;
    }
    if (call->newp == NULL || ctl_take_new(call, &batch, sizeof(batch)) != 0 ||
        (batch.ptrs == NULL && batch.num > 0)) {
        return EINVAL;
    }
    size_t filled = fill_batch(&batch);
    return ctl_put_old(call, &filled, sizeof(filled));
}
