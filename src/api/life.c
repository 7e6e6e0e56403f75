/* SPDX-License-Identifier: MIT
 *
 * life.c - every start, thread-exit, fork and exit sequence, as plain lists of calls.
 *
 * Any exported function may be the first call of the process, before constructors and before libc
 * is ready, so the start is lazy and asks libc for nothing; a constructor does it if no call has
 * come by then.  What needs libc (the key whose destructor announces a thread's end) comes after
 * the heap works and outside of the allocator, because libc may allocate for it.
 *
 * No lock is taken for a fork, and nothing runs before it: the child's first slow call, or its
 * atfork handler, finds the attention word empty.  From then on locks that other threads held
 * during the fork are void (lock.h), what such a lock guards is repaired by the next to take it,
 * and the caches of the threads that vanished are recovered step by step.
 *
 * Threads     The start is serialised by a lock.  A thread's end runs in that thread.
 */
#include "api/life.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "api/background.h"
#include "api/jemalloc.h"
#include "api/leak_exit.h"
#include "api/listener.h"
#include "base/lock.h"
#include "base/log.h"
#include "opt/opt.h"
#include "base/os.h"
#include "base/os_confined.h"
#include "base/own.h"
#include "control/control.h"
#include "cpu/cpu.h"
#include "guard/guard.h"
#include "heap/heap.h"
#include "leak/leak.h"
#include "prof/prof.h"

/* Recovery copies pages that parent and child share, which is wasted in a child about to exec. */
enum { CALLS_BEFORE_RECOVERY = 256 };

/* A program may define these; see docs/manual/options.md. */
#if TALLY_OVERRIDE
#define PROGRAMS EXPORT __attribute__((weak))
#else
#define PROGRAMS static
#endif
PROGRAMS const char *malloc_conf;
PROGRAMS const char *malloc_conf_2_conf_harder;

enum key_state { KEY_NOT_YET, KEY_MADE, KEY_REFUSED };

static struct {
    struct lock lock;
    bool is_started; /* guarded by lock */
    pthread_key_t key;
    _Atomic int key_state;
    _Atomic size_t threads;
    _Atomic unsigned calls_in_child;   /* slow calls since this process was forked */
    _Atomic unsigned growths_in_child; /* ends of allocations that found it too young */
    _Atomic uint64_t forked_ms;        /* when the fork was noticed; 0: this is no child */
    _Atomic bool watches_exit;         /* life_process_ends will be called */
    _Atomic uint64_t allocated;        /* bytes by all threads, kept for stats_interval only */
    bool has_signal;                   /* on_signal has replaced old_signal */
    struct sigaction old_signal;
} g = {.lock = LOCK_OF_RANK(RANK_START)};

/* ---------------------------------------------------------------- threads */

/* Other destructors may still allocate and free: the heap is given up in the second round. */
static void thread_ends(void *rounds) {
    if (rounds == (void *)1 && pthread_setspecific(g.key, (void *)2) == 0) {
        return;
    }
    if (life_enter()) {
        cpu_thread_ends();
        prof_thread_ends();
        leak_thread_ends();
        thread_exit();
        life_leave();
    }
    size_t threads = life_thread_count();
    while (threads > 0 && !atomic_compare_exchange_weak(&g.threads, &threads, threads - 1)) {
    }
    background_thread_ended();
}

/*
 * Has libc announce this thread's end.  May allocate.  A thread whose end is not announced gets no
 * heap, which would be lost with it.  The first thread needs none of this: its end is the end of
 * the process.
 */
COLD void life_register_thread(void) {
    int saved = errno; /* A call that succeeds leaves it alone. */
    tls.registered = 1;
    int state = atomic_load_explicit(&g.key_state, memory_order_acquire);
    if (state == KEY_NOT_YET) {
        tls.registered = 0;
    } else if (state == KEY_MADE && pthread_setspecific(g.key, (void *)1) == 0) {
        atomic_fetch_add_explicit(&g.threads, 1, memory_order_relaxed);
        attention_raise(ATTENTION_GROWN);
        thread_mark_inside(true);
        cpu_thread_begins();
        thread_mark_inside(false);
    } else if (!os_is_first_thread() && life_enter()) {
        thread_exit();
        life_leave();
    }
    errno = saved;
}

size_t life_thread_count(void) {
    return atomic_load_explicit(&g.threads, memory_order_relaxed);
}

/* ---------------------------------------------------------------- start and end */

static void end_cpu_profile(void) {
    if (life_enter()) {
        cpu_file_exit();
        life_leave();
    }
}

void life_process_ends(void) {
    /* Removing a socket's name and writing a last snapshot are not worth being killed for. */
    bool is_free = !(socket_is_open() || recorder_is_on()) || os_may_ask_kernel();
    if (is_free) {
        listener_stop();
    }
    end_cpu_profile();
    int status = leak_exit_check();
    if (life_enter()) {
        bool fails = triggers_exit();
        if (is_free) {
            recorder_end();
        }
        if (opt.stats_print) {
            stats_print(log_write, NULL, opt.stats_print_opts);
        }
        if (fails) {
            os_exit(1);
        }
        life_leave();
    }
    if (status != 0) {
        leak_exit_end(status);
    }
}

