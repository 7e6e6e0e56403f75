/* SPDX-License-Identifier: MIT
 *
 * leak.c - a check, step by step.
 *
 *      this process                                    its copy
 *      memory for the result, shared with the copy
 *      stop all other threads         stop.c
 *      copy the process           ------------------>  what is in use of stacks, data, mappings    roots.c
 *      let them go on                                  what leads to what                          mark.c
 *      wait                                            sums, groups, lost objects: the result
 *      the result                 <------------------  ends
 *
 * So threads are held up while the kernel copies page tables, and not while the heap is searched.  Where the
 * process cannot be copied (a limit of processes or memory, a filter of system calls) the search is made here,
 * with all others held up, until the time is over that the caller allows.
 *
 * Threads that keep signals away cannot be stopped.  What they hold in registers is not seen, so whatever is
 * lost is looked for once more, a moment later, and must have been lost both times.
 *
 * The copy makes system calls only.  It takes no lock, for their words are those of another process, and its
 * own memory comes from the kernel.
 *
 * Threads     One check at a time.
 */
#include "leak/leak.h"

#include <signal.h>

#include "base/fmt.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/os.h"
#include "base/os_confined.h"
#include "base/os_threads.h"
#include "base/own.h"
#include "heap/heap.h"
#include "leak/mark.h"
#include "leak/present.h"
#include "leak/roots.h"
#include "leak/stop.h"
#include "leak/work.h"
#include "prof/prof.h"

enum { GROUPS_MOST = 1 << 14, SLOTS_LG = 15, SLOTS = 1 << SLOTS_LG };
#define SECOND_NS UINT64_C(1000000000)
#define COPY_MOST_NS (LEAK_SEARCH_MOST_S * SECOND_NS)
enum {
    COPY_LOOK_NS = 500000,
    MILLISECOND_NS = 1000000,
    WAIT_LAST_MS = 2000, /* for another check, when the process ends */
    AGAIN_NS = 5000000,  /* between two looks at what may be held in registers */
};

/* What both processes see. */
struct shared {
    struct leak_result result;
    bool is_complete;
    bool is_passing; /* it failed for a reason that may be gone soon */
    struct leak_group groups[GROUPS_MOST];
    struct leak_object objects[LEAK_OBJECTS_MOST];
};

static struct {
    struct lock lock;
    _Atomic uint32_t owner; /* the thread that makes a check; 0: none */
    /* The process in which somebody who cannot wait wants to make the last check; 0: nobody does. */
    _Atomic uint32_t ending;
} g = {.lock = LOCK_OF_RANK(RANK_LEAK)};

static bool is_ending(void) {
    return g.ending == os_process_id();
}

/* ---------------------------------------------------------------- the result */

/* While it is made. */
struct tally {
    struct shared *shared;
    const struct shared *before; /* of the same check, or NULL */
    uint64_t since_ns;
    uint32_t *slots; /* 1 + number of a group, by its hash; 0: none */
};

static bool is_alike(const struct leak_group *a, const struct leak_group *b) {
    return a->kind == b->kind && a->stack == b->stack && a->usable == b->usable;
}

static uint32_t *find_slot(const struct tally *tally, const struct leak_group *like) {
    uint64_t key = (uint64_t)like->usable * LEAK_KINDS + like->kind + ((uint64_t)like->stack << 32);
    size_t at = hash_place(key, SLOTS_LG);
    for (;; at = (at + 1) % SLOTS) {
        uint32_t number = tally->slots[at];
        if (number == 0 || is_alike(&tally->shared->groups[number - 1], like)) {
            return &tally->slots[at];
        }
    }
}

static void add(struct leak_sum *sum, size_t bytes, size_t requested) {
    sum->objects++;
    sum->bytes += bytes;
    sum->requested += requested;
}

static struct leak_group group_like(const struct leak_object *object) {
    return (struct leak_group){.kind = object->kind,
                               .stack = object->stack,
                               .usable = object->stack == 0 ? object->usable : 0,
                               .example = object->at};
}

