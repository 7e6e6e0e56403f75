/* SPDX-License-Identifier: MIT
 *
 * leak.h - which objects the program still holds and nothing in it leads to any more.
 *
 * A check starts from the roots - registers and stacks of all threads, thread-local storage, the data of
 * every module, memory that the program has mapped, registered regions - and follows whatever looks like a
 * pointer through the heap.  What it does not come by is lost.
 *
 *      definite    nothing leads to it
 *      indirect    only lost objects lead to it
 *      possible    roots lead to it, but somewhere on the way only to the inside of an object
 *      reachable   the rest
 *
 * Other threads are held up only while the process is copied (fork without libc); the copy is searched.
 * The walk of a check, file by file:
 *
 *      api/leak_exit.c            the process ends; or the program asks (api/leak_calls.c,
 *                                 api/gperftools_checker.c), or the command (control/verbs.c)
 *      leaks.c     leaks_find     what the options say
 *      leak.c      leak_check     the steps, with stop.c (threads), roots.c, mark.c (search), ignore.c,
 *                                 present.c and work.c
 *      leaks.c                    takes out what rules suppress (leak_names.c, contract/suppress.c)
 *      leak_report.c              tells people; leaks.c: leaks_write tells the command
 *
 * Threads     All functions may be called from any thread, outside (api/life.h) and with no lock held;
 *             checks wait for each other.
 */
#pragma once

#include "out/out.h"
#include "out/pile.h"

struct leak_wish {
    bool skip_threads;     /* registers and stacks are no roots */
    bool skip_globals;     /* nothing but registers and stacks is a root */
    size_t max_offset;     /* how far inside an object a pointer may point; 0: anywhere */
    size_t step;           /* pointers lie at multiples of this; 0: 8 */
    uint64_t max_pause_ns; /* give up when others are held up for so long; 0: a second */
    bool is_quick;         /* definite and indirect need not be told apart: all is definite */
    uint64_t since_ns;     /* what is known to be older, by os_now_ns, is no leak; 0: all may be */
    bool in_place;         /* no copy of the process: others are held up to the end */
    bool is_last;          /* the process ends: another check is ended for this one */
};

enum leak_kind { LEAK_DEFINITE, LEAK_INDIRECT, LEAK_POSSIBLE, LEAK_KINDS };

struct leak_sum {
    uint64_t objects, bytes; /* bytes at usable size */
    uint64_t requested;      /* bytes as asked for, where that is known; otherwise at usable size */
};

/* Lost objects of one kind and one stack of the profiler, or of one size where that is not known. */
struct leak_group {
    enum leak_kind kind;
    uint32_t stack; /* prof_read_stack; 0: not sampled */
    size_t usable;  /* of each object, where the stack is 0 */
    struct leak_sum sum;
    struct leak_sum below; /* indirect objects that these definite ones lead to, each told once */
    const void *example;
};

struct leak_object {
    const void *at;
    size_t usable, requested; /* the second is usable where it is not known */
    enum leak_kind kind;
    uint32_t stack;   /* 0: not sampled */
    uint64_t born_ns; /* 0: not known */
};

struct leak_result {
    struct leak_sum kinds[LEAK_KINDS], reachable, ignored;
    uint64_t heap_bytes; /* of live objects */
    uint64_t root_bytes;
    uint64_t threads; /* of the program; the library's own do not count */
    /* Of those, threads that did not stop: their whole stacks are roots, and nothing counts as lost
     * that was not lost twice. */
    uint64_t unanswered;
    uint64_t pause_ns; /* for which others were held up */
    uint64_t total_ns;
    uint32_t group_count;
    const struct leak_group *groups; /* largest first, with what is below */
    uint32_t object_count;
    const struct leak_object *objects; /* lost ones, at most LEAK_OBJECTS_MOST */
    uint64_t objects_left_out;
    char why[160]; /* empty, or a sentence: why there is no result, or what to know about it */
};
enum { LEAK_OBJECTS_MOST = 1 << 16 };

