/* SPDX-License-Identifier: MIT
 *
 * cpu.c - starting and stopping, the signal handler, and the thread that counts what handlers leave.
 *
 *      off --start--> starting --> on --stop--> stopping --> off
 *
 * Handlers count themselves in and out, so that cpu_stop can wait until none is left.  The handler stays
 * when the profile has ended: a signal that is still on its way would end the process otherwise.
 *
 * The kernel tells how often a timer has expired since its last signal.  A sample stands for all of these,
 * so sums are right also where the kernel looks at processor time less often than the timer should expire.
 *
 * Threads     `state` changes by compare and swap.  The lock guards sums and threads; it is held for a few
 *             samples at a time, and never by a handler.
 */
#define _GNU_SOURCE /* pthread_setname_np */
#include "cpu/cpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fmt.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_confined.h"
#include "base/os_timer.h"
#include "base/own.h"
#include "base/trie.h"
#include "cpu/rack.h"
#include "cpu/sums.h"
#include "cpu/threads.h"
#include "stack/stack.h"
#include "cpu/writer.h"
#include "heap/heap.h"
#include "prof/prof.h"

enum {
    NS_PER_S = 1000000000,
    NS_PER_MS = 1000000,
    SLOW_WAIT_MS = 50,
    FAST_WAIT_MS = 10,
    FAST_HZ = 500,
    SCAN_MS = 1000, /* also if the number of threads is what it was */
    LOOK_MS = 2000, /* for code that has come or gone */
    LOOK_SOON_MS = 50,
    END_MS = 1000, /* wait for handlers */
    NODES_MOST = 1 << 20,
    LATE_MS = 50, /* The kernel's own clock ticks more often than that. */
};

enum state { OFF, STARTING, ON, STOPPING };

struct cpu_services cpu_services;

static struct {
    _Atomic uint32_t state;
    _Atomic uint32_t handlers; /* that run now */
    _Atomic bool is_paused;
    _Atomic uint32_t bell; /* rung to wake the writer */
    _Atomic uint64_t samples, lost;
    int signal;                  /* the last that was used; 0: none yet */
    _Atomic uint64_t counted_ns; /* of the process's clock, by one timer for all */
    struct cpu_options options;  /* written while nothing is on */
    struct lock lock;
    /* Guarded by the lock: */
    struct cpu_totals totals; /* but for samples and lost */
    bool has_writer, is_kept;
    bool has_thread_timers;
    bool met_unknown;
    bool is_warned; /* it was said that threads are left out */
    uint32_t thread_count;
    uint32_t look_soon_ms; /* after an address that is not known */
    uint32_t nodes;        /* of the tree, that samples have made */
    uint64_t scanned_ms, looked_ms;
} g = {.lock = LOCK_OF_RANK(RANK_CPU)};

/* Guarded by the lock.  Apart from g, which has initial values and so lies in the file: this need not. */
static struct trie_path path;

/* In a child nothing is on, so what is behind the lock is not used before it is made anew. */
static void enter(void) {
    (void)lock_acquire(&g.lock);
}

static void leave(void) {
    lock_release(&g.lock);
}

static bool explain(char why[CPU_WHY], const char *text) {
    fmt_text(why, CPU_WHY, "%s", text);
    return false;
}

/* ---------------------------------------------------------------- the handler */

static void lose(uint64_t weight) {
    atomic_fetch_add_explicit(&g.lost, weight, memory_order_relaxed);
}

/* How many samples this one stands for.  Processor time that went by with the signal blocked was spent
 * elsewhere. */
static uint32_t weigh_for_thread(const siginfo_t *info) {
    uint32_t missed = info->si_overrun > 0 ? (uint32_t)info->si_overrun : 0;
    if (!g.options.is_wall && missed * g.totals.period_ns > LATE_MS * (uint64_t)NS_PER_MS) {
        lose(missed);
        missed = 0;
    }
    return 1 + missed;
}

static uint64_t process_clock(void) {
    return g.options.is_wall ? os_now_ns() : os_process_time_ns();
}