/* May allocate. */
void life_watch_exit(void) {
    if (!atomic_exchange(&g.watches_exit, true)) {
        atexit(life_process_ends);
    }
}

/*
 * The atfork handler of a child.  The child's first slow call would do the same; but a child may
 * leave all slow calls to threads that it starts, and those have to wait for this.
 */
STARTUP static void look_around(void) {
    (void)life_ready();
}

/* The same where the kernel does not wipe the attention word for the child. */
static void forget_and_look_around(void) {
    attention_forget();
    look_around();
}

static void on_signal(int number) {
    (void)number;
    triggers_signal();
    background_ring();
}

/* A handler of the program is left alone, and one that the program sets later wins. */
static void catch_signal(void) {
    int number = (int)opt.prof_signal;
    struct sigaction *old = &g.old_signal;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    if (number == 0 || !recorder_is_meant()) {
        return;
    }
    bool is_free = sigaction(number, NULL, old) == 0 && !(old->sa_flags & SA_SIGINFO) &&
                   (old->sa_handler == SIG_DFL || old->sa_handler == SIG_IGN);
    sigemptyset(&action.sa_mask);
    g.has_signal = is_free && sigaction(number, &action, NULL) == 0;
    if (!g.has_signal) {
        log_line("signal %d is taken or cannot be caught: prof_signal is ignored", number);
    }
}

/* In a child that does not record itself the signal regains its old action. */
STARTUP static void release_signal(void) {
    struct sigaction now;
    int number = (int)opt.prof_signal;
    if (g.has_signal && !recorder_is_meant() && sigaction(number, NULL, &now) == 0 &&
        !(now.sa_flags & SA_SIGINFO) && now.sa_handler == on_signal) {
        sigaction(number, &g.old_signal, NULL);
        g.has_signal = false;
    }
}

/* Needs libc, and constructors that have run. */
static void settle_profilers(void) {
    prof_settle();
    listener_start_by_option();
    if (life_enter()) {
        cpu_settle();
        recorder_start_cpu();
        life_leave();
    }
    if (opt.cpu_file[0] != '\0') {
        life_watch_exit();
    }
}

/* Everything asked of libc, once the heap can serve libc's own allocations. */
static void settle_with_libc(bool sees_forks) {
    int saved = errno;
    bool made = pthread_key_create(&g.key, thread_ends) == 0;
    atomic_store_explicit(&g.key_state, made ? KEY_MADE : KEY_REFUSED, memory_order_release);
    pthread_atfork(NULL, NULL, sees_forks ? look_around : forget_and_look_around);
    if (opt.stats_print || triggers_want_exit()) {
        life_watch_exit();
    }
    catch_signal();
    leak_exit_init();
    if (!TALLY_OVERRIDE) { /* otherwise a constructor: this call may come from the loader */
        settle_profilers();
    }
    errno = saved;
}

/* For the rest of the process every slow call looks at how much was allocated. */
static void watch_interval(void) {
    if (opt.stats_interval >= 0) {
        attention_raise(ATTENTION_INTERVAL);
    }
}

/* The program may define malloc_conf with the prefix instead. */
static struct opt_program texts_of_program(void) {
    const char *harder = malloc_conf_2_conf_harder;
    return (struct opt_program){
        .conf = malloc_conf != NULL ? malloc_conf : jemalloc_conf(),
        .conf_harder = harder != NULL ? harder : jemalloc_conf_harder(),
    };
}

static void start(void) {
    attention_begin();
    (void)lock_acquire(&g.lock);
    bool first = !g.is_started;
    bool sees_forks = false;
    if (first) {
        lock_init();
        os_init();
        jemalloc_init();
        sees_forks = attention_init();
        opt_init(texts_of_program());
        if (!heap_init()) {
            fatal("no memory to start with");
        }
        opt.prof |= recorder_init();
        prof_init();
        background_init();
        attention_start();
        triggers_init();
        watch_interval();
        stats_page_start(sees_forks);
        if (TALLY_OVERRIDE) {
            opt_gperftools_hide(); /* All variables have been read. */
        }
        g.is_started = true;
    }
    lock_release(&g.lock);
    if (first) {
        thread_mark_inside(false);
        settle_with_libc(sees_forks);
        thread_mark_inside(true);
    }
}

COLD void life_wake(void) {
    if (!attention_notice_fork()) {
        start();
    }
}

/* ---------------------------------------------------------------- what was left to do */

/*
 * Only the thread that forked, the child's first, knows which heap is not an orphan.  Until it has
 * come here, no other thread of the child gets a heap.
 */
static void settle_in_child(void) {
    thread_forked();
    prof_forked();
    cpu_forked();
    own_forked();
    leak_forked();
    log_forked();
    g.threads = tls.registered;
    g.calls_in_child = g.growths_in_child = 0;
    g.forked_ms = os_now_ms();
    background_forked();
    triggers_forked();
    socket_forked();
    stats_page_forked();
    release_signal();
    attention_raise(ATTENTION_ORPHANS);
    attention_raise(ATTENTION_DEFERRED); /* the bit was lost with the word */
    watch_interval();
    attention_take(ATTENTION_FORKED);
}

