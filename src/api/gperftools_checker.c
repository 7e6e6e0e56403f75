/* SPDX-License-Identifier: MIT
 *
 * gperftools_checker.c - gperftools' class HeapLeakChecker, defined by its mangled names, as of
 * version 2.10.
 *
 * Programs that were compiled with its header make objects of it, so size and fields are those of
 * that version.  Instead of a snapshot of the heap an object holds a moment: while the checker is
 * active, every allocation is recorded with its time.
 *
 * It is active with HEAPCHECK, or the option leak_check; otherwise all checks succeed at once, as
 * in gperftools.
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <tally/tally.h>

#include "api/leak_exit.h"
#include "api/life.h"
#include "base/log.h"
#include "base/os.h"
#include "leak/leak.h"
#include "opt/opt.h"

#if TALLY_OVERRIDE

struct checker {
    void *lock;
    char *name;
    uintptr_t start_ns; /* "snapshot" */
    bool has_checked;
    ssize_t bytes, objects;
    bool keeps_profiles;
};
_Static_assert(sizeof(struct checker) == 7 * sizeof(void *), "that of gperftools 2.10");

EXPORT bool checker_is_active(void) __asm__("_ZN15HeapLeakChecker8IsActiveEv");
EXPORT struct checker *checker_global(void) __asm__("_ZN15HeapLeakChecker13GlobalCheckerEv");
EXPORT bool checker_no_global_leaks(void) __asm__("_ZN15HeapLeakChecker13NoGlobalLeaksEv");
EXPORT void checker_cancel_global_check(void) __asm__("_ZN15HeapLeakChecker17CancelGlobalCheckEv");
EXPORT void checker_init(struct checker *checker,
                         const char *name) __asm__("_ZN15HeapLeakCheckerC1EPKc");
EXPORT void checker_init_base(struct checker *checker,
                              const char *name) __asm__("_ZN15HeapLeakCheckerC2EPKc");
EXPORT void checker_fini(struct checker *checker) __asm__("_ZN15HeapLeakCheckerD1Ev");
EXPORT void checker_fini_base(struct checker *checker) __asm__("_ZN15HeapLeakCheckerD2Ev");
EXPORT bool
checker_no_leaks(struct checker *checker,
                 int symbolize) __asm__("_ZN15HeapLeakChecker9DoNoLeaksENS_15ShouldSymbolizeE");
EXPORT ssize_t
checker_bytes(const struct checker *checker) __asm__("_ZNK15HeapLeakChecker11BytesLeakedEv");
EXPORT ssize_t
checker_objects(const struct checker *checker) __asm__("_ZNK15HeapLeakChecker13ObjectsLeakedEv");
EXPORT void checker_ignore(const void *pointer) __asm__("_ZN15HeapLeakChecker14DoIgnoreObjectEPKv");
EXPORT void
checker_unignore(const void *pointer) __asm__("_ZN15HeapLeakChecker14UnIgnoreObjectEPKv");
EXPORT void disabler_init(void *disabler) __asm__("_ZN15HeapLeakChecker8DisablerC1Ev");
EXPORT void disabler_init_base(void *disabler) __asm__("_ZN15HeapLeakChecker8DisablerC2Ev");
EXPORT void disabler_fini(void *disabler) __asm__("_ZN15HeapLeakChecker8DisablerD1Ev");
EXPORT void disabler_fini_base(void *disabler) __asm__("_ZN15HeapLeakChecker8DisablerD2Ev");
EXPORT void cleaner_init(void *cleaner, void (*cleanup)(void)) __asm__("_ZN11HeapCleanerC1EPFvvE");
EXPORT void cleaner_init_base(void *cleaner,
                              void (*cleanup)(void)) __asm__("_ZN11HeapCleanerC2EPFvvE");
EXPORT void cleaner_run_all(void) __asm__("_ZN11HeapCleaner15RunHeapCleanupsEv");

static struct checker whole_program = {.name = "_main_"};

bool checker_is_active(void) {
    (void)life_ready();
    return opt.leak_check != LEAK_CHECK_OFF;
}

/* ---------------------------------------------------------------- a check */

