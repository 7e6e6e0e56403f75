/* SPDX-License-Identifier: MIT
 *
 * ctl_thread.c - thread.* and tcache.*: the cache of the calling thread, and explicit caches.
 */
#include <errno.h>
#include <string.h>

#include "base/os.h"
#include "control/ctl.h"
#include "heap/heap.h"
#include "opt/opt.h"

int thread_arena_leaf(struct ctl_call *call) {
    if (!call->writes) {
        call->value.number = thread_arena();
        return 0;
    }
    unsigned arena = call->value.number;
    if (arena >= arena_limit() || !arena_exists(arena)) {
        return EFAULT;
    }
    return arena == thread_arena() || thread_set_arena(arena) ? 0 : EAGAIN;
}

int thread_allocated_leaf(struct ctl_call *call) {
    call->value.uint64 = thread_allocated();
    return 0;
}

int thread_deallocated_leaf(struct ctl_call *call) {
    call->value.uint64 = thread_deallocated();
    return 0;
}

static int give_live(struct ctl_call *call, uint64_t *counter) {
    call->value.pointer = counter;
    return counter != NULL ? 0 : EAGAIN;
}

int thread_allocatedp_leaf(struct ctl_call *call) {
    return give_live(call, thread_allocated_live());
}

int thread_deallocatedp_leaf(struct ctl_call *call) {
    return give_live(call, thread_deallocated_live());
}

int thread_peak_leaf(struct ctl_call *call) {
    call->value.uint64 = thread_peak();
    return 0;
}

int thread_peak_reset_leaf(struct ctl_call *call) {
    (void)call;
    thread_reset_peak();
    return 0;
}

/* ---------------------------------------------------------------- the thread's own cache */

int thread_tcache_enabled(struct ctl_call *call) {
    if (!call->writes) {
        call->value.boolean = thread_is_cached();
    } else if (call->value.boolean != thread_is_cached()) {
        thread_set_cached(call->value.boolean);
    }
    return 0;
}

int thread_tcache_max(struct ctl_call *call) {
    if (!call->writes) {
        call->value.size = thread_cache_max();
        return 0;
    }
    size_t most = min_size(call->value.size, SMALL_MAX);
    thread_set_cache_max(most == 0 ? 0 : size_classes[size_class_of(most)].size);
    return 0;
}

int thread_tcache_flush(struct ctl_call *call) {
    (void)call;
    if (!thread_is_cached()) {
        return EFAULT;
    }
    thread_flush();
    return 0;
}

int thread_idle_leaf(struct ctl_call *call) {
    (void)call;
    if (thread_is_cached()) {
        thread_flush();
    }
    if (arena_count() > 2 * os_facts.cpus) {
        arena_purge(thread_arena());
    }
    return 0;
}

int thread_ncached_max_read(struct ctl_call *call) {
    size_t size = 0;
    if (call->newp == NULL || ctl_take_new(call, &size, sizeof(size)) != 0 || size > SMALL_MAX) {
        return EINVAL;
    }
    size_t most = thread_class_max(size_class_of(size));
    return ctl_put_old(call, &most, sizeof(most));
}

enum { LONGEST_LIST = 1000, MOST_CACHED = 8191 };

static void apply_range(const struct opt_range *range) {
    unsigned number = (unsigned)min_size(range->value, MOST_CACHED);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        /* A class belongs to the range if a size of the range is rounded to it. */
        if (size_classes[c].size >= range->from && size_classes[c - 1].size < range->to) {
            thread_set_class_max(c, number);
        }
    }
}

/* Calls `use`, unless NULL, for each range before the first mistake.  False if there is a
 * mistake. */
static bool read_list(const char *list, void (*use)(const struct opt_range *range)) {
    const char *end = list + strlen(list);
    struct opt_range range;
    bool is_empty = list == end;
    while (opt_next_range(&list, end, &range)) {
        if (use != NULL) {
            use(&range);
        }
    }
    return list == end && !is_empty;
}

int thread_ncached_max_write(struct ctl_call *call) {
    if (!thread_is_cached()) {
        return ENOENT;
    }
    if (call->oldp != NULL || call->oldlenp != NULL) {
        return EPERM;
    }
    char *list = NULL;
    if (ctl_take_new(call, &list, sizeof(list)) != 0 || list == NULL ||
        strnlen(list, LONGEST_LIST) == LONGEST_LIST || !read_list(list, NULL)) {
        return EINVAL;
    }
    read_list(list, apply_range);
    return 0;
}

/* ---------------------------------------------------------------- numbered caches */

int tcache_create_leaf(struct ctl_call *call) {
    if (call->newp != NULL || call->newlen != 0) {
        return EPERM;
    }
    int error = ctl_verify_old(call, sizeof(unsigned));
    if (error != 0) {
        return error;
    }
    int id = tcaches_create();
    if (id < 0) {
        return EFAULT;
    }
    unsigned number = (unsigned)id;
    return ctl_put_old(call, &number, sizeof(number));
}

int tcache_flush_leaf(struct ctl_call *call) {
    if (!tcaches_exists(call->value.number)) {
        return EFAULT;
    }
    tcaches_flush(call->value.number);
    return 0;
}

int tcache_destroy_leaf(struct ctl_call *call) {
    if (!tcaches_exists(call->value.number)) {
        return EFAULT;
    }
    tcaches_destroy(call->value.number);
    return 0;
}