/* By the process's clock: the kernel does not tell how often this timer has expired. */
static uint32_t weigh_for_process(void) {
    uint64_t counted = atomic_load(&g.counted_ns);
    uint64_t now = process_clock();
    uint64_t weight;
    do {
        weight = now > counted ? (now - counted) / g.totals.period_ns : 0;
    } while (weight > 0 && !atomic_compare_exchange_weak(&g.counted_ns, &counted,
                                                         counted + weight * g.totals.period_ns));
    return (uint32_t)min_size(weight, UINT32_MAX);
}

static void take_sample(const siginfo_t *info, const void *context, uint32_t weight) {
    struct rack_slot *slot = rack_take();
    if (slot == NULL) {
        lose(weight);
        return;
    }
    slot->weight = weight;
    slot->thread = g.options.is_process_timer ? 0 : (uint32_t)info->si_value.sival_int;
    slot->id = slot->thread == 0 ? os_thread_id() : 0;
    slot->met_unknown = false;
    slot->room.is_asked = false;
    slot->count = walk_interrupted(walk_registers_of(context), slot->addresses, RACK_DEPTH,
                                   &slot->room, &slot->met_unknown);
    if (rack_give(slot)) {
        writer_ring();
    }
}

static bool is_wanted(const siginfo_t *info) {
    return atomic_load(&g.state) == ON &&
           info->si_code == (g.options.is_process_timer ? SI_KERNEL : SI_TIMER) &&
           !atomic_load_explicit(&g.is_paused, memory_order_relaxed);
}

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)number;
    int saved = os_error();
    atomic_fetch_add(&g.handlers, 1);
    if (is_wanted(info)) {
        uint32_t weight = g.options.is_process_timer ? weigh_for_process() : weigh_for_thread(info);
        if (weight > 0 &&
            (g.options.filter == NULL || g.options.filter(g.options.filter_argument) != 0)) {
            take_sample(info, context, weight);
        }
    }
    atomic_fetch_sub(&g.handlers, 1);
    os_set_error(saved);
}

static bool is_ours(const struct sigaction *action) {
    return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_signal;
}

static bool no_handler_runs(void) {
    return atomic_load(&g.handlers) == 0;
}

/* ---------------------------------------------------------------- counting */

/* Nodes are never given back, so there is an end to them: then only the innermost function is kept. */
static uint32_t keep_stack(const struct rack_slot *slot, unsigned count) {
    uint32_t before = prof_count_nodes();
    uint32_t stack = prof_keep_stack(&path, slot->addresses, g.nodes < NODES_MOST ? count : 1);
    g.nodes += prof_count_nodes() - before;
    return stack;
}

static void count_slot(struct rack_slot *slot) {
    uint32_t thread = threads_note(slot->id != 0 ? threads_add(slot->id) : slot->thread);
    uint32_t stack = keep_stack(slot, slot->count);
    g.met_unknown |= slot->met_unknown;
    if (sums_add(stack, thread, slot->weight) || sums_add(keep_stack(slot, 1), 0, slot->weight)) {
        atomic_fetch_add_explicit(&g.samples, slot->weight, memory_order_relaxed);
    } else {
        lose(slot->weight);
    }
}

void writer_count(void) {
    enter();
    rack_empty(count_slot);
    leave();
}

/* ---------------------------------------------------------------- the writer */

/* All with the lock held. */
static void scan(uint64_t now_ms) {
    uint32_t count = os_count_threads();
    if (count != g.thread_count || now_ms - g.scanned_ms >= SCAN_MS) {
        g.thread_count = count;
        g.scanned_ms = now_ms;
        threads_scan(g.options.filter == NULL && !g.is_paused);
    }
    if (threads_left_out() > 0 && !g.is_warned) {
        g.is_warned = true;
        log_line("there are threads without a CPU profile: they block signal %d, or the kernel "
                 "has no timer for them",
                 g.signal);
    }
}

/* Code that is not in /proc and damaged stacks are met again and again, so a look that finds nothing new puts
 * off the next one. */
static void look_at_code(void) {
    bool is_new = code_look(no_handler_runs);
    g.look_soon_ms = is_new ? LOOK_SOON_MS : (uint32_t)min_size(2 * g.look_soon_ms, LOOK_MS);
    g.looked_ms = os_now_ms();
    g.met_unknown = false;
}