/* Makes a check.  A result is there whenever memory for it is, and released by the caller; false: it has
 * nothing but `why`, or is NULL. */
bool leak_check(const struct leak_wish *wish, struct leak_result **result);

/* The longest that a search takes before it is given up; nobody who waits for one needs to wait longer. */
enum { LEAK_SEARCH_MOST_S = 300 };
void leak_release(struct leak_result *result);

/* The object that the pointer leads into, start or inside, is no leak, nor is what it leads to.  False
 * when there is no live object, when it was ignored before (or was not), or without memory. */
bool leak_ignore(const void *pointer);
bool leak_unignore(const void *pointer);

/* Memory that counts as root until it is removed, by the same start and size.  A range may be added more than once. */
bool leak_add_root(const void *start, size_t size);
bool leak_remove_root(const void *start, size_t size);

/* What the calling thread allocates in between is ignored for ever, with what it leads to.  They nest. */
void leak_disable(void);
void leak_enable(void);

/* The calling thread ends; the process is the child of a fork, with this thread alone. */
void leak_thread_ends(void);
void leak_forked(void);

/* ---------------------------------------------------------------- checks as users meet them */

/* A check and what was taken out of it; all zeros is none. */
struct leaks {
    struct leak_result *result;
    struct leak_sum kinds[LEAK_KINDS]; /* what is left of the result's */
    struct leak_sum suppressed;
    struct pile marks; /* a byte for each group: not 0 if it was taken out */
    /* In whose words it is told, LEAK_TEXT_...; those of the option leak_text unless it is changed. */
    unsigned text;
    char why[160]; /* without a result: the reason, in a sentence */
};

/* At the start.  The file of the option leak_suppressions is read now if leak_check is on, otherwise at the
 * first check.  Rules of the program itself are asked for at each check, where `ask_program` is not NULL. */
void leaks_init(const char *(*ask_program)(void));

/* Checks as the options say; what is known to be older than `since_ns` (os_now_ns) is no leak, 0: all may
 * be.  False: see `why`. */
bool leaks_find(struct leaks *leaks, uint64_t since_ns);

/* The same when the process ends: another check is not waited for. */
bool leaks_find_last(struct leaks *leaks, uint64_t since_ns);

/* The same with a wish of one's own; rules are applied where `with_rules`. */
bool leaks_find_by(struct leaks *leaks, const struct leak_wish *wish, bool with_rules);
void leaks_release(struct leaks *leaks);

/* What counts: definite leaks and what only they hold. */
struct leak_sum leaks_lost(const struct leaks *leaks);

/* Reports on standard error, in the words of `text`; `name` is that of the check.  That nothing is lost is
 * said only with the option leak_say_none. */
void leak_report_tell(const struct leaks *leaks, const char *name);

/* leak_test_alignment: a second look that counts pointers anywhere, and a sentence about it. */
void leaks_test_alignment(const struct leaks *leaks, uint64_t since_ns);

/* A profile of it in leak_dump_dir, if there is one; its path, or "" where none was written. */
void leak_report_dump(const struct leaks *leaks, const char *name, char *path, size_t capacity);

/*
 * As text for the command:
 *
 *      tally-leaks 1
 *      heap BYTES          one line each: roots BYTES, threads N, unanswered N, pause_ns N, total_ns N
 *      definite OBJECTS BYTES REQUESTED        and the same for indirect, possible, reachable, ignored, suppressed
 *      rate BYTES          between samples; 1: every group has its stack, unless it is older; 0: none has
 *      why SENTENCE
 *      group KIND OBJECTS BYTES REQUESTED USABLE ADDRESS...        largest first; no address: not sampled
 *      below OBJECTS BYTES REQUESTED       behind a definite group: indirect objects that hang on it, if there are
 *      module START END OFFSET BUILD-ID PATH
 *      end
 *
 * Addresses lie in the instruction that called.
 */
int leaks_write(const struct leaks *leaks, struct out_sink sink);
