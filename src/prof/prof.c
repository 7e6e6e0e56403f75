/* SPDX-License-Identifier: MIT
 *
 * prof.c - the heap profiler: from a sampled allocation to its record, and back at the free.
 *
 *      heap/track.c   decides that an allocation is sampled, and keeps a number with the object
 *      unwind.c       who called
 *      trie.c         the stack as a number
 *      record.c       the record of that number, and the sums
 *
 * A sampled thread has a sampler: what it needs to walk its stack, a few record numbers, its number
 * in profiles, and what it last found in the stack and in the tree of stacks.  Everything about an
 * event except the sums happens without a lock.
 *
 * Threads     Functions of the program (hooks) and libc (arming) are called outside, with no lock
 *             held; `busy` keeps them from being sampled.
 * Read next   record.h; prof_read.c for what others read of it.
 */
#include "prof/prof.h"

#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/trie.h"
#include "opt/opt.h"
#include "prof/extract.h"
#include "prof/journal.h"
#include "prof/mapping.h"
#include "prof/owner.h"
#include "prof/recent.h"
#include "prof/record.h"
#include "prof/sample.h"
#include "prof/usdt.h"
#include "stack/stack.h"

_Static_assert((unsigned)PROF_DEPTH_MOST == (unsigned)UNWIND_MOST, "stacks are read whole");

/* A step in the tree of stacks that was made before. */
struct memo {
    uintptr_t address;
    uint32_t parent, node; /* node 0: none */
};
enum { MEMOS_LG = 8, NAMED_BYTES = 4096 };

/* What a sampled thread keeps; it is handed on when the thread ends. */
struct sampler {
    struct sampler *next; /* unused ones */
    uint32_t owner;
    size_t bytes;       /* that samples stand for since the thread's name was last read */
    bool is_named;      /* by the program, through prof_thread_set_name */
    void *hooked_frame; /* whose stack a hook is asked for just now */
    struct record_stash stash;
    struct unwind_thread unwind;
    struct trie_path path;
    struct memo memo[1 << MEMOS_LG];
    uintptr_t addresses[UNWIND_ROOM];
};

enum choice { CHOICE_NOT_MADE, CHOICE_YES, CHOICE_NO };

static __thread struct {
    struct sampler *sampler; /* NULL: not yet, or no more */
    uint8_t is_over;         /* the thread ends */
    uint8_t choice;          /* enum choice: is this thread sampled? */
    uint8_t busy;            /* a function of the program or of libc runs on our behalf */
} self;

static struct {
    struct trie stacks;
    struct sampler *unused; /* guarded by the ledger's lock */
    _Atomic bool was_armed, is_active, thread_active_init, names_threads;
    _Atomic bool compares_births;
    _Atomic bool has_agents; /* somebody listens to our probes, and may */
    _Atomic uint32_t lg_sample;
} g = {.stacks = TRIE_EMPTY};

/* ---------------------------------------------------------------- switching */

static void event_freed(uint32_t id, const void *object, size_t usable);

static uint64_t wanted_rate(void) {
    bool is_sampling = g.is_active && !opt.prof_mmap_only;
    return is_sampling || g.has_agents ? UINT64_C(1) << g.lg_sample : 0;
}

/* Others may set it at the same time: each tries again until the rate is the wanted one. */
static void set_rate(void) {
    uint64_t rate;
    do {
        rate = wanted_rate();
        track_set_rate(rate);
    } while (wanted_rate() != rate);
}

void prof_follow_agents(void) {
    g.has_agents = track_follow_agents() && opt.usdt;
    if (track_rate() != wanted_rate()) {
        set_rate();
    }
}

/* A program that never comes here touches no memory that only stacks need. */
static void arm(void) {
    if (!g.was_armed) {
        unwind_init();
        g.was_armed = true;
    }
}

