/* SPDX-License-Identifier: MIT
 *
 * leak_exit.c - the leak check at exit: when it comes, and what becomes of the exit status.
 *
 *      exit()      handlers and destructors of the program
 *                  ... ours, by the loader, among those of libraries     leak_check:exit
 *                  destructors of the other libraries
 *                  the handler that was registered before all others     leak_check:strict
 *                  libc writes what is in its buffers
 *
 * A forked child that does not exec is not checked: it has objects of threads that do not exist in
 * it.  Nor is a process that nobody means to watch (recorder.h).
 */
#include "api/leak_exit.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "api/life.h"
#include "base/log.h"
#include "base/os.h"
#include "control/control.h"
#include "leak/leak.h"
#include "opt/opt.h"
#include "out/out_file.h"
#include "out/pile.h"

enum { CLEANUPS_MOST = 256 };

static struct {
    uint32_t process; /* the process that was started */
    uint64_t main_ns; /* when the program's own code began; 0 before */
    _Atomic bool is_over;
    _Atomic unsigned cleanup_count;
    void (*_Atomic cleanups[CLEANUPS_MOST])(void);
} g;

extern int cxa_atexit(void (*handler)(void *), void *argument,
                      void *module) __asm__("__cxa_atexit");

static bool is_at_exit(void) {
    return opt.leak_check == LEAK_CHECK_EXIT || opt.leak_check == LEAK_CHECK_STRICT;
}

/* ---------------------------------------------------------------- the end */

/* Does not wait for a stream that another thread holds. */
_Noreturn void leak_exit_end(int status) {
    if (status == LEAK_EXIT_ABORT) {
        os_abort();
    }
    if (ftrylockfile(stdout) == 0) {
        fflush_unlocked(stdout);
        funlockfile(stdout);
    }
    os_exit(status);
}

void leak_exit_add_cleanup(void (*cleanup)(void)) {
    unsigned place = atomic_fetch_add(&g.cleanup_count, 1);
    if (place < CLEANUPS_MOST) {
        g.cleanups[place] = cleanup;
    }
}

/* The last one added runs first. */
void leak_exit_run_cleanups(void) {
    unsigned count = (unsigned)min_size(atomic_exchange(&g.cleanup_count, 0), CLEANUPS_MOST);
    while (count > 0) {
        void (*cleanup)(void) = g.cleanups[--count];
        if (cleanup != NULL) {
            cleanup();
        }
    }
}

/* ---------------------------------------------------------------- the check */

static void record(const struct leaks *leaks) {
    struct pile text = {0};
    if (recorder_is_on() && leaks_write(leaks, (struct out_sink){out_to_pile, &text, false}) == 0 &&
        life_enter()) {
        (void)recorder_leaks(text.bytes, text.length);
        life_leave();
    }
    pile_release(&text);
}

static void tell_more(const struct leaks *leaks) {
    SPARSE static char path[OUT_FILE_NAME_BYTES]; /* There is one exit. */
    leak_report_dump(leaks, "_main_", path, sizeof(path));
    if (leaks->text == LEAK_TEXT_NONE) {
        return;
    }
    if (path[0] != '\0') {
        log_line("lines of code: tally report %s", path);
        if (leaks->text == LEAK_TEXT_GPERFTOOLS) {
            log_line("or: pprof --inuse_objects --lines --heapcheck --edgefraction=1e-10"
                     " --nodefraction=1e-10 --gv PROGRAM, and this file");
        }
    }
    if (opt.leak_test_alignment) {
        leaks_test_alignment(leaks, leak_exit_since_ns());
    } else if (leaks->text == LEAK_TEXT_GPERFTOOLS) {
        log_line("pointers at odd places: HEAP_CHECK_TEST_POINTER_ALIGNMENT=1 tests for them;"
                 " pointers far into objects: HEAP_CHECK_MAX_POINTER_OFFSET=-1 counts them");
    }
}

/* The status with which the process is to end. */
static int status_with_leaks(const struct leaks *leaks) {
    int status = (int)opt.leak_exit_code;
    if (leaks->text == LEAK_TEXT_GPERFTOOLS && status != 0) {
        log_line("Exiting with status %d because of whole-program leaks", status);
        return opt.leak_list_objects ? LEAK_EXIT_ABORT : status;
    }
    return status;
}

static bool is_due(void) {
    return is_at_exit() && os_process_id() == g.process && recorder_is_meant() &&
           !atomic_exchange(&g.is_over, true);
}

static int check(void) {
    struct leaks leaks;
    int status = 0;
    leak_exit_run_cleanups();
    if (!leaks_find_last(&leaks, leak_exit_since_ns())) {
        log_line("no leak check: %s", leaks.why);
        return 0;
    }
    leak_report_tell(&leaks, leaks.text == LEAK_TEXT_GPERFTOOLS ? "_main_" : "at exit");
    record(&leaks);
    if (leaks_lost(&leaks).objects > 0) {
        tell_more(&leaks);
        status = status_with_leaks(&leaks);
    }
    leaks_release(&leaks);
    return status;
}

/* The record of a run ends here: there is no place in it for what is found later. */
int leak_exit_check(void) {
    bool is_time = opt.leak_check == LEAK_CHECK_EXIT || recorder_is_on();
    return is_time && is_due() ? check() : 0;
}

static void check_last(void *unused) {
    (void)unused;
    int status = is_due() ? check() : 0;
    if (status != 0) {
        leak_exit_end(status);
    }
}

bool leak_exit_cancel(void) {
    return is_at_exit() && !atomic_exchange(&g.is_over, true);
}

/* ---------------------------------------------------------------- start */

/* A handler registered without a module belongs to none, so the loader does not call it together
 * with this library's destructors. */
STARTUP void leak_exit_init(void) {
    g.process = os_process_id();
    leak_calls_init();
    if (is_at_exit()) {
        log_keep_error();
        life_watch_exit();
        if (opt.leak_check == LEAK_CHECK_STRICT) {
            (void)cxa_atexit(check_last, NULL, NULL);
        }
    }
}

STARTUP void leak_exit_main_begins(void) {
    g.main_ns = os_now_ns();
}

uint64_t leak_exit_since_ns(void) {
    return opt.leak_since_main ? g.main_ns : 0;
}