/* In a program that has confined itself the set of sampled threads stays as it is. */
static void look_around(void) {
    uint64_t now_ms = os_now_ms();
    if (!os_may_ask_kernel()) {
        return;
    }
    scan(now_ms);
    if (now_ms - g.looked_ms >= (g.met_unknown ? g.look_soon_ms : LOOK_MS)) {
        look_at_code();
    }
}

/* A program that has set the signal's action itself gets no more signals: it would not know them, or end by
 * them. */
static void look_at_signal(void) {
    struct sigaction action;
    if (cpu_is_on() && os_may_ask_kernel() && sigaction(g.signal, NULL, &action) == 0 &&
        !is_ours(&action)) {
        log_line("the program has taken signal %d: the CPU profile ends here", g.signal);
        (void)cpu_end();
    }
}

static void tick(void) {
    writer_count();
    enter();
    if (atomic_load(&g.state) == ON) {
        look_around();
    }
    leave();
    look_at_signal();
}

/* Until the next tick; 0: until the bell rings. */
static uint64_t find_wait(bool is_soon) {
    enter();
    bool sleeps = g.is_kept && atomic_load(&g.state) == OFF && !is_soon;
    uint64_t wait_ms = g.totals.hz > FAST_HZ ? FAST_WAIT_MS : SLOW_WAIT_MS;
    leave();
    return sleeps ? 0 : wait_ms;
}

/* False, with the writer gone, if nobody wants one. */
static bool go_on(void) {
    enter();
    bool goes_on = g.is_kept || atomic_load(&g.state) != OFF;
    g.has_writer = goes_on;
    leave();
    return goes_on;
}

static void *run_writer(void *unused) {
    (void)unused;
    thread_enroll();
    pthread_setname_np(pthread_self(), "tally-cpu");
    own_enroll();
    do {
        uint32_t seen = atomic_load(&g.bell);
        own_begin();
        tick();
        own_end();
        uint64_t wait_ms = find_wait(cpu_file_tick());
        if (wait_ms == 0) {
            os_wait(&g.bell, seen);
        } else {
            os_wait_ms(&g.bell, seen, wait_ms);
        }
    } while (go_on());
    own_leave();
    return NULL;
}

bool writer_make(void) {
    enter();
    bool is_there = g.has_writer;
    g.has_writer = true;
    leave();
    if (is_there) {
        return true;
    }
    struct thread_outside before = thread_go_outside(); /* Making a thread allocates. */
    bool made = cpu_services.make_thread != NULL && cpu_services.make_thread(run_writer);
    thread_come_back(before);
    if (!made) {
        enter();
        g.has_writer = false;
        leave();
    }
    return made;
}

void writer_keep(bool is_kept) {
    enter();
    g.is_kept = is_kept;
    leave();
    writer_ring();
}

void writer_ring(void) {
    atomic_fetch_add_explicit(&g.bell, 1, memory_order_release);
    os_wake(&g.bell);
}

/* ---------------------------------------------------------------- signals */

/* Is it free: nobody handles it, or we do already? */
static bool is_free(int number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0) {
        return false;
    }
    return is_ours(&action) || (!(action.sa_flags & SA_SIGINFO) &&
                                (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN));
}