/* The group that an object was added to; NULL where it was not. */
static struct leak_group *find_group(struct tally *tally, const struct leak_object *object) {
    struct leak_group like = group_like(object), rest = {.kind = object->kind};
    uint32_t number = *find_slot(tally, &like);
    number = number != 0 ? number : *find_slot(tally, &rest);
    return number != 0 ? &tally->shared->groups[number - 1] : NULL;
}

/* When there are too many, one of each kind, without stack and size, stands for all that have no other. */
static void add_to_group(struct tally *tally, const struct leak_object *object) {
    struct leak_group like = group_like(object);
    uint32_t *slot = find_slot(tally, &like);
    uint32_t *count = &tally->shared->result.group_count;
    if (*slot == 0 && *count >= GROUPS_MOST - LEAK_KINDS) {
        like.stack = 0;
        like.usable = 0;
        slot = find_slot(tally, &like);
    }
    if (*slot == 0) {
        tally->shared->groups[*count] = like;
        *slot = ++*count;
    }
    add(&tally->shared->groups[*slot - 1].sum, object->usable, object->requested);
}

/* Objects are listed by address.  Of those that were not, nothing is known. */
static bool was_lost_before(const struct shared *before, const struct leak_object *object) {
    size_t low = 0, high = before->result.object_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (before->objects[middle].at < object->at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const struct leak_object *found = &before->objects[low];
    bool is_it = low < before->result.object_count && found->at == object->at &&
                 found->stack == object->stack && found->born_ns == object->born_ns;
    return is_it || before->result.objects_left_out > 0;
}

static struct prof_live record_of(const struct mark_live *live) {
    struct prof_live record = {.requested = live->usable};
    (void)(live->id != 0 && prof_peek(live->id, &record));
    return record;
}

static struct leak_object object_of(const struct mark_live *live, enum leak_kind kind) {
    struct prof_live record = record_of(live);
    return (struct leak_object){
        .at = (const void *)live->at,
        .usable = live->usable,
        .requested = record.requested,
        .kind = kind,
        .stack = record.stack,
        .born_ns = record.born_ns,
    };
}

/* What is not known to be younger is older. */
static bool is_older(const struct tally *tally, const struct leak_object *object) {
    return object->born_ns < tally->since_ns;
}

static bool was_found_since(const struct tally *tally, const struct leak_object *object) {
    return tally->before != NULL && !was_lost_before(tally->before, object);
}

static void add_lost(struct tally *tally, const struct mark_live *live, enum leak_kind kind) {
    struct leak_result *result = &tally->shared->result;
    struct leak_object object = object_of(live, kind);
    if (is_older(tally, &object)) {
        add(&result->ignored, object.usable, object.requested);
        return;
    }
    if (was_found_since(tally, &object)) {
        add(&result->reachable, object.usable, object.requested);
        return;
    }
    add(&result->kinds[kind], object.usable, object.requested);
    add_to_group(tally, &object);
    if (result->object_count < LEAK_OBJECTS_MOST) {
        tally->shared->objects[result->object_count++] = object;
    } else {
        result->objects_left_out++;
    }
}

static void add_object(const struct mark_live *live, void *context) {
    struct tally *tally = context;
    struct leak_result *result = &tally->shared->result;
    result->heap_bytes += live->usable;
    switch (live->state) {
    case MARK_REACHABLE:
        add(&result->reachable, live->usable, record_of(live).requested);
        break;
    case MARK_IGNORED:
        add(&result->ignored, live->usable, record_of(live).requested);
        break;
    case MARK_POSSIBLE:
        add_lost(tally, live, LEAK_POSSIBLE);
        break;
    case MARK_INDIRECT:
        add_lost(tally, live, LEAK_INDIRECT);
        break;
    default:
        add_lost(tally, live, LEAK_DEFINITE);
        break;
    }
}

/* Objects that count, below definite ones that do. */
static void add_below(const struct mark_live *live, const struct mark_live *definite,
                      void *context) {
    struct tally *tally = context;
    struct leak_object object = object_of(live, LEAK_INDIRECT);
    struct leak_object above = object_of(definite, LEAK_DEFINITE);
    struct leak_group *group = find_group(tally, &above);
    if (group != NULL && !is_older(tally, &object) && !was_found_since(tally, &object) &&
        !is_older(tally, &above) && !was_found_since(tally, &above)) {
        add(&group->below, object.usable, object.requested);
    }
}

static bool is_before(const struct leak_group *a, const struct leak_group *b) {
    uint64_t bytes_a = a->sum.bytes + a->below.bytes, bytes_b = b->sum.bytes + b->below.bytes;
    return bytes_a != bytes_b ? bytes_a > bytes_b : a->example < b->example;
}

static void sort_groups(struct leak_group *groups, size_t count) {
    for (size_t gap = count / 2; gap > 0; gap /= 2) {
        for (size_t i = gap; i < count; i++) {
            struct leak_group group = groups[i];
            size_t k = i;
            for (; k >= gap && is_before(&group, &groups[k - gap]); k -= gap) {
                groups[k] = groups[k - gap];
            }
            groups[k] = group;
        }
    }
}

static bool make_result(struct shared *shared, const struct shared *before, uint64_t since_ns) {
    struct tally tally = {shared, before, since_ns, work_map(SLOTS * sizeof(uint32_t))};
    if (tally.slots == NULL) {
        return false;
    }
    mark_walk(add_object, &tally);
    mark_walk_below(add_below, &tally);
    sort_groups(shared->groups, shared->result.group_count);
    return true;
}

/* ---------------------------------------------------------------- searching */

struct search {
    const struct leak_wish *wish;
    struct shared *shared;
    const struct shared *before; /* what a first look has found, or NULL */
    uintptr_t sp, alternate;
    size_t number_offset;
    uint64_t deadline_ns;
    bool is_copy;
};

static bool search_with(const struct search *search) {
    const struct leak_wish *wish = search->wish;
    char *why = search->shared->result.why;
    size_t why_bytes = sizeof(search->shared->result.why);
    struct mark_options options = {
        .max_offset = wish->max_offset,
        .step = wish->step != 0 ? wish->step : sizeof(void *),
        .deadline_ns = search->deadline_ns,
    };
    struct roots_wish roots = {wish->skip_threads, wish->skip_globals, search->sp,
                               search->alternate, search->number_offset};
    struct roots_found found = {0};
    bool is_begun = mark_begin(&options) && roots_name(&roots, &found, why, why_bytes);
    search->shared->is_passing = found.is_in_motion;
    search->shared->result.root_bytes = found.bytes;
    if (!is_begun) {
        return false;
    }
    mark_follow();
    mark_sort_lost(wish->is_quick);
    return !mark_is_late() && !work_has_failed() &&
           make_result(search->shared, search->before, wish->since_ns);
}

/* Others go on, or what is there is not known: in a copy that costs the copy at most, here the program. */
static bool is_risky(const struct search *search, char *why, size_t why_bytes) {
    bool has_moving = search->shared->result.unanswered != 0;
    if (!has_moving && present_is_known()) {
        return false;
    }
    fmt_text(why, why_bytes, "%s, and without a copy of the process that is not safe",
             has_moving ? "there are threads that cannot be stopped"
                        : "/proc/thread-self/pagemap cannot be read");
    return true;
}

/* Leaves its result where the parent finds it. */
static void search_heap(const struct search *search) {
    char *why = search->shared->result.why;
    size_t why_bytes = sizeof(search->shared->result.why);
    bool is_done = present_begin();
    if (search->is_copy) {
        os_forbid_core();
    }
    is_done =
        is_done && (search->is_copy || !is_risky(search, why, why_bytes)) && search_with(search);
    if (!is_done && why[0] == '\0') {
        bool is_late = !work_has_failed();
        fmt_text(why, why_bytes,
                 is_late ? "the search took longer than it may hold up the program"
                         : "there is no memory for a check");
    }
    present_end();
    work_release();
    search->shared->is_complete = is_done;
}

/* ---------------------------------------------------------------- the copy */

static void wait_for_copy(int copy, struct shared *shared) {
    char *why = shared->result.why;
    size_t why_bytes = sizeof(shared->result.why);
    uint64_t end = os_now_ns() + COPY_MOST_NS;
    int status = 0;
    while (!os_copy_has_ended(copy, &status)) {
        if (is_ending() || os_now_ns() > end) {
            os_kill_copy(copy);
            shared->is_complete = false;
            fmt_text(why, why_bytes,
                     is_ending() ? "the process ends"
                                 : "the search in a copy of the process did not end");
        }
        os_sleep_ns(COPY_LOOK_NS);
    }
    if (!shared->is_complete && why[0] == '\0') {
        int signal = status & 127;
        if (signal == SIGSEGV || signal == SIGBUS) {
            fmt_text(why, why_bytes,
                     "memory that a fork does not copy (MADV_DONTFORK) is in the way");
        } else {
            fmt_text(why, why_bytes, "the copy of the process ended before its search did (%d)",
                     status);
        }
    }
}

static void count_threads(struct leak_result *result) {
    uintptr_t sp, pointer;
    result->threads = !own_find(os_thread_id(), &sp, &pointer); /* the caller */
    for (unsigned i = 0; i < stop_count(); i++) {
        enum stop_state state = stop_state(stop_at(i));
        result->threads += state != STOP_GONE && state != STOP_OWN;
        result->unanswered += state == STOP_UNANSWERED;
    }
}

/* All others are stopped: either the copy searches, whose number is returned, or this process has. */
static int copy_or_search(struct search *search) {
    int copy = search->wish->in_place ? 0 : os_copy_process();
    if (copy == 0 && !search->wish->in_place) {
        search->is_copy = true;
        search->deadline_ns = UINT64_MAX;
        search_heap(search);
        os_exit(0);
    }
    if (copy <= 0) {
        search_heap(search);
    }
    return copy;
}

static void explain(struct leak_result *result, int copy) {
    if (result->why[0] != '\0') {
        return;
    }
    if (copy < 0) {
        fmt_text(result->why, sizeof(result->why),
                 "the process could not be copied (%d), so its threads were held up for the search",
                 -copy);
    } else if (result->unanswered != 0) {
        fmt_text(result->why, sizeof(result->why),
                 "threads that could not be stopped: %llu; what they hold in registers is not seen",
                 (unsigned long long)result->unanswered);
    }
}

/* ---------------------------------------------------------------- the check */

/* A thread of the parent was checking when this process was forked. */
static void repair(void) {
    work_release();
    present_end();
}

static uint64_t pause_of(const struct leak_wish *wish) {
    return wish->max_pause_ns != 0 ? wish->max_pause_ns : SECOND_NS;
}

static bool check_once(struct search *search) {
    struct shared *shared = search->shared;
    struct leak_result *result = &shared->result;
    uint64_t start = os_now_ns();
    uint64_t signals;
    search->deadline_ns = start + pause_of(search->wish);
    os_block_signals(&signals);
    bool is_stopped =
        stop_begin(start + pause_of(search->wish) / 2, result->why, sizeof(result->why));
    int copy = 0;
    if (is_stopped) {
        count_threads(result);
        copy = copy_or_search(search);
        stop_end();
    }
    result->pause_ns = max_size(result->pause_ns, os_now_ns() - start);
    os_restore_signals(&signals);
    if (copy > 0) {
        wait_for_copy(copy, shared);
    }
    shared->is_passing |= !is_stopped && stop_was_late();
    explain(result, copy);
    return is_stopped && shared->is_complete;
}

/* A thread that was slow, or in the allocator for long, is given time to go on with the others. */
static bool check_locked(struct search *search) {
    static const uint16_t delays_ms[] = {10, 50, 250};
    struct shared *shared = search->shared;
    uint64_t start = os_now_ns();
    bool is_done = check_once(search);
    for (unsigned i = 0; !is_done && shared->is_passing && !is_ending() &&
                         i < sizeof(delays_ms) / sizeof(delays_ms[0]);
         i++) {
        os_sleep_ns((uint64_t)delays_ms[i] * MILLISECOND_NS);
        shared->is_passing = false;
        shared->result.why[0] = '\0';
        shared->result.threads = shared->result.unanswered = 0;
        is_done = check_once(search);
    }
    shared->result.total_ns = os_now_ns() - start;
    return is_done;
}

static bool refuse(struct leak_result *result, const char *why) {
    fmt_text(result->why, sizeof(result->why), "%s", why);
    return false;
}

/* Takes the lock; the last check in turn before all others. */
static bool wait_for_turn(bool is_last, enum lock_found *found) {
    uint64_t most_ms = is_last ? WAIT_LAST_MS : 2 * UINT64_C(1000) * LEAK_SEARCH_MOST_S + 10000;
    uint64_t end = os_now_ms() + most_ms;
    bool is_had;
    while (!(is_had = lock_try(&g.lock, found)) && os_now_ms() < end && (is_last || !is_ending())) {
        g.ending = is_last ? os_process_id() : g.ending;
        os_sleep_ns(MILLISECOND_NS);
    }
    g.ending = is_last ? 0 : g.ending;
    return is_had;
}

/* A handler of signals may run in the middle of a check: it must not wait for the thread that it has interrupted. */
static bool enter(const struct leak_wish *wish, struct leak_result *result) {
    enum lock_found found;
    if (atomic_load(&g.owner) == os_thread_id()) {
        return refuse(result, "this thread is making a check");
    }
    if (!wish->is_last && is_ending()) {
        return refuse(result, "the process ends");
    }
    if (!wait_for_turn(wish->is_last, &found)) {
        return refuse(result, is_ending() ? "the process ends" : "another check is being made");
    }
    atomic_store(&g.owner, os_thread_id());
    if (found == LOCK_ABANDONED) {
        repair();
    }
    return true;
}

static void leave(void) {
    atomic_store(&g.owner, 0);
    lock_release(&g.lock);
}

/* Its frame is the end of what counts of the caller's stack: all registers that a caller may rely on lie above. */
static __attribute__((noinline)) bool
check(const struct leak_wish *wish, const struct shared *before, struct leak_result **result) {
    struct shared *shared = os_map_shared(sizeof(*shared));
    *result = NULL;
    if (shared == NULL) {
        return false;
    }
    shared->result.groups = shared->groups;
    shared->result.objects = shared->objects;
    *result = &shared->result;
    struct search search = {
        .wish = wish,
        .shared = shared,
        .before = before,
        .sp = (uintptr_t)__builtin_frame_address(0),
        .alternate = os_alternate_stack(),
        .number_offset = os_thread_number_offset(),
    };
    if (!enter(wish, *result)) {
        return false;
    }
    bool is_done = check_locked(&search);
    leave();
    return is_done;
}

static bool is_doubtful(const struct leak_result *result) {
    return result->unanswered != 0 && result->object_count != 0;
}

/* Checks, and once more where there is doubt. */
static bool check_twice(const struct leak_wish *wish, struct leak_result **result) {
    struct leak_result *first;
    bool is_done = check(wish, NULL, &first);
    *result = first;
    if (is_done && is_doubtful(first)) {
        os_sleep_ns(AGAIN_NS);
        is_done = check(wish, (const struct shared *)first, result);
        leak_release(first);
    }
    return is_done;
}

/* A filter of system calls may end the program for one that it does not know of. */
static bool is_confined(struct leak_result **result) {
    if (os_may_ask_kernel()) {
        return false;
    }
    struct shared *shared = os_map_shared(sizeof(*shared));
    *result = shared != NULL ? &shared->result : NULL;
    if (shared != NULL) {
        fmt_text(shared->result.why, sizeof(shared->result.why),
                 "the program has put itself behind a filter of system calls");
    }
    return true;
}

bool leak_check(const struct leak_wish *wish, struct leak_result **result) {
    *result = NULL;
    if (thread_is_inside() || is_confined(result)) {
        return false;
    }
    __builtin_unwind_init(); /* puts them onto the stack */
    bool is_done = check_twice(wish, result);
    __asm__ volatile("" ::: "memory");
    return is_done;
}

void leak_release(struct leak_result *result) {
    if (result != NULL) {
        os_unmap(result, sizeof(struct shared));
    }
}
