/* SPDX-License-Identifier: MIT
 *
 * stop.c - holds every other thread still with a signal of our own.
 *
 *      caller                                  other thread
 *      lists /proc/self/task
 *      sends the signal, with a ticket   --->  handler: inside the allocator?  STOP_BUSY, returns
 *      sends it again a little later     --->  handler: STOP_HELD, waits on `hold`
 *      lists again, until there is nobody new and everybody has answered
 *      ...
 *      hold = 0                          --->  returns
 *
 * The kernel has put all registers of the thread onto its stack before the handler runs.  No ptrace is
 * needed, so it works in containers as elsewhere.
 *
 * One signal is under way to a thread at a time, and its ticket tells to which stop it belongs: a handler that
 * comes too late finds another ticket and does nothing.  A thread that blocks the signal is not sent
 * one: it would get it much later, perhaps in another program after exec.
 *
 * The handler stays installed, because a late signal would otherwise end the process.  The signal is the highest
 * real-time signal that the program has not taken.
 *
 * Invariant   A held thread has no lock of the library: it was not inside (thread_is_inside).
 * Errors      A thread that does not answer goes on, and may change anything meanwhile; the caller is told.
 */
#include "leak/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fmt.h"
#include "base/os.h"
#include "base/os_threads.h"
#include "base/own.h"
#include "heap/heap.h"

enum {
    MOST_THREADS = 1 << 16,
    LG_MOST = 16,
    STATE_BITS = 8,
    LOOKS = 8, /* at a thread that sleeps and blocks the signal */
    LOOK_NS = 1000000,
    ANSWER_NS = 200000000, /* to a signal */
    AGAIN_NS = 20000,      /* before a thread that was inside is asked again */
    OWN_MS = 1000,
};

static struct {
    struct stop_thread *threads; /* MOST_THREADS of them, mapped once */
    unsigned count;
    unsigned cursor; /* the one that is probably listed next */
    bool is_full;    /* there are more than can be kept */
    bool is_late;    /* some did not answer in time, and were not asleep */
    bool is_unsure;  /* the kernel does not tell about some */
    uint32_t caller;
    uint32_t number;       /* of the stop, not 0; a ticket is this and the thread's index */
    _Atomic uint32_t hold; /* the number, for as long as held threads wait */
    _Atomic uint32_t news; /* counts answers */
    int signal;            /* 0: none yet */
} g;

/* ---------------------------------------------------------------- in the other threads */

static void tell(struct stop_thread *thread, uint64_t word) {
    atomic_store(&thread->word, word);
    atomic_fetch_add(&g.news, 1);
    os_wake(&g.news);
}

/* A handler that comes too late finds another word and does nothing. */
static void on_signal(int number, siginfo_t *info, void *context) {
    uint64_t ticket;
    (void)number;
    if (!os_signal_number(info, &ticket) || g.threads == NULL) {
        return;
    }
    struct stop_thread *thread = &g.threads[ticket % MOST_THREADS];
    uint64_t asked = ticket << STATE_BITS | STOP_ASKED;
    if (!atomic_compare_exchange_strong(&thread->word, &asked,
                                        asked - STOP_ASKED + STOP_ANSWERING)) {
        return;
    }
    if (thread_is_inside()) {
        tell(thread, ticket << STATE_BITS | STOP_BUSY);
        return;
    }
    struct os_interrupted interrupted = os_interrupted(context);
    thread->sp = interrupted.sp;
    thread->frame = interrupted.frame;
    thread->frame_end = interrupted.end;
    thread->pointer = os_thread_pointer();
    tell(thread, ticket << STATE_BITS | STOP_HELD);
    while (atomic_load(&g.hold) == (uint32_t)(ticket >> LG_MOST)) {
        os_wait(&g.hold, (uint32_t)(ticket >> LG_MOST));
    }
}

/* ---------------------------------------------------------------- the signal */

static bool is_ours(const struct sigaction *action) {
    return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_signal;
}

static bool is_free(const struct sigaction *action) {
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_DFL;
}

/* No handler of the program's runs in a held thread: all signals wait.  A thread whose stack is too
 * small for that, such as Go's, has an alternate one. */
static bool install(int number) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    action.sa_sigaction = on_signal;
    sigfillset(&action.sa_mask);
    return sigaction(number, &action, NULL) == 0;
}