/* Has the program neither set its action nor blocked it in its first thread, as those do that wait for it? */
static bool is_untouched(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 &&
           (is_ours(&action) ||
            (!(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL)) &&
           !os_look_at_thread(os_process_id(), number).blocks_signals;
}

static int find_real_time(bool (*is_good)(int)) {
    int number = SIGRTMAX;
    while (number >= SIGRTMIN && !is_good(number)) {
        number--;
    }
    return number >= SIGRTMIN ? number : 0;
}

/* A signal that the program does not use, the last first; 0: there is none.  A first thread that blocks all
 * leaves them to others, and says nothing. */
static int choose_signal(const struct cpu_options *options) {
    if (options->is_process_timer) { /* what programs that know of profilers expect */
        int number = options->is_wall ? SIGALRM : SIGPROF;
        return is_free(number) ? number : 0;
    }
    if (g.signal >= SIGRTMIN && is_free(g.signal)) {
        return g.signal;
    }
    int number = find_real_time(is_untouched);
    return number != 0 ? number : find_real_time(is_free);
}

/* All other signals are blocked meanwhile: a handler that leaves by a jump would skip the rest of ours. */
static bool catch_signal(const struct cpu_options *options, char why[CPU_WHY]) {
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    int number = options->is_process_timer ? 0 : options->signal;
    if (number == 0) {
        number = choose_signal(options);
    } else if (number < 0 || number > SIGRTMAX || !is_free(number)) {
        number = -1;
    }
    sigfillset(&action.sa_mask);
    if (number == 0) {
        return explain(why, "every signal that would do is used by the program");
    }
    if (number < 0 || sigaction(number, &action, NULL) != 0) {
        fmt_text(why, CPU_WHY, "signal %d is taken or cannot be caught", options->signal);
        return false;
    }
    g.signal = number;
    return true;
}

/* ---------------------------------------------------------------- start and stop */

static void begin_totals(const struct cpu_options *options) {
    unsigned hz = options->hz == 0 ? CPU_HZ_DEFAULT : options->hz;
    hz = hz > CPU_HZ_MOST ? CPU_HZ_MOST : hz;
    g.options = *options;
    g.options.hz = hz;
    g.totals = (struct cpu_totals){
        .hz = hz, .period_ns = NS_PER_S / hz, .start_ns = os_now_ns(), .is_wall = options->is_wall};
    g.samples = g.lost = 0;
}

static bool start_process_timer(char why[CPU_WHY]) {
    enter();
    threads_begin(NULL);
    g.counted_ns = process_clock();
    int error = os_timer_of_process(g.options.is_wall, g.totals.period_ns);
    if (error == 0) {
        atomic_store(&g.state, ON);
    }
    leave();
    if (error != 0) {
        fmt_text(why, CPU_WHY, "the kernel gives no timer (%d)", -error);
    }
    return error == 0;
}

/* The caller's own timer shows whether there can be any. */
static bool start_thread_timers(char why[CPU_WHY]) {
    struct threads_timing timing = {g.options.is_wall ? OS_CLOCK_WALL : OS_CLOCK_THREAD, g.signal,
                                    g.totals.period_ns};
    enter();
    threads_begin(&timing);
    bool done = threads_has_timer(threads_add(os_thread_id()));
    if (done) {
        threads_scan(false);
        atomic_store(&g.state, ON);
    } else {
        threads_end();
    }
    leave();
    return done || explain(why, "the kernel gives no timer for a thread");
}

/* While nothing is on.  What another thread was changing when this process was forked is left as it is. */
static void forget(bool is_sound) {
    sums_clear(is_sound);
    threads_forget(is_sound);
    path.count = 0;
    g.thread_count = 0;
    g.scanned_ms = 0;
    g.is_warned = false;
}

static void drop_slot(struct rack_slot *slot) {
    (void)slot;
}

static bool begin(const struct cpu_options *options, char why[CPU_WHY]) {
    if (!rack_make()) {
        return explain(why, "no memory");
    }
    if (!catch_signal(options, why)) {
        return false;
    }
    enter();
    rack_empty(drop_slot);
    forget(true);
    begin_totals(options);
    look_at_code();
    g.has_thread_timers = !options->is_process_timer;
    leave();
    if (!writer_make()) {
        return explain(why, "a thread for it cannot be made");
    }
    /* Last, so that cpu_stop finds all timers. */
    return options->is_process_timer ? start_process_timer(why) : start_thread_timers(why);
}

bool cpu_start(const struct cpu_options *options, char why[CPU_WHY]) {
    uint32_t off = OFF;
    if (!atomic_compare_exchange_strong(&g.state, &off, STARTING)) {
        return explain(why, "the CPU profiler is on already");
    }
    g.is_paused = false;
    if (!begin(options, why)) {
        atomic_store(&g.state, OFF);
        writer_ring();
        return false;
    }
    return true;
}

static void wait_for_handlers(void) {
    _Atomic uint32_t never = 0;
    for (unsigned i = 0; i < END_MS && !no_handler_runs(); i++) {
        os_wait_ms(&never, 0, 1);
    }
}

bool cpu_stop(void) {
    uint32_t on = ON;
    if (!atomic_compare_exchange_strong(&g.state, &on, STOPPING)) {
        return false;
    }
    enter();
    threads_end();
    if (g.options.is_process_timer) {
        (void)os_timer_of_process(g.options.is_wall, 0);
    }
    leave();
    wait_for_handlers();
    writer_count();
    atomic_store(&g.state, OFF);
    writer_ring();
    return true;
}

STARTUP bool cpu_is_on(void) {
    return atomic_load_explicit(&g.state, memory_order_relaxed) == ON;
}

void cpu_pause(bool is_paused) {
    if (!is_paused) {
        g.counted_ns = process_clock();
    }
    g.is_paused = is_paused;
}

bool cpu_is_paused(void) {
    return g.is_paused;
}

/* ---------------------------------------------------------------- reading */

uint32_t cpu_sample_count(void) {
    return sums_count();
}

bool cpu_read_sample(uint32_t index, struct cpu_sample *sample) {
    return sums_read(index, sample);
}

bool cpu_read_thread(uint32_t thread, char name[16], pid_t *tid) {
    uint32_t id;
    enter();
    bool is_one = threads_read(thread, name, &id);
    leave();
    *tid = is_one ? (pid_t)id : 0;
    return is_one;
}

void cpu_read_totals(struct cpu_totals *totals) {
    enter();
    *totals = g.totals;
    totals->left_out = threads_left_out();
    leave();
    totals->samples = atomic_load_explicit(&g.samples, memory_order_relaxed);
    totals->lost = atomic_load_explicit(&g.lost, memory_order_relaxed);
}

unsigned cpu_hz(void) {
    return g.totals.hz;
}

unsigned cpu_read_stack(const void *context, uintptr_t *addresses, unsigned most,
                        unsigned skipped) {
    bool met_unknown = false;
    struct walk_registers start =
        context != NULL ? walk_registers_of(context) : walk_registers_here();
    unsigned first = context != NULL ? skipped : skipped + 2; /* this function and its caller */
    struct rack_slot *slot = rack_take();                     /* The stack may be small. */
    if (slot == NULL) {
        addresses[0] = start.address;
        return first == 0 && most > 0;
    }
    atomic_fetch_add(&g.handlers, 1);
    slot->room.is_asked = false;
    unsigned count =
        walk_interrupted(start, slot->addresses, RACK_DEPTH, &slot->room, &met_unknown);
    atomic_fetch_sub(&g.handlers, 1);
    slot->addresses[0]--;
    unsigned kept = first < count ? (unsigned)min_size(count - first, most) : 0;
    memcpy(addresses, slot->addresses + first, kept * sizeof(addresses[0]));
    rack_put_back(slot);
    return kept;
}

void cpu_reset(void) {
    enter();
    sums_clear(true);
    g.samples = g.lost = 0;
    g.totals.start_ns = os_now_ns();
    leave();
}

/* ---------------------------------------------------------------- the process */

STARTUP void cpu_thread_begins(void) {
    if (cpu_is_on() && os_may_ask_kernel()) {
        enter();
        if (cpu_is_on() && g.has_thread_timers) {
            threads_join(os_thread_id());
        }
        leave();
    }
}

void cpu_thread_ends(void) {
    char name[16];
    if (!cpu_is_on() || !os_may_ask_kernel()) {
        return;
    }
    os_thread_name(name);
    enter();
    threads_leave(os_thread_id(), name);
    leave();
}

STARTUP void cpu_forked(void) {
    bool was_on = g.state == ON;
    g.has_writer = g.is_kept = false;
    g.handlers = 0;
    g.bell = 0;
    code_forked();
    rack_clear();
    bool is_sound = lock_acquire(&g.lock) != LOCK_ABANDONED;
    forget(is_sound);
    leave();
    atomic_store(&g.state, OFF);
    cpu_file_forked(was_on);
}
