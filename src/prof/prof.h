/* SPDX-License-Identifier: MIT
 *
 * prof.h - the heap profiler: which call stacks allocated what is sampled, and what of it lives.
 *
 * Threads     All functions may be called from any thread, inside (api/life.h) and with no lock held.
 */
#pragma once

#include <sys/types.h>

#include "base/common.h"
#include "heap/heap.h"
#include "prof/cfi.h"
#include "prof/dump.h"
#include "out/dump_file.h"
#include "prof/frames_writer.h"
#include "prof/mapping.h"
#include "out/maps.h"
#include "out/out.h"
#include "out/proto.h"
#include "prof/tell.h"
#include "prof/trie.h"
#include "prof/sample.h"

/* ---------------------------------------------------------------- switching */

/* What an object carries that is sampled for others alone, by the probes of usdt.h: there is no record. */
#define PROF_UNRECORDED (UINT32_MAX & ~TRACK_IGNORED)

/* After options and heap: registers with heap/track.h and arms if opt.prof says so. */
void prof_init(void);

/* Has sampling ever been armed in this process?  Is it now?  Arming costs nothing until samples come. */
bool prof_was_armed(void);
bool prof_is_active(void);

/* Arming may open libgcc, which allocates: for that the caller is outside for a moment. */
void prof_set_active(bool active);

/* ATTENTION_AGENTS: sampling is on, for the probes, as long as somebody listens. */
void prof_follow_agents(void);

/* Once libc works and constructors may run, outside: what an armed profiler needs of libc. */
void prof_settle(void);

/* log2 of the mean bytes between samples, 0..63; forgets everything recorded so far (prof.reset). */
unsigned prof_lg_sample(void);
void prof_reset(unsigned lg_sample);

bool prof_thread_is_active(void);
bool prof_thread_set_active(bool active); /* false without memory */
bool prof_thread_active_init(void);
void prof_set_thread_active_init(bool active);

/* A name of at most 15 characters for the caller in profiles; false when it cannot be kept. */
bool prof_thread_set_name(const char *name);
void prof_thread_get_name(char name[16]);

/* From now on threads without such a name have the kernel's. */
void prof_name_threads(void);

/* The caller's thread ends: from now on it is not sampled. */
void prof_thread_ends(void);

/* In the child of a fork: what was recorded stays; locks of others are void. */
void prof_forked(void);

/* From now on births are known to the nanosecond: somebody asks what is younger than a moment. */
void prof_compare_births(void);

/* ---------------------------------------------------------------- events */

/* The caller is about to allocate `size` bytes, `usable` at the end, and track_is_due said yes: walks its
 * stack and makes a record.  `frame` is __builtin_frame_address(0) of a function of ours that it has
 * called, which has frame pointers, as those between have.  PROF_UNRECORDED when it is sampled for others alone; 0 when it is not to be
 * sampled: then the object is allocated as usual. */
uint32_t prof_record(size_t size, size_t usable, void *frame);

/* The object of the record exists now, or could not be had. */
void prof_recorded(uint32_t id, const void *object);
void prof_unrecord(uint32_t id);

/* The same for so many bytes that the program has mapped, or is about to: mapping.c, which knows their end.
 * Never PROF_UNRECORDED. */
uint32_t prof_record_mapping(size_t bytes);
void prof_recorded_mapping(uint32_t id);

/* ---------------------------------------------------------------- reading */

/* Sampled objects as they are, and what they stand for. */
struct prof_sum {
    uint64_t objects;
    uint64_t bytes;     /* at usable size */
    uint64_t requested; /* as asked for */
    double all_objects; /* estimate of all that were allocated, sampled or not */
    double all_bytes;
};

struct prof_context {
    uint32_t stack;
    uint32_t thread;
    struct prof_sum live, accumulated, peak;
    double
        temporary; /* objects of all that were freed within a millisecond; only while opt.run_file is set */
};

/* Contexts have indices 0 .. prof_context_count() - 1; one that is unused reads as false. */
uint32_t prof_context_count(void);
bool prof_read_context(uint32_t index, struct prof_context *context);

/*
 * Addresses of a stack, innermost first; returns how many.  They are return addresses, also where a signal
 * interrupted code: the call is the instruction before, so a reader that does not subtract 1 from the
 * first one (jeprof) wants it written less 1.  Numbers of stacks stay valid; 0 is an unknown one.
 */
unsigned prof_read_stack(uint32_t stack, uintptr_t *addresses, unsigned most);
enum { PROF_DEPTH_MOST = 256 };

/* The number of a stack that somebody else has found, as above; 0 without memory.  A caller keeps its own
 * path.  May be called from any thread and handler. */
uint32_t prof_count_nodes(void); /* of the tree of all stacks, 16 bytes each */
uint32_t prof_keep_stack(struct trie_path *path, const uintptr_t *addresses, unsigned count);

/* Threads have numbers 0 .. prof_thread_count() - 1 in the order of their first sample.  What ended
 * threads without live samples have allocated is that of one thread that stands for all of their name. */
uint32_t prof_thread_count(void);
void prof_read_thread(uint32_t thread, char name[16], bool *has_ended);

/* Live records one by one, for ages: calls `visit` for a few at a time from `*cursor` on (0 at first);
 * false when there are no more. */
struct prof_live {
    uint32_t stack, thread;
    size_t requested, usable;
    uint64_t born_ns;
};
bool prof_walk_live(uint32_t *cursor, void (*visit)(const struct prof_live *live, void *context),
                    void *context);

/* The record that an object carries, without a lock: for one who has stopped everybody else, or works in a copy of
 * the process.  False: there is none. */
bool prof_peek(uint32_t id, struct prof_live *live);

struct prof_totals {
    struct prof_sum live, accumulated, peak;
    uint64_t rate;  /* mean bytes between samples */
    uint64_t drops; /* samples that could not be recorded for want of memory */
};
void prof_read_totals(struct prof_totals *totals);

/* Bytes the profiler has had from the kernel; most of its large tables is never touched. */
size_t prof_memory(void);

/* ---------------------------------------------------------------- extras */

/* The last samples one by one.  How many are kept: -1 all, 0 none; those too many are forgotten. */
ssize_t prof_recent_max(void);
void prof_recent_set_max(ssize_t most);

/* Copies of them, oldest first, one at a time; `*cursor` is 0 at first.  False when there are no more. */
bool prof_recent_walk(uint64_t *cursor, struct prof_event *event);

/* What the cursor is at the last of those there are now.  A walk without a bound may meet ever new ones. */
uint64_t prof_recent_last(void);

/* Sampled objects that are freed while the log is on.  False when it is on, or off, already; what was
 * logged can be read until the log starts again or is forgotten. */
bool prof_log_start(void);
bool prof_log_stop(void);
bool prof_log_is_on(void);
void prof_log_forget(void);

/* Nanoseconds from start to stop, or until now. */
uint64_t prof_log_duration(void);

/* Events have numbers from 0 on, in the order of frees; false when there is none of this number. */
bool prof_log_read(uint32_t number, struct prof_event *event);

/* Sampled requests of one small class, or of large objects of one class of jemalloc's, as prof_stats
 * wants them: sum of the sizes asked for and number.  False without that option. */
struct prof_class_sum {
    uint64_t requested;
    uint64_t count;
};
bool prof_read_class(size_t usable, bool accumulated, struct prof_class_sum *sum);
