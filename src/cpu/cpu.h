/* SPDX-License-Identifier: MIT
 *
 * cpu.h - where the processor's time goes: the front door of the CPU profiler.
 *
 *      timer of a thread --signal--> handler: a stack --ring--> writer: sums by stack and thread --> files
 *
 * Each thread has a timer that runs with the thread's own processor time (or, in wall mode, with the
 * clock), so that a thread is sampled `hz` times per second that it computes.  Samples are summed in
 * memory from cpu_start until cpu_reset or the next cpu_start, and can be read at any time, also after
 * cpu_stop.
 *
 * Stacks are numbers of the profiler's tree (prof_read_stack).  All their addresses are return addresses:
 * the call is the instruction before.  One was added to the interrupted address, so that this holds for
 * the innermost one, too.
 *
 * Threads     All functions may be called by any thread, inside (api/life.h) and with no lock held; from signal
 *             handlers only those that say so.  Where a thread is made the caller is outside for a moment.
 */
#pragma once

#include <sys/types.h>

#include "out/out.h"

enum { CPU_WHY = 160, CPU_HZ_DEFAULT = 100, CPU_HZ_MOST = 4000 };

struct cpu_options {
    unsigned hz;           /* 0: the default; more than the most is the most */
    bool is_wall;          /* the clock runs, not the thread's processor time */
    bool is_process_timer; /* one timer for the process (setitimer), as gperftools has it */
    int signal; /* 0: choose.  A process timer has its own: SIGPROF, or SIGALRM in wall mode */
    int (*filter)(void *); /* called in the handler: 0 drops the sample; may be NULL */
    void *filter_argument;
};

/* Begins a profile; what was gathered before is forgotten.  False, with the reason in one sentence:
 * already on, no free signal, no timer, no thread. */
bool cpu_start(const struct cpu_options *options, char why[CPU_WHY]);

/* Ends it: when it returns no timer runs, no handler is running and all samples are counted.  False if none is
 * on. */
bool cpu_stop(void);

bool cpu_is_on(void);

/* Meanwhile samples are dropped in the handler, and not counted as lost. */
void cpu_pause(bool is_paused);
bool cpu_is_paused(void);

/* ---------------------------------------------------------------- reading */

struct cpu_sample {
    uint32_t stack;  /* of prof's tree; 0: there was no memory to keep it */
    uint32_t thread; /* for cpu_read_thread */
    uint64_t count;  /* samples; each stands for period_ns */
};

/* Sums are numbered from 0 on.  A number stays what it is, and its count only grows, until the profile
 * is forgotten. */
uint32_t cpu_sample_count(void);
bool cpu_read_sample(uint32_t index, struct cpu_sample *sample);

/* A thread that has samples, also if it has ended. */
bool cpu_read_thread(uint32_t thread, char name[16], pid_t *tid);

struct cpu_totals {
    uint64_t samples;   /* counted, the sum over all */
    uint64_t lost;      /* taken but not counted, or missed because the signal was blocked */
    unsigned hz;        /* 0: there never was a profile */
    uint64_t period_ns; /* one sample stands for this */
    uint64_t start_ns;  /* clock of os_now */
    /* Threads that compute but are not sampled: they block the signal, or the kernel has no timer
     * for them (ulimit -i). */
    uint32_t left_out;
    bool is_wall;
};
void cpu_read_totals(struct cpu_totals *totals);

/* Samples per second of the last profile; 0: there never was one. */
unsigned cpu_hz(void);

/* Forgets what was gathered; a running profile continues from zero. */
void cpu_reset(void);

/* For a signal handler, with the context it was given: the stack that was interrupted, innermost first and
 * exact, without the first `skipped`; or, without one, the caller's.  How many addresses there are: no more
 * than one where there never was a profile, since nothing is known about the code then. */
unsigned cpu_read_stack(const void *context, uintptr_t *addresses, unsigned most, unsigned skipped);

/* ---------------------------------------------------------------- writing */

enum cpu_format {
    CPU_PPROF,       /* profile.proto, gzipped; labels thread and thread_id */
    CPU_PPROF_PLAIN, /* the same, not compressed */
    CPU_GPERFTOOLS,  /* the binary format of gperftools, with the mappings at its end */
};

/* All that was gathered until now.  False if not all of it could be written. */
bool cpu_dump_fd(int fd, enum cpu_format format);

/* The same to a sink that takes the pieces, as dump_to_sink does for memory: 0 or -errno.  Without addresses it is
 * profile.proto or -ENOTSUP. */
int cpu_dump_to_sink(struct out_sink sink, enum cpu_format format);

/* What the ending of a name asks for: .pb or .pb.gz profile.proto, any other gperftools' format. */
enum cpu_format cpu_format_by_name(const char *path);

/* ---------------------------------------------------------------- into a file */

/*
 * A profile that goes to a file: written every few seconds, as a whole and under its name only when it is
 * complete, so that a process that is killed leaves one that can be read; and once more at the end.  A file
 * of this name is replaced if it is a CPU profile of the same user, and respected otherwise.  In the child of
 * a fork the profile begins anew, with _<pid> behind the name.
 */
bool cpu_file_start(const struct cpu_options *options, const char *path, char why[CPU_WHY]);

/* Writes what there is now; ends the profile, true if there was one.  Nothing happens where none goes to a
 * file. */
void cpu_file_flush(void);
bool cpu_file_stop(void);

/* Ends the profile that is on, with its file if it has one.  False if none was. */
bool cpu_end(void);

/* The process ends: the file is written, and no other is begun. */
void cpu_file_exit(void);

/* The name as it was given, empty where none goes to a file, and the seconds since 1970 at the start. */
bool cpu_file_read(char *path, size_t capacity, uint64_t *start_seconds);

/* The settings of a profile, from the options. */
struct cpu_options cpu_options_of_process(void);

/* At start, once libc works: begins what the options ask for. */
void cpu_settle(void);

/* ---------------------------------------------------------------- the process */

/* What the layer above does for us. */
struct cpu_services {
    bool (*make_thread)(void *(*body)(void *)); /* all signals blocked */
};
extern struct cpu_services cpu_services HIDDEN;

/* A thread that allocates for the first time, or ends. */
void cpu_thread_begins(void);
void cpu_thread_ends(void);

/* In the child of a fork: nothing is on.  Later, where threads may be made, what goes to files begins
 * again; ATTENTION_CPU is raised until then. */
void cpu_forked(void);
void cpu_begin_again(void);