static bool have_signal(void) {
    struct sigaction now;
    if (g.signal != 0 && sigaction(g.signal, NULL, &now) == 0 && is_ours(&now)) {
        return true;
    }
    for (int number = SIGRTMAX; number >= SIGRTMIN; number--) {
        if (sigaction(number, NULL, &now) == 0 && is_free(&now) && install(number)) {
            g.signal = number;
            return true;
        }
    }
    return false;
}

/* ---------------------------------------------------------------- who there is */

static uint64_t ticket_of(const struct stop_thread *thread) {
    return (uint64_t)g.number << LG_MOST | (uint64_t)(thread - g.threads);
}

static void set_state(struct stop_thread *thread, enum stop_state state) {
    atomic_store(&thread->word, ticket_of(thread) << STATE_BITS | state);
}

static bool is_known(uint32_t thread) {
    for (unsigned i = 0; i < g.count; i++) {
        unsigned at = (g.cursor + i) % g.count; /* They come in the same order each time. */
        if (g.threads[at].thread == thread) {
            g.cursor = at + 1;
            return true;
        }
    }
    return false;
}

static bool meet(uint32_t number, void *context) {
    (void)context;
    if (number == g.caller || is_known(number)) {
        return true;
    }
    if (g.count == MOST_THREADS) {
        g.is_full = true;
        return false;
    }
    struct stop_thread *thread = &g.threads[g.count];
    thread->thread = number;
    thread->tries = 0;
    thread->asked_ns = os_now_ns();
    thread->sp = thread->frame = thread->frame_end = thread->pointer = 0;
    bool is_own = own_find(number, &thread->sp, &thread->pointer);
    set_state(thread, is_own ? STOP_OWN : STOP_NEW);
    g.count++;
    return true;
}

/* ---------------------------------------------------------------- asking */

/* Does it exist, and does it take the signal?  A thread that begins or ends blocks all signals for a moment, but does
 * not sleep meanwhile; and a new one may wait for long before it runs at all. */
static void look_at(struct stop_thread *thread) {
    struct os_thread_look look = os_look_at_thread(thread->thread, g.signal);
    if (look.is_gone) {
        set_state(thread, STOP_GONE);
    } else if (look.is_unknown) {
        g.is_unsure = true;
        set_state(thread, STOP_UNANSWERED);
    } else if (!look.blocks_signals) {
        set_state(thread, STOP_READY);
    } else if (own_find(thread->thread, &thread->sp, &thread->pointer)) {
        set_state(thread, STOP_OWN); /* since a moment ago */
    } else {
        thread->tries += look.is_asleep;
        bool is_over =
            thread->tries > LOOKS || (look.has_run && os_now_ns() > thread->asked_ns + ANSWER_NS);
        set_state(thread, is_over ? STOP_UNANSWERED : STOP_NEW);
    }
}

/* The signal cannot be sent to a thread that has ended, or while the queue of signals is full. */
static void ask(struct stop_thread *thread) {
    thread->asked_ns = os_now_ns();
    set_state(thread, STOP_ASKED); /* before the answer */
    if (os_signal_thread(thread->thread, g.signal, ticket_of(thread)) != 0) {
        set_state(thread, STOP_NEW);
        thread->tries++;
        look_at(thread);
    }
}

/* It was asked a while ago.  A thread that is ready to run will answer when it does, unless it is too late. */
static void wait_no_longer(struct stop_thread *thread, bool gives_up) {
    struct os_thread_look look = os_look_at_thread(thread->thread, g.signal);
    bool is_gone = look.is_gone;
    g.is_unsure |= look.is_unknown;
    if (!gives_up && !is_gone && !look.is_unknown && !look.is_asleep) {
        thread->asked_ns = os_now_ns();
        return;
    }
    uint64_t ticket = ticket_of(thread) << STATE_BITS;
    uint64_t asked = ticket | STOP_ASKED;
    atomic_compare_exchange_strong(&thread->word, &asked,
                                   ticket | (is_gone ? STOP_GONE : STOP_UNANSWERED));
}

static bool is_settled(const struct stop_thread *thread) {
    return stop_state(thread) >= STOP_HELD;
}

/* Looks at those that are new.  True when one must be looked at again. */
static bool look_at_new(void) {
    bool again = false;
    for (unsigned i = 0; i < g.count; i++) {
        if (stop_state(&g.threads[i]) == STOP_NEW) {
            look_at(&g.threads[i]);
            again |= stop_state(&g.threads[i]) == STOP_NEW;
        }
    }
    return again;
}