static void free_deferred(void) {
    for (void *object = emergency_take_deferred(); object != NULL;) {
        void *next = *(void **)object;
        struct heap_object found = heap_look(object);
        /* The object carries the secret, since a handler freed it; the slab's bitmap is the
         * proof. */
        if (found.verdict != HEAP_LIVE || !heap_free(&found)) {
            guard_refuse("free", object, &found);
        }
        object = next;
    }
}

/*
 * Adds what this thread has allocated since it last came here, and prints when all threads together
 * have passed the next multiple of the interval.  Allocations of other threads since their last
 * slow calls are missing, so this is approximate.
 */
static void attend_to_interval(void) {
    static __thread uint64_t seen;
    static __thread bool is_printing; /* the program's malloc_message may allocate */
    uint64_t now = thread_allocated();
    uint64_t before = atomic_fetch_add_explicit(&g.allocated, now - seen, memory_order_relaxed);
    uint64_t interval = max_size((size_t)opt.stats_interval, 1);
    uint64_t after = before + (now - seen);
    seen = now;
    if (before / interval != after / interval && !is_printing) {
        int saved = errno;
        is_printing = true;
        stats_print(log_write, NULL, opt.stats_interval_opts);
        is_printing = false;
        errno = saved;
    }
}

static void attend_inside(uint32_t bits) {
    if (bits & ATTENTION_FORKED && os_is_first_thread()) {
        settle_in_child();
    }
    if (bits & ATTENTION_DEFERRED) {
        attention_take(ATTENTION_DEFERRED);
        free_deferred();
    }
    if (bits & ATTENTION_ORPHANS && ++g.calls_in_child > CALLS_BEFORE_RECOVERY &&
        !thread_recover_some()) {
        attention_take(ATTENTION_ORPHANS);
    }
    if (bits & ATTENTION_INTERVAL) {
        attend_to_interval();
    }
    if (bits & ATTENTION_CLOCK) {
        (void)triggers_tick();
    }
    if (bits & ATTENTION_AGENTS) {
        attention_take(ATTENTION_AGENTS);
        prof_follow_agents();
    }
    if (bits & ATTENTION_PROFILE) {
        triggers_attend();
    }
    if (bits & ATTENTION_STATS) {
        stats_page_attend();
    }
}

/* The program's callback runs outside: it may allocate.  The allocation that led here keeps its
 * errno. */
static void attend_to_soft_limit(void) {
    if (life_enter()) {
        heap_trim();
        life_leave();
    }
    int saved = errno;
    limit_tell_program();
    errno = saved;
}

enum {
    ATTENTION_INSIDE = ATTENTION_FORKED | ATTENTION_DEFERRED | ATTENTION_ORPHANS |
                       ATTENTION_INTERVAL | ATTENTION_CLOCK | ATTENTION_PROFILE | ATTENTION_AGENTS |
                       ATTENTION_STATS
};

COLD void life_attend(void) {
    uint32_t bits = attention_get();
    if (bits & ATTENTION_INSIDE) {
        thread_mark_inside(true);
        attend_inside(bits);
        thread_mark_inside(false);
    }
    if (attention_get() & ATTENTION_BACKGROUND) { /* perhaps by what was just attended to */
        attention_take(ATTENTION_BACKGROUND);
        background_wake();
    }
}

/* Between a fork and an exec, programs reset the actions of signals, and a timer's signal would
 * then end the process. */
static bool is_young_child(void) {
    enum { GROWN_UP_MS = 100 };
    return g.forked_ms != 0 && ++g.growths_in_child < CALLS_BEFORE_RECOVERY &&
           os_now_ms() - g.forked_ms < GROWN_UP_MS;
}

static void attend_to_cpu(void) {
    int saved = errno;
    if (is_young_child()) {
        attention_raise(ATTENTION_CPU);
        return;
    }
    thread_mark_inside(true);
    cpu_begin_again();
    recorder_start_cpu_in_child();
    thread_mark_inside(false);
    errno = saved;
}

/* The program's callback is called here and not at the end of a free, for the reason life.h
 * gives. */
COLD void life_attend_alloc(void) {
    life_attend();
    if (attention_take(ATTENTION_SOFT_LIMIT)) {
        attend_to_soft_limit();
    }
    if (attention_take(ATTENTION_GROWN)) {
        thread_mark_inside(true);
        stats_page_grown();
        thread_mark_inside(false);
        background_consider();
    }
    if (attention_take(ATTENTION_CPU)) {
        attend_to_cpu();
    }
}

#if TALLY_OVERRIDE
/*
 * Usually libc has allocated long before this runs.  Where it has not, starting here prevents the
 * first malloc from being called by pthread_key_create or atexit, whose locks the start needs too.
 */
__attribute__((constructor(101))) static void start_early(void) {
    look_around();
    opt_gperftools_show();
}

/* In a static program libgcc learns of our unwind tables in a constructor of its own, which has run
 * by now. */
__attribute__((constructor)) static void settle_late(void) {
    settle_profilers();
    leak_exit_main_begins();
}
#endif