STARTUP void prof_init(void) {
    track_events.freed = event_freed;
    mapping_init();
    g.thread_active_init = opt.prof_thread_active_init != 0;
    g.lg_sample = (uint32_t)opt.lg_prof_sample;
    record_reset(UINT64_C(1) << g.lg_sample);
    prof_recent_set_max((ssize_t)opt.prof_recent_alloc_max);
    if (opt.prof) {
        arm();
        g.is_active = opt.prof_active != 0;
        set_rate();
    }
}

/* Around a call of the program's or libc's functions; what they allocate is not sampled. */
static struct thread_outside go_outside(void) {
    self.busy++;
    return thread_go_outside();
}

static void come_back(struct thread_outside before) {
    thread_come_back(before);
    self.busy--;
}

/* What the loader keeps of a library that we open is no leak of the program's. */
static void prepare_outside(void) {
    struct thread_outside before = go_outside();
    bool was_ignoring = track_ignores_mine();
    if (!was_ignoring) {
        track_ignore_mine(true);
    }
    unwind_prepare();
    if (!was_ignoring) {
        track_ignore_mine(false);
    }
    come_back(before);
}

STARTUP void prof_settle(void) {
    if (g.was_armed) {
        prepare_outside();
    }
}

STARTUP bool prof_was_armed(void) {
    return g.was_armed;
}

STARTUP bool prof_is_active(void) {
    return g.is_active;
}

void prof_set_active(bool active) {
    if (active) {
        prepare_outside();
        arm();
    }
    g.is_active = active;
    set_rate();
}

unsigned prof_lg_sample(void) {
    return g.lg_sample;
}

void prof_reset(unsigned lg_sample) {
    uint32_t lg;
    g.lg_sample = (uint32_t)min_size(lg_sample, 63);
    do { /* Weights must match the rate, which others may have changed. */
        lg = g.lg_sample;
        record_reset(UINT64_C(1) << lg);
    } while (g.lg_sample != lg);
    set_rate();
}

void prof_start(unsigned lg_sample) {
    if (!prof_was_armed() || g.lg_sample != lg_sample) {
        prof_reset(lg_sample);
    }
    prof_set_active(true);
}

/* ---------------------------------------------------------------- threads */

static struct sampler *take_sampler(void) {
    record_lock();
    struct sampler *sampler = g.unused;
    uint32_t owner = owner_add();
    if (sampler != NULL && owner != OWNER_NONE) {
        g.unused = sampler->next;
    }
    record_unlock();
    if (owner == OWNER_NONE) {
        return NULL;
    }
    if (sampler == NULL) {
        sampler = meta_alloc(sizeof(*sampler), CACHE_LINE);
    }
    if (sampler == NULL) {
        record_owner_ended(owner);
        return NULL;
    }
    sampler->owner = owner;
    sampler->bytes = NAMED_BYTES;
    sampler->is_named = false;
    sampler->hooked_frame = NULL;
    unwind_begin(&sampler->unwind);
    return sampler;
}

/* The caller's sampler, made on first use; NULL without memory, and for a thread that ends. */
static inline struct sampler *get_sampler(void) {
    if (UNLIKELY(self.sampler == NULL) && !self.is_over) {
        self.sampler = take_sampler();
    }
    return self.sampler;
}

static void name_owner(uint32_t owner, const char *name) {
    record_lock();
    char *kept = owner_at(owner)->name;
    size_t i = 0;
    for (; i < sizeof(owner_at(owner)->name) - 1 && name[i] != '\0'; i++) {
        kept[i] = name[i];
    }
    kept[i] = '\0';
    record_unlock();
}

/* A name that the program has given us wins, unless opt.prof_sys_thread_name is set. */
static bool follows_kernel(const struct sampler *sampler) {
    return opt.prof_sys_thread_name || (g.names_threads && !sampler->is_named);
}

void prof_name_threads(void) {
    g.names_threads = true;
}

static void take_kernel_name(struct sampler *sampler) {
    char name[16];
    os_thread_name(name);
    name_owner(sampler->owner, name);
    sampler->bytes = 0;
}