/* Asks the threads that have not answered.  True when one was busy. */
static bool ask_all(void) {
    bool again = false;
    uint64_t now = os_now_ns();
    for (unsigned i = 0; i < g.count; i++) {
        struct stop_thread *thread = &g.threads[i];
        enum stop_state state = stop_state(thread);
        if (state == STOP_READY || state == STOP_BUSY) {
            again |= state == STOP_BUSY;
            ask(thread);
        } else if (state == STOP_ASKED && now > thread->asked_ns + ANSWER_NS) {
            wait_no_longer(thread, false);
        }
    }
    return again;
}

/* It is too late to ask.  A thread that has not answered by now may be anywhere, also in the allocator. */
static void give_up(void) {
    for (unsigned i = 0; i < g.count; i++) {
        struct stop_thread *thread = &g.threads[i];
        enum stop_state state = stop_state(thread);
        g.is_late |= state < STOP_HELD;
        if (state == STOP_ASKED) {
            wait_no_longer(thread, true);
        } else if (state < STOP_ASKED || state == STOP_BUSY) {
            set_state(thread, STOP_UNANSWERED);
        }
    }
}

static bool all_are_settled(void) {
    for (unsigned i = 0; i < g.count; i++) {
        if (!is_settled(&g.threads[i])) {
            return false;
        }
    }
    return true;
}

/* Until each has answered or will not. */
static void settle(uint64_t deadline_ns) {
    for (;;) {
        uint32_t news = atomic_load(&g.news);
        bool is_new = look_at_new();
        bool was_busy = ask_all();
        if (os_now_ns() > deadline_ns) {
            give_up();
        }
        if (all_are_settled()) {
            return;
        }
        if (is_new || was_busy) {
            os_sleep_ns(was_busy ? AGAIN_NS : LOOK_NS);
        } else {
            os_wait_ms(&g.news, news, 1);
        }
    }
}

/* ---------------------------------------------------------------- the two calls */

static bool prepare(char *why, size_t why_bytes) {
    if (g.threads == NULL) {
        g.threads = os_map(MOST_THREADS * sizeof(g.threads[0]));
    }
    if (g.threads == NULL) {
        fmt_text(why, why_bytes, "there is no memory to stop threads with");
        return false;
    }
    if (!have_signal()) {
        fmt_text(why, why_bytes, "there is no free real-time signal to stop threads with");
        return false;
    }
    if (!own_close(OWN_MS)) {
        fmt_text(why, why_bytes, "a thread of the library's own is busy");
        return false;
    }
    return true;
}

static void explain(int error, char *why, size_t why_bytes) {
    if (error != 0) {
        fmt_text(why, why_bytes, "the threads of the process cannot be listed: is /proc mounted?");
    } else if (g.is_full) {
        fmt_text(why, why_bytes, "there are too many threads");
    } else if (g.is_unsure) {
        fmt_text(why, why_bytes, "/proc/self/task cannot be read: are all descriptors in use?");
    } else {
        fmt_text(why, why_bytes, "its threads could not be stopped in the time allowed");
    }
}

static bool has_failed(void) {
    return g.is_full || g.is_late || g.is_unsure;
}

bool stop_begin(uint64_t deadline_ns, char *why, size_t why_bytes) {
    g.is_late = false;
    if (!prepare(why, why_bytes)) {
        return false;
    }
    g.count = g.cursor = 0;
    g.is_full = g.is_late = g.is_unsure = false;
    g.caller = os_thread_id();
    g.number = g.number % UINT32_MAX + 1;
    atomic_store(&g.hold, g.number);
    int error;
    unsigned before;
    do {
        before = g.count;
        error = os_walk_threads(meet, NULL);
        settle(deadline_ns);
    } while (error == 0 && !has_failed() && g.count != before);
    if (error != 0 || has_failed()) {
        stop_end();
        explain(error, why, why_bytes);
        return false;
    }
    return true;
}

void stop_end(void) {
    atomic_store(&g.hold, 0);
    os_wake_all(&g.hold);
    own_open();
}

bool stop_was_late(void) {
    return g.is_late;
}

unsigned stop_count(void) {
    return g.count;
}

const struct stop_thread *stop_at(unsigned index) {
    return &g.threads[index];
}

void stop_walk_memory(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context) {
    if (g.threads != NULL) {
        uintptr_t start = (uintptr_t)g.threads;
        visit(start, start + MOST_THREADS * sizeof(g.threads[0]), context);
    }
}
