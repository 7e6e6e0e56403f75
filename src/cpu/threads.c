/* SPDX-License-Identifier: MIT
 *
 * threads.c - a table of threads, an index by the kernel's numbers of those that run, and a queue of numbers
 * that can be given again.
 *
 * A timer begins somewhere in its first period, so that of many threads that each run for less than that the
 * right share is sampled.
 */
#include "cpu/threads.h"

#include <string.h>

#include "base/hash.h"
#include "base/os.h"
#include "base/own.h"
#include "base/table.h"

enum {
    NAMED = 1 << 16,          /* numbers that are kept, with names */
    MOST = NAMED + NAMED / 2, /* and others, so that as many can run at a time */
    NO_TIMER = -1,
    INDEX_LG = 17,
    UNSEEN_PERIODS = 20,           /* of computing without a sample: it is left out */
    UNSEEN_NS = 200 * 1000 * 1000, /* but not sooner */
};

enum thread_state { UNUSED, RUNS, ENDED };

struct entry {
    uint32_t id;
    int timer;
    uint32_t round;     /* of the scan that has seen it last, or in which it ended */
    uint32_t next_free; /* number of the next that can be given again; 0: none */
    bool is_sampled;    /* has samples: the number is kept */
    bool is_stale;      /* was sampled since its name was read */
    bool is_left_out;
    uint64_t sampled_ns; /* of its clock, when it was last seen to be sampled, or began */
    enum thread_state state;
    char name[16];
};

static struct {
    struct table entries;
    uint32_t count;  /* 0: not begun; the first is nobody */
    uint32_t *index; /* numbers of those that run, by id; 0 where there is none */
    uint32_t round;
    uint32_t first_free, last_free;
    uint32_t left_out;
    bool has_timers;
    struct threads_timing timing;
    uint64_t random;
} g = {.entries.item_bytes = sizeof(struct entry)};

static struct entry *entry_at(uint32_t number) {
    return table_at(&g.entries, number);
}

/* ---------------------------------------------------------------- by id */

static uint32_t hash(uint32_t id) {
    return (uint32_t)hash_place(id, INDEX_LG);
}

/* The slot that has it, or the one where it belongs.  A quarter of the slots is never used. */
static uint32_t *find_slot(uint32_t id) {
    uint32_t at = hash(id);
    while (g.index[at] != 0 && entry_at(g.index[at])->id != id) {
        at = (at + 1) & ((1u << INDEX_LG) - 1);
    }
    return &g.index[at];
}

/* Entries that were pushed behind it by collisions move up, so that they are found. */
static void remove_slot(uint32_t *slot) {
    uint32_t mask = (1u << INDEX_LG) - 1;
    uint32_t hole = (uint32_t)(slot - g.index);
    g.index[hole] = 0;
    for (uint32_t at = (hole + 1) & mask; g.index[at] != 0; at = (at + 1) & mask) {
        uint32_t home = hash(entry_at(g.index[at])->id);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            g.index[hole] = g.index[at];
            g.index[at] = 0;
            hole = at;
        }
    }
}

/* ---------------------------------------------------------------- timers */

static uint64_t random_below(uint64_t limit) {
    g.random = g.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (g.random >> 33) % limit;
}

static void arm(struct entry *entry, uint32_t number) {
    struct os_timer_target target = {g.timing.clock, entry->id, g.timing.signal, number};
    entry->timer = NO_TIMER;
    if (!g.has_timers) {
        return;
    }
    int timer = os_timer_create(&target);
    if (timer >= 0) {
        entry->timer = timer;
        os_timer_set(timer, 1 + random_below(g.timing.period_ns), g.timing.period_ns);
    }
}

static void disarm(struct entry *entry) {
    if (entry->timer != NO_TIMER) {
        os_timer_delete(entry->timer);
        entry->timer = NO_TIMER;
    }
}

/* ---------------------------------------------------------------- coming and going */

static bool is_kept(uint32_t number) {
    return number < NAMED && entry_at(number)->is_sampled;
}

/* One that ended before the last scan began: no handler of it is on its way. */
static uint32_t take_free(void) {
    uint32_t number = g.first_free;
    if (number == 0 || g.round - entry_at(number)->round < 2) {
        return 0;
    }
    g.first_free = entry_at(number)->next_free;
    if (g.first_free == 0) {
        g.last_free = 0;
    }
    return is_kept(number) ? 0 : number;
}

static uint32_t take_number(void) {
    uint32_t number = take_free();
    if (number != 0) {
        return number;
    }
    if (g.count >= MOST || !table_reach(&g.entries, g.count)) {
        return 0;
    }
    return g.count;
}

/* What its timer runs with. */
static bool read_clock(uint32_t id, uint64_t *ns) {
    uint64_t own = 0;
    bool runs = os_time_of_thread(id, &own);
    *ns = g.timing.clock == OS_CLOCK_THREAD ? own : os_now_ns();
    return runs;
}

static bool make_room(void) {
    if (g.index == NULL) {
        g.index = os_map(sizeof(uint32_t) << INDEX_LG);
    }
    if (g.index != NULL && g.count == 0 && table_reach(&g.entries, 0)) {
        *entry_at(0) = (struct entry){.timer = NO_TIMER, .state = ENDED, .name = "(others)"};
        g.count = 1;
    }
    return g.index != NULL && g.count > 0;
}