/* Programs name their threads whenever they like.  Asking the kernel at each sample would cost more
 * than all the rest where every allocation is sampled. */
static void follow_kernel_name(struct sampler *sampler, size_t usable) {
    if (UNLIKELY(follows_kernel(sampler))) {
        sampler->bytes += max_size(usable, (size_t)1 << g.lg_sample);
        if (sampler->bytes >= NAMED_BYTES) {
            take_kernel_name(sampler);
        }
    }
}

/* What the thread has allocated stays under its last name. */
void prof_thread_ends(void) {
    struct sampler *sampler = self.sampler;
    self.is_over = true;
    self.sampler = NULL;
    if (sampler == NULL) {
        return;
    }
    if (follows_kernel(sampler)) {
        take_kernel_name(sampler);
    }
    record_empty_stash(&sampler->stash);
    record_owner_ended(sampler->owner);
    record_lock();
    sampler->next = g.unused;
    g.unused = sampler;
    record_unlock();
}

bool prof_thread_active_init(void) {
    return g.thread_active_init;
}

void prof_set_thread_active_init(bool active) {
    g.thread_active_init = active;
}

bool prof_thread_is_active(void) {
    if (UNLIKELY(self.choice == CHOICE_NOT_MADE)) {
        self.choice = g.thread_active_init ? CHOICE_YES : CHOICE_NO;
    }
    return self.choice == CHOICE_YES;
}

bool prof_thread_set_active(bool active) {
    self.choice = active ? CHOICE_YES : CHOICE_NO;
    return true;
}

bool prof_thread_set_name(const char *name) {
    struct sampler *sampler = get_sampler();
    if (sampler == NULL) {
        return false;
    }
    name_owner(sampler->owner, name);
    sampler->is_named = true;
    return true;
}

void prof_thread_get_name(char name[16]) {
    name[0] = '\0';
    bool has_ended;
    if (opt.prof_sys_thread_name) {
        os_thread_name(name);
    } else if (self.sampler != NULL) {
        prof_read_thread(self.sampler->owner, name, &has_ended);
    }
}

STARTUP void prof_forked(void) {
    unwind_forked();
    record_forked(self.sampler != NULL ? self.sampler->owner : OWNER_NONE);
}

/* ---------------------------------------------------------------- stacks */