/* What cannot be checked is no leak. */
static bool check(struct checker *checker) {
    struct leaks leaks;
    checker->has_checked = true;
    checker->bytes = checker->objects = 0;
    if (!leaks_find(&leaks, checker->start_ns)) {
        log_line("no leak check \"%s\": %s", checker->name, leaks.why);
        return true;
    }
    struct leak_sum lost = leaks_lost(&leaks);
    checker->bytes = (ssize_t)lost.requested;
    checker->objects = (ssize_t)lost.objects;
    leaks.text = LEAK_TEXT_GPERFTOOLS;
    leak_report_tell(&leaks, checker->name);
    if (lost.objects > 0 && opt.leak_test_alignment) {
        leaks_test_alignment(&leaks, checker->start_ns);
    }
    leaks_release(&leaks);
    return lost.objects == 0;
}

bool checker_no_leaks(struct checker *checker, int symbolize) {
    (void)symbolize; /* Names cost nothing. */
    if (!checker_is_active()) {
        checker->has_checked = true;
        return true;
    }
    int saved = os_error();
    bool is_clean = check(checker);
    os_set_error(saved);
    return is_clean;
}

ssize_t checker_bytes(const struct checker *checker) {
    if (!checker->has_checked && checker_is_active()) {
        fatal("HeapLeakChecker \"%s\": BytesLeaked() before a check", checker->name);
    }
    return checker->bytes;
}

ssize_t checker_objects(const struct checker *checker) {
    if (!checker->has_checked && checker_is_active()) {
        fatal("HeapLeakChecker \"%s\": ObjectsLeaked() before a check", checker->name);
    }
    return checker->objects;
}

/* ---------------------------------------------------------------- a checker */

/* Its own memory is nobody's leak. */
void checker_init(struct checker *checker, const char *name) {
    *checker = (struct checker){.name = NULL};
    if (!checker_is_active()) {
        return;
    }
    size_t bytes = strlen(name) + 1;
    tally_leak_disable();
    checker->name = tally_malloc(bytes);
    tally_leak_enable();
    if (checker->name == NULL) {
        fatal("HeapLeakChecker \"%s\": no memory", name);
    }
    memcpy(checker->name, name, bytes);
    checker->start_ns = (uintptr_t)os_now_ns();
}

void checker_init_base(struct checker *checker, const char *name) {
    checker_init(checker, name);
}

/* A checker that was made and never asked is a mistake in a test. */
void checker_fini(struct checker *checker) {
    if (checker->name != NULL && !checker->has_checked) {
        fatal("HeapLeakChecker \"%s\" ends without a check", checker->name);
    }
    tally_free(checker->name);
    checker->name = NULL;
}

void checker_fini_base(struct checker *checker) {
    checker_fini(checker);
}

/* ---------------------------------------------------------------- the whole program */

static bool has_global(void) {
    return checker_is_active() && opt.leak_check != LEAK_CHECK_LOCAL;
}

struct checker *checker_global(void) {
    return has_global() ? &whole_program : NULL;
}

bool checker_no_global_leaks(void) {
    if (!has_global()) {
        return true;
    }
    whole_program.start_ns = (uintptr_t)leak_exit_since_ns();
    return checker_no_leaks(&whole_program, 0);
}

void checker_cancel_global_check(void) {
    if (has_global() && leak_exit_cancel()) {
        log_line("Canceling the whole-program heap leak check");
    }
}

/* ---------------------------------------------------------------- what is no leak */

void checker_ignore(const void *pointer) {
    if (checker_is_active() && tally_leak_ignore(pointer) != 0) {
        log_line("IgnoreObject(%p): that is no live object, or it is ignored already", pointer);
    }
}

void checker_unignore(const void *pointer) {
    if (checker_is_active() && tally_leak_unignore(pointer) != 0) {
        fatal("UnIgnoreObject(%p): that object is not ignored", pointer);
    }
}

void disabler_init(void *disabler) {
    (void)disabler;
    tally_leak_disable();
}

void disabler_init_base(void *disabler) {
    disabler_init(disabler);
}

void disabler_fini(void *disabler) {
    (void)disabler;
    tally_leak_enable();
}

void disabler_fini_base(void *disabler) {
    disabler_fini(disabler);
}

void cleaner_init(void *cleaner, void (*cleanup)(void)) {
    (void)cleaner;
    leak_exit_add_cleanup(cleanup);
}

void cleaner_init_base(void *cleaner, void (*cleanup)(void)) {
    cleaner_init(cleaner, cleanup);
}

void cleaner_run_all(void) {
    leak_exit_run_cleanups();
}
#endif
