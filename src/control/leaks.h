/* SPDX-License-Identifier: MIT
 *
 * leaks.h - a leak check as users meet it: with what they do not want to hear taken out, and told.
 *
 * Threads     All functions may be called from any thread, outside (api/life.h) and with no lock held.
 */
#pragma once

#include "leak/leak.h"
#include "prof/prof.h"

/* A check and what was taken out of it; all zeros is none. */
struct leaks {
    struct leak_result *result;
    struct leak_sum kinds[LEAK_KINDS]; /* what is left of the result's */
    struct leak_sum suppressed;
    struct pile marks; /* a byte for each group: not 0 if it was taken out */
    /* In whose words it is told: LEAK_TEXT_ of opt.h, by default those of the option. */
    unsigned text;
    char why[160]; /* without a result: the reason, in a sentence */
};

/* At the start.  The file of the option leak_suppressions is read where checks are wanted, or at the first check; the
 * program, if it answers, has rules beside those, asked for at each. */
void leaks_init(const char *(*ask_program)(void));

/* Checks as the options say; what is known to be older than `since_ns` (os_now_ns) is no leak, 0: all may be.  False: see `why`. */
bool leaks_find(struct leaks *leaks, uint64_t since_ns);

/* The same when the process ends: another check is not waited for. */
bool leaks_find_last(struct leaks *leaks, uint64_t since_ns);

/* The same with a wish of one's own; rules are applied where `with_rules`. */
bool leaks_find_by(struct leaks *leaks, const struct leak_wish *wish, bool with_rules);
void leaks_release(struct leaks *leaks);

/* What counts: definite leaks and what only they hold. */
struct leak_sum leaks_lost(const struct leaks *leaks);

/* Reports on standard error, in the words of `text`; `name` is that of the check.  Where that is so, says that
 * nothing is lost. */
void leaks_report(const struct leaks *leaks, const char *name);

/* leak_test_alignment: a second look that counts pointers anywhere, and a sentence about it. */
void leaks_test_alignment(const struct leaks *leaks, uint64_t since_ns);

/* A profile of it in leak_dump_dir, if there is one; its path, or "" where none was written. */
void leaks_dump(const struct leaks *leaks, const char *name, char *path, size_t capacity);

/*
 * As text for the command:
 *
 *      tally-leaks 1
 *      heap BYTES          one line each: roots BYTES, threads N, unanswered N, pause_ns N, total_ns N
 *      definite OBJECTS BYTES REQUESTED        and the same for indirect, possible, reachable, ignored, suppressed
 *      rate BYTES          between samples; 1: every group has its stack, unless it is older; 0: none has
 *      why SENTENCE
 *      group KIND OBJECTS BYTES REQUESTED USABLE ADDRESS...        largest first; no address: not sampled
 *      module START END OFFSET BUILD-ID PATH
 *      end
 *
 * Addresses lie in the instruction that called.
 */
int leaks_write(const struct leaks *leaks, struct dump_sink sink);