static void *get_hook(void *_Atomic *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static COLD unsigned ask_hook(tell_backtrace *hook, struct sampler *sampler, void *frame,
                              unsigned most) {
    unsigned count = 0;
    struct thread_outside before = go_outside();
    sampler->hooked_frame = frame;
    hook((void **)sampler->addresses, &count, most);
    sampler->hooked_frame = NULL;
    come_back(before);
    return (unsigned)min_size(count, most);
}

static unsigned walk_for_hook(struct unwind_thread *thread, void *frame, void **addresses,
                              unsigned most) {
    uintptr_t room[UNWIND_ROOM];
    self.busy++;
    struct unwind_stack stack = unwind_again(thread, frame, room, most);
    self.busy--;
    for (unsigned i = 0; i < stack.count; i++) {
        addresses[i] =
            (void *)(stack.levels != NULL ? unwind_address(&stack.levels[stack.count - 1 - i])
                                          : room[i]);
    }
    return stack.count;
}

/* A hook that calls this gets the stack that would have been recorded without it. */
void prof_backtrace(void **addresses, unsigned *count, unsigned most) {
    *count = 0;
    if (!g.was_armed || most == 0) {
        return;
    }
    struct sampler *sampler = self.sampler;
    if (sampler != NULL && sampler->hooked_frame != NULL) {
        *count = walk_for_hook(&sampler->unwind, sampler->hooked_frame, addresses, most);
        return;
    }
    size_t bytes = align_up(sizeof(struct unwind_thread), os_facts.page_bytes);
    struct unwind_thread *thread = os_map(bytes); /* the stack may be small */
    if (thread != NULL) {
        *count = walk_for_hook(thread, __builtin_frame_address(0), addresses, most);
        os_unmap(thread, bytes);
    }
}

/* Like trie_step, which is called only if the memo does not have the step. */
static inline uint32_t step(struct memo *memo, uint32_t parent, uintptr_t address) {
    uint64_t mixed = hash_word(address + ((uint64_t)parent << 40));
    struct memo *known = &memo[(mixed ^ mixed << 24) >> (64 - MEMOS_LG)];
    if (UNLIKELY(known->address != address || known->parent != parent || known->node == 0)) {
        *known = (struct memo){address, parent, trie_step(&g.stacks, parent, address)};
    }
    return known->node;
}

/* The number of a stack whose outer `same` levels may already be numbered: a level's note is the
 * number of the stack that ends with it.  0 without memory. */
static inline uint32_t number_levels(struct memo *memo, struct unwind_level *levels, unsigned count,
                                     unsigned same) {
    unsigned known = (unsigned)min_size(count, same);
    while (known > 0 && levels[known - 1].note == 0) {
        known--;
    }
    uint32_t node = known > 0 ? levels[known - 1].note : 0;
    for (unsigned i = known; i < count; i++) {
        node = step(memo, node, unwind_address(&levels[i]));
        if (UNLIKELY(node == 0)) {
            return 0;
        }
        levels[i].note = node;
    }
    return node;
}

/* The stack of the function with this frame; 0 without memory. */
static inline __attribute__((always_inline)) uint32_t find_stack(struct sampler *sampler,
                                                                 void *frame) {
    unsigned most = (unsigned)min_size(opt.prof_bt_max, UNWIND_MOST);
    tell_backtrace *hook = get_hook(&tell_hooks.backtrace);
    struct unwind_stack stack = {0};
    if (UNLIKELY(hook != NULL)) {
        stack.count = ask_hook(hook, sampler, frame, most);
    } else {
        stack = unwind_again(&sampler->unwind, frame, sampler->addresses, most);
    }
    return LIKELY(stack.levels != NULL)
               ? number_levels(sampler->memo, stack.levels, stack.count, stack.same)
               : trie_insert(&g.stacks, &sampler->path, sampler->addresses, stack.count);
}

uint32_t prof_keep_stack(struct trie_path *path, const uintptr_t *addresses, unsigned count) {
    return trie_insert(&g.stacks, path, addresses, count);
}

uint32_t prof_count_nodes(void) {
    return trie_count(&g.stacks);
}

unsigned prof_read_stack(uint32_t stack, uintptr_t *addresses, unsigned most) {
    return trie_read(&g.stacks, stack, addresses, most);
}

/* ---------------------------------------------------------------- events */

static bool is_wanted(void) {
    return g.is_active && !self.busy && !self.is_over && prof_thread_is_active();
}

/* Agents walk the stack themselves. */
static uint32_t id_without_record(void) {
    return g.has_agents && !self.busy ? PROF_UNRECORDED : 0;
}

/* Does somebody look at samples one by one? */
static bool somebody_looks(void) {
    return journal_is_on() || recent_max() != 0;
}

void prof_compare_births(void) {
    g.compares_births = true;
}

/* Are lifetimes told?  Where every allocation is sampled, a look at the birth of what is freed is a
 * cache miss more, a tenth of all that the profiler costs: then only if the run is recorded. */
static bool tells_lifetimes(void) {
    return g.lg_sample > 0 || opt.run_file[0] != '\0';
}

/* A leak check must know which objects are older than its start.  Otherwise a rough age is enough,
 * and a clock of a few milliseconds costs a quarter. */
static uint64_t time_of_birth(void) {
    return tells_lifetimes() || UNLIKELY(somebody_looks() || opt.leak_check || g.compares_births)
               ? os_now_ns()
               : os_now_ms() * 1000000;
}

/* A record of whoever called the function with this frame; 0 without memory. */
static inline uint32_t make_record(size_t size, size_t usable, void *frame) {
    struct sampler *sampler = get_sampler();
    uint32_t stack = sampler != NULL ? find_stack(sampler, frame) : 0;
    uint32_t id = stack != 0 ? record_take(&sampler->stash) : 0;
    if (id == 0) {
        record_note_drop();
        return 0;
    }
    follow_kernel_name(sampler, usable);
    struct record *record = record_at(id);
    record->context = stack;
    record->slack = (int32_t)(usable - size);
    record->usable = usable;
    record_origin(id)->birth_ns = time_of_birth();
    record_origin(id)->place = 0;
    return id;
}

uint32_t prof_record(size_t size, size_t usable, void *frame) {
    uint32_t id = is_wanted() && !opt.prof_mmap_only ? make_record(size, usable, frame) : 0;
    return id != 0 ? id : id_without_record();
}

__attribute__((noinline)) uint32_t prof_record_mapping(size_t bytes) {
    return is_wanted() ? make_record(bytes, bytes, __builtin_frame_address(0)) : 0;
}

void prof_recorded_mapping(uint32_t id) {
    (void)record_enter_mapping(id, self.sampler->owner);
}

static COLD void call_sample_hook(tell_sample *hook, const struct record *record, uint32_t stack,
                                  const void *object) {
    uintptr_t *addresses = self.sampler->addresses;
    unsigned count = prof_read_stack(stack, addresses, UNWIND_MOST);
    struct thread_outside before = go_outside();
    hook(object, record_requested(record), (void **)addresses, count, record->usable);
    come_back(before);
}

void prof_recorded(uint32_t id, const void *object) {
    if (id == PROF_UNRECORDED) {
        return;
    }
    /* Until it is entered, the record holds its stack. */
    tell_sample *hook = get_hook(&tell_hooks.sample);
    uint32_t stack = UNLIKELY(hook != NULL) ? record_at(id)->context : 0;
    record_origin(id)->place = pinned_place(object, record_at(id)->usable);
    record_enter(id, self.sampler->owner, &self.sampler->stash);
    if (UNLIKELY(hook != NULL)) {
        call_sample_hook(hook, record_at(id), stack, object);
    }
}

void prof_unrecord(uint32_t id) {
    if (id != PROF_UNRECORDED) {
        record_untake(&self.sampler->stash, id);
    }
}

static COLD void call_sample_free_hook(tell_sample_free *hook, const void *object, size_t usable) {
    struct thread_outside before = go_outside();
    hook(object, usable);
    come_back(before);
}

/* Somebody wants to know who frees and when. */
static COLD void describe_end(struct record_end *end, void *frame) {
    struct sampler *sampler = get_sampler();
    if (sampler != NULL) {
        /* A function of the program that frees is using the sampler's addresses. */
        uint32_t stack = self.busy ? 0 : find_stack(sampler, frame);
        *end = (struct record_end){sampler->owner, stack, os_now_ns()};
    }
}

static bool is_recent(uint32_t id) {
    return atomic_load_explicit(&record_at(id)->recent, memory_order_relaxed) != 0;
}

static void event_freed(uint32_t id, const void *object, size_t usable) {
    usdt_freed(object);
    if (id == PROF_UNRECORDED) {
        return;
    }
    struct record_end end = {.ns = tells_lifetimes() ? os_now_ns() : 0};
    if (UNLIKELY(somebody_looks()) && (journal_is_on() || is_recent(id))) {
        describe_end(&end, __builtin_frame_address(0));
    }
    record_leave(id, self.sampler != NULL ? &self.sampler->stash : NULL, &end);
    tell_sample_free *hook = get_hook(&tell_hooks.sample_free);
    if (UNLIKELY(hook != NULL)) {
        call_sample_free_hook(hook, object, usable);
    }
}
