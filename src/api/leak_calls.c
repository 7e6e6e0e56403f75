/* SPDX-License-Identifier: MIT
 *
 * leak_calls.c - leak checks that a program asks for: tally_leak_*, and the names of LeakSanitizer.
 *
 * The latter are weak: in a program built with the sanitizer, the sanitizer's functions win.  Code
 * that is annotated for the sanitizer, or calls it in tests, thus has a leak checker without a
 * special build.
 *
 * Threads     A call that interrupts the allocator, in a signal handler, does nothing.
 */
#include <errno.h>
#include <tally/tally.h>

#include "api/leak_exit.h"
#include "api/life.h"
#include "base/log.h"
#include "base/os.h"
#include "leak/leak.h"
#include "opt/opt.h"
#include "prof/prof.h"

/* ---------------------------------------------------------------- tally's names */

EXPORT unsigned long long tally_leak_mark(void) {
    prof_compare_births();
    return os_now_ns();
}

static void copy_sums(struct tally_leaks *to, const struct leaks *leaks) {
    const struct leak_sum *kinds = leaks->kinds;
    *to = (struct tally_leaks){
        .definite_objects = kinds[LEAK_DEFINITE].objects,
        .definite_bytes = kinds[LEAK_DEFINITE].requested,
        .indirect_objects = kinds[LEAK_INDIRECT].objects,
        .indirect_bytes = kinds[LEAK_INDIRECT].requested,
        .possible_objects = kinds[LEAK_POSSIBLE].objects,
        .possible_bytes = kinds[LEAK_POSSIBLE].requested,
        .reachable_objects = leaks->result->reachable.objects,
        .reachable_bytes = leaks->result->reachable.requested,
        .suppressed_objects = leaks->suppressed.objects,
        .suppressed_bytes = leaks->suppressed.requested,
        .pause_ns = leaks->result->pause_ns,
    };
}

EXPORT int tally_leak_check(struct tally_leaks *to, unsigned long long since, const char *report) {
    struct leaks leaks;
    if (to != NULL) {
        *to = (struct tally_leaks){0};
    }
    if (!life_ready()) {
        return EBUSY;
    }
    int saved = errno;
    bool is_done = leaks_find(&leaks, since);
    if (is_done && to != NULL) {
        copy_sums(to, &leaks);
    }
    if (is_done && report != NULL) {
        leak_report_tell(&leaks, report);
    } else if (!is_done && report != NULL) {
        log_line("no leak check %s: %s", report, leaks.why);
    }
    if (is_done) {
        leaks_release(&leaks);
    }
    errno = saved;
    return is_done ? 0 : EAGAIN;
}

EXPORT void tally_leak_disable(void) {
    if (life_ready()) {
        leak_disable();
    }
}

EXPORT void tally_leak_enable(void) {
    if (life_ready()) {
        leak_enable();
    }
}

EXPORT int tally_leak_ignore(const void *pointer) {
    return life_ready() && leak_ignore(pointer) ? 0 : EINVAL;
}

EXPORT int tally_leak_unignore(const void *pointer) {
    return life_ready() && leak_unignore(pointer) ? 0 : EINVAL;
}

EXPORT int tally_leak_add_root(const void *start, size_t bytes) {
    if (bytes == 0 || (uintptr_t)start + bytes < (uintptr_t)start) {
        return EINVAL;
    }
    if (!life_ready()) {
        return EBUSY;
    }
    return leak_add_root(start, bytes) ? 0 : ENOMEM;
}

EXPORT int tally_leak_remove_root(const void *start, size_t bytes) {
    return life_ready() && leak_remove_root(start, bytes) ? 0 : EINVAL;
}

/* ---------------------------------------------------------------- LeakSanitizer's names */

#if TALLY_OVERRIDE
#define SANITIZER EXPORT __attribute__((weak))

/* Defined by the program, if at all. */
extern const char *lsan_default_suppressions(void) __asm__("__lsan_default_suppressions")
    __attribute__((weak));
extern int lsan_is_turned_off(void) __asm__("__lsan_is_turned_off") __attribute__((weak));

STARTUP void leak_calls_init(void) {
    leaks_init(lsan_default_suppressions);
}

SANITIZER void lsan_do_leak_check(void) __asm__("__lsan_do_leak_check");
SANITIZER int lsan_do_recoverable_leak_check(void) __asm__("__lsan_do_recoverable_leak_check");
SANITIZER void lsan_disable(void) __asm__("__lsan_disable");
SANITIZER void lsan_enable(void) __asm__("__lsan_enable");
SANITIZER void lsan_ignore_object(const void *pointer) __asm__("__lsan_ignore_object");
SANITIZER void lsan_register_root_region(const void *start,
                                         size_t bytes) __asm__("__lsan_register_root_region");
SANITIZER void lsan_unregister_root_region(const void *start,
                                           size_t bytes) __asm__("__lsan_unregister_root_region");

/* Are there leaks?  The report is in the sanitizer's words, unless another format was asked for. */
static bool finds_leaks(void) {
    struct leaks leaks;
    if (!life_ready() || (lsan_is_turned_off != NULL && lsan_is_turned_off() != 0)) {
        return false;
    }
    if (!leaks_find(&leaks, 0)) {
        log_line("no leak check: %s", leaks.why);
        return false;
    }
    leaks.text = leaks.text == LEAK_TEXT_TALLY ? LEAK_TEXT_LSAN : leaks.text;
    leak_report_tell(&leaks, "__lsan_do_leak_check");
    bool has_leaks = leaks_lost(&leaks).objects > 0;
    leaks_release(&leaks);
    return has_leaks;
}

/* Replaces the check at exit, whatever it finds; a second call does nothing. */
void lsan_do_leak_check(void) {
    static _Atomic bool is_done;
    int saved = errno;
    if (!atomic_exchange(&is_done, true)) {
        (void)leak_exit_cancel();
        if (finds_leaks() && opt.leak_exit_code != 0) {
            life_process_ends();
            leak_exit_end((int)opt.leak_exit_code);
        }
    }
    errno = saved;
}

int lsan_do_recoverable_leak_check(void) {
    int saved = errno;
    bool has_leaks = finds_leaks();
    errno = saved;
    return has_leaks;
}

void lsan_disable(void) {
    tally_leak_disable();
}

void lsan_enable(void) {
    tally_leak_enable();
}

/* A pointer to no object is ignored, as in the sanitizer. */
void lsan_ignore_object(const void *pointer) {
    (void)tally_leak_ignore(pointer);
}

void lsan_register_root_region(const void *start, size_t bytes) {
    (void)tally_leak_add_root(start, bytes);
}

void lsan_unregister_root_region(const void *start, size_t bytes) {
    (void)tally_leak_remove_root(start, bytes);
}
#else
STARTUP void leak_calls_init(void) {
    leaks_init(NULL);
}
#endif