uint32_t threads_add(uint32_t id) {
    if (!make_room()) {
        return 0;
    }
    uint32_t *slot = find_slot(id);
    if (*slot != 0) {
        entry_at(*slot)->round = g.round;
        return *slot;
    }
    uint32_t number = take_number();
    if (number == 0) {
        return 0;
    }
    struct entry *entry = entry_at(number);
    *entry = (struct entry){.id = id, .timer = NO_TIMER, .round = g.round, .state = RUNS};
    os_name_of_thread(id, entry->name);
    (void)read_clock(id, &entry->sampled_ns);
    *slot = number;
    if (number == g.count) {
        g.count++;
    }
    arm(entry, number);
    return number;
}

static void end(uint32_t number) {
    struct entry *entry = entry_at(number);
    disarm(entry);
    remove_slot(find_slot(entry->id));
    entry->state = ENDED;
    entry->round = g.round;
    entry->next_free = 0;
    if (is_kept(number)) {
        return;
    }
    if (g.last_free != 0) {
        entry_at(g.last_free)->next_free = number;
    } else {
        g.first_free = number;
    }
    g.last_free = number;
}

void threads_leave(uint32_t id, const char name[16]) {
    uint32_t number = g.index != NULL ? *find_slot(id) : 0;
    if (number != 0) {
        memcpy(entry_at(number)->name, name, sizeof(entry_at(number)->name));
        end(number);
    }
}

static void refresh_name(struct entry *entry) {
    char name[16];
    if (entry->is_stale && os_name_of_thread(entry->id, name)) {
        memcpy(entry->name, name, sizeof(name));
        entry->is_stale = false;
    }
}

static void set_left_out(struct entry *entry, bool is_left_out) {
    g.left_out += is_left_out;
    g.left_out -= entry->is_left_out;
    entry->is_left_out = is_left_out;
}

/* By its clock.  Our own threads block all signals. */
static void find_left_out(struct entry *entry, uint64_t now_ns) {
    uintptr_t unused;
    uint64_t most = max_size(UNSEEN_NS, UNSEEN_PERIODS * g.timing.period_ns);
    if (!entry->is_left_out && now_ns - entry->sampled_ns > most &&
        !own_find(entry->id, &unused, &unused)) {
        set_left_out(entry, true);
    }
}

/* False if it has gone, or another has its id: then time begins anew. */
static bool look_after(uint32_t number, bool asks_who_is_left_out) {
    struct entry *entry = entry_at(number);
    uint64_t now_ns;
    if (!read_clock(entry->id, &now_ns) || now_ns < entry->sampled_ns) {
        return false;
    }
    if (entry->timer == NO_TIMER) {
        arm(entry, number);
    }
    if (entry->is_stale || !asks_who_is_left_out) {
        entry->sampled_ns = now_ns;
    } else if (g.has_timers) {
        find_left_out(entry, now_ns);
    }
    refresh_name(entry);
    return true;
}

static bool see(uint32_t id, void *own) {
    (void)own;
    (void)threads_add(id);
    return true;
}

/* A list of very many threads may lack some that run, so the clock tells which have gone. */
void threads_scan(bool asks_who_is_left_out) {
    g.round++;
    if (os_walk_threads(see, NULL) != 0) {
        return;
    }
    uint32_t count = g.count;
    for (uint32_t number = 1; number < count; number++) {
        struct entry *entry = entry_at(number);
        bool is_listed = entry->round == g.round;
        if (entry->state == RUNS && !look_after(number, asks_who_is_left_out)) {
            end(number);
            if (is_listed) {
                (void)threads_add(entry->id);
            }
        }
    }
}

void threads_join(uint32_t id) {
    uint32_t number = g.index != NULL ? *find_slot(id) : 0;
    if (number != 0 && !look_after(number, false)) {
        end(number);
    }
    (void)threads_add(id);
}

/* ---------------------------------------------------------------- begin and end */

void threads_begin(const struct threads_timing *timing) {
    g.has_timers = timing != NULL;
    g.random ^= os_now_ns();
    if (timing != NULL) {
        g.timing = *timing;
        for (uint32_t number = 1; number < g.count; number++) {
            if (entry_at(number)->state == RUNS && entry_at(number)->timer == NO_TIMER) {
                arm(entry_at(number), number);
            }
        }
    }
}

void threads_end(void) {
    g.has_timers = false;
    for (uint32_t number = 1; number < g.count; number++) {
        disarm(entry_at(number));
    }
}

uint32_t threads_note(uint32_t number) {
    if (number >= g.count) {
        return 0;
    }
    struct entry *entry = entry_at(number);
    entry->is_sampled = true;
    entry->is_stale = true;
    set_left_out(entry, false);
    return number < NAMED ? number : 0;
}

bool threads_has_timer(uint32_t number) {
    return number != 0 && entry_at(number)->timer != NO_TIMER;
}

bool threads_read(uint32_t number, char name[16], uint32_t *id) {
    if (number >= g.count) {
        return false;
    }
    memcpy(name, entry_at(number)->name, sizeof(entry_at(number)->name));
    *id = entry_at(number)->id;
    return true;
}

uint32_t threads_left_out(void) {
    return g.left_out;
}

void threads_forget(bool is_sound) {
    if (g.index != NULL && is_sound) {
        os_unmap(g.index, sizeof(uint32_t) << INDEX_LG);
    }
    g.index = NULL;
    g.first_free = g.last_free = 0;
    g.count = 0;
    g.left_out = 0;
}
