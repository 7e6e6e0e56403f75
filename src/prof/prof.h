/* SPDX-License-Identifier: MIT
 *
 * prof.h - the heap profiler: which call stacks allocated the sampled objects, and which live.
 *
 * This is the front door; what only the files of this folder need is in their own headers.
 *
 * Threads     Call any function from any thread, inside (api/life.h) and with no lock held.
 */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "heap/heap.h"
#include "out/out.h"

struct trie_path;
struct os_remap_call;

/* ---------------------------------------------------------------- switching */

/* After options and heap: registers with the heap and arms if opt.prof says so. */
void prof_init(void);

/* Has sampling ever been armed in this process?  Is it now?  Arming alone costs nothing. */
bool prof_was_armed(void);
bool prof_is_active(void);

/* Arming may open libgcc, which allocates: meanwhile the caller is outside. */
void prof_set_active(bool active);

/* Arms at this rate.  If the rate changes, what was recorded is forgotten. */
void prof_start(unsigned lg_sample);

/* ATTENTION_AGENTS: sampling is on, for the probes, as long as somebody listens. */
void prof_follow_agents(void);

/* Gets what an armed profiler needs of libc.  Call outside, once constructors may run. */
void prof_settle(void);

/* log2 of the mean bytes between samples, 0..63; prof_reset forgets everything recorded so far. */
unsigned prof_lg_sample(void);
void prof_reset(unsigned lg_sample);

/* In the child of a fork: what was recorded stays; locks held by other threads are void. */
void prof_forked(void);

/* From now on births are known to the nanosecond: somebody will compare them with a moment. */
void prof_compare_births(void);

/* ---------------------------------------------------------------- the caller's thread */

bool prof_thread_is_active(void);
bool prof_thread_set_active(bool active); /* false without memory */
bool prof_thread_active_init(void);
void prof_set_thread_active_init(bool active);

/* A name of at most 15 characters for the caller in profiles; false when it cannot be kept. */
bool prof_thread_set_name(const char *name);
void prof_thread_get_name(char name[16]);

/* From now on threads without such a name are shown with the kernel's. */
void prof_name_threads(void);

/* The caller's thread ends: from now on it is not sampled. */
void prof_thread_ends(void);

/* ---------------------------------------------------------------- sampling */

/* Sampling is on: is it this allocation's turn?  The rest of the function below. */
void *sample_if_due(struct place place, size_t size, size_t alignment, bool *zeroed, void *frame);

/* An object with a record of who asked for it, if it is this allocation's turn; NULL, with nothing
 * done, if it is not or if sampling fails: then allocate as usual.  Call inside, with no lock held.
 * Costs a load and a test while nothing is sampled. */
static inline __attribute__((always_inline)) void *sample_alloc(struct place place, size_t size,
                                                                size_t alignment, bool *zeroed) {
    return track_is_on() ? sample_if_due(place, size, alignment, zeroed, __builtin_frame_address(0))
                         : NULL;
}

/* A large object has got another size, where `before` was or elsewhere: its record ends, and it has
 * a new one if it is its turn.  `frame` is that of a function of ours that the program has called.
 * The same conditions. */
void sample_resized(const struct heap_object *before, void *object, size_t size, void *frame);

/* Gives the function that contains it a frame pointer, even in a file compiled without them.  The
 * profiler walks from the function that has sample_alloc in it to the program by frame pointers: a
 * function in between that has none would hide its caller, the one that matters most. */
static inline __attribute__((always_inline)) void sample_keep_frame(void) {
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
}

/* What to do about memory that the program maps itself: options prof_mmap and prof_mmap_log.  0
 * before the options are known. */
enum mapping_mode {
    MAPPING_RECORD = 1, /* while the profiler is active; unmapping is always noticed */
    MAPPING_LOG = 2,
};
extern _Atomic uint32_t mapping_mode HIDDEN;

/* The program has mapped this, in place of whatever was there. */
void mapping_added(uintptr_t start, size_t bytes);

/* System calls and what follows from them; results are those of os.h. */
intptr_t mapping_unmap(void *start, size_t bytes);
intptr_t mapping_remap(const struct os_remap_call *call);
void *mapping_break(intptr_t increment);

/* ---------------------------------------------------------------- reading */

/* Sampled objects as they are, and what they stand for. */
struct prof_sum {
    uint64_t objects;
    uint64_t bytes;     /* at usable size */
    uint64_t requested; /* as asked for */
    double all_objects; /* estimate of all that were allocated, sampled or not */
    double all_bytes;
    double all_slack;                      /* of these, what nobody asked for */
    double object_variance, byte_variance; /* of the first two estimates */
};

struct prof_totals {
    struct prof_sum live, accumulated, peak;
    uint64_t rate;  /* mean bytes between samples */
    uint64_t drops; /* samples that could not be recorded for want of memory */
};
void prof_read_totals(struct prof_totals *totals);

/* Bytes the profiler has taken from the kernel; most of its large tables is never touched. */
size_t prof_memory(void);

/* Addresses of a stack, innermost first; returns how many.  They are return addresses, even where a
 * signal interrupted code: the call is the instruction before, so for a reader that does not
 * subtract 1 from the first one (jeprof) it is written minus 1.  Numbers of stacks stay valid; 0 is
 * an unknown stack. */
unsigned prof_read_stack(uint32_t stack, uintptr_t *addresses, unsigned most);
enum { PROF_DEPTH_MOST = 256 };

/* The number of a stack that the caller has found by itself, as above; 0 without memory.  Each
 * caller keeps its own path.  May be called from any thread and handler. */
uint32_t prof_keep_stack(struct trie_path *path, const uintptr_t *addresses, unsigned count);

/* Nodes of the tree of all stacks, 16 bytes each. */
uint32_t prof_count_nodes(void);

/* The record that an object carries, without a lock: for code that has stopped all other threads or
 * runs in a copy of the process.  False: there is none. */
struct prof_live {
    uint32_t stack, thread;
    size_t requested, usable;
    uint64_t born_ns;
};
bool prof_peek(uint32_t id, struct prof_live *live);

/* Sampled requests of one small class, or of one of jemalloc's large classes, for prof_stats: their
 * number, and the sum of the sizes asked for.  False without that option. */
struct prof_class_sum {
    uint64_t requested;
    uint64_t count;
};
bool prof_read_class(size_t usable, bool accumulated, struct prof_class_sum *sum);

/* ---------------------------------------------------------------- samples one by one */

/* A sampled object and, if it was freed, its end. */
struct prof_event {
    uint32_t stack, thread;
    uint32_t freed_stack, freed_thread;
    uint64_t born_ns, freed_ns;
    size_t requested, usable;
    bool is_freed;
    bool end_is_known; /* where, by whom and when */
};

/* The last samples one by one.  How many are kept: -1 all, 0 none; any more are forgotten. */
ssize_t prof_recent_max(void);
void prof_recent_set_max(ssize_t most);

/* Copies of them, oldest first, one at a time; `*cursor` is 0 at first.  False at the end. */
bool prof_recent_walk(uint64_t *cursor, struct prof_event *event);

/* The cursor at the newest sample there is now.  A walk without this bound may never end. */
uint64_t prof_recent_last(void);

/* Sampled objects that are freed while the log is on.  False if it is on, or off, already; what was
 * logged can be read until the log starts again or is forgotten. */
bool prof_log_start(void);
bool prof_log_stop(void);
bool prof_log_is_on(void);
void prof_log_forget(void);

/* Nanoseconds from start to stop, or until now. */
uint64_t prof_log_duration(void);

/* Events have numbers from 0 on, in the order of frees; false when there is none of this number. */
bool prof_log_read(uint32_t number, struct prof_event *event);

/* ---------------------------------------------------------------- telling */

/* A mark is a number of bytes.  The profiler compares after each event it counts; when a mark is
 * reached it raises ATTENTION_PROFILE, and the next thread to end a slow call attends to it, with
 * no lock held.  So nobody ever waits inside the profiler, and nothing is lost. */
struct tell_marks {
    _Atomic uint64_t allocated; /* bytes ever allocated; UINT64_MAX: nobody waits */
    _Atomic uint64_t freed;
    _Atomic uint64_t live;     /* at least this many live */
    _Atomic uint64_t live_low; /* fewer than this live; 0: nobody waits */
};
extern struct tell_marks tell_marks HIDDEN;

/* Functions of the program, experimental.hooks.*; NULL: none.  They are called outside, so they may
 * allocate; what they allocate is not sampled. */
typedef void tell_backtrace(void **addresses, unsigned *count, unsigned most);
typedef void tell_sample(const void *object, size_t size, void **addresses, unsigned count,
                         size_t usable);
typedef void tell_sample_free(const void *object, size_t usable);
typedef void tell_path(const char *path);
struct tell_hooks {
    void *_Atomic backtrace;   /* tell_backtrace, instead of our unwinder */
    void *_Atomic sample;      /* tell_sample, when an object was sampled */
    void *_Atomic sample_free; /* tell_sample_free */
    void *_Atomic dumped;      /* tell_path, when a profile was written */
};
extern struct tell_hooks tell_hooks HIDDEN;

/* Our unwinder, for a program that wraps it: in a hook of backtrace the stack of the sampled call, elsewhere the
 * caller's own.  Nothing as long as profiling was never armed. */
tell_backtrace prof_backtrace;

/* ---------------------------------------------------------------- dumps */

/* What the profiler knows, as a file.  These functions allocate nothing from the heap and stop no
 * thread.  Errors are negative errno values. */

/* A snapshot is the profile.proto of containers (contract/frames.h): more types, not compressed. */
enum dump_format { DUMP_JEMALLOC, DUMP_PROTO, DUMP_GPERFTOOLS, DUMP_SNAPSHOT };
enum dump_what { DUMP_NOW, DUMP_PEAK };

/* To a descriptor that the caller has opened. */
int dump_to_descriptor(int fd, enum dump_format format, enum dump_what what);

/* To a sink: 0 or -errno.  One that hides addresses takes only DUMP_PROTO, otherwise -ENOTSUP;
 * places are then given by module, offset and build id. */
int dump_to_sink(struct out_sink sink, enum dump_format format, enum dump_what what);

/* The modules of the process, one line each: start, end, offset, build id or -, path.  A sink that
 * hides addresses gets no start and end. */
int dump_modules(struct out_sink sink);

/* To a new file of mode 0600, completely or not at all; -EEXIST when there is one of this name. */
int dump_to_file(const char *path, enum dump_format format, enum dump_what what);

/* The same for a name that the program gives: a file of its own that is there is written, as are /dev/null and
 * /dev/fd/N (out_file_write_given). */
int dump_to_given(const char *path, enum dump_format format, enum dump_what what);

/* The format that the ending of a name asks for: .heap jemalloc's, .gperf or .hprof gperftools',
 * .pb, .pb.gz or .tally profile.proto; any other: `otherwise`. */
enum dump_format dump_format_by_name(const char *path, enum dump_format otherwise);

/* To a file with the next automatic name of jemalloc's scheme: <prefix>.<pid>.<seq>.<kind><n>.heap
 * with kind i, m, u or f.  -EINVAL when the prefix is empty.  Numbers <seq> whose file exists, from
 * an earlier process of this pid, are skipped.  Other failures are a line in the log, except for
 * kind m, whose caller gets the error. */
int dump_automatically(char kind);

/* A line in the log: this profile could not be written because of this error. */
void dump_warn(const char *path, int error);

/* The same text in memory of its own, with a NUL behind it, for GetHeapProfile; NULL without
 * memory.  dump_release frees it. */
char *dump_to_memory(enum dump_format format, enum dump_what what, size_t *length);
void dump_release(char *text, size_t length);

/* jemalloc's summary of leaks: what lives, if anything does, in one line, and where to read more in
 * another; one more, and true, if opt.prof_leak_error is set: exit with status 1. */
bool dump_report_leaks(void);

/* ---------------------------------------------------------------- single allocations as JSON */

/* Where they come from, oldest first; false when there are no more. */
struct dump_events {
    bool (*next)(void *context, struct prof_event *event);
    void *context;
};

/* jemalloc's prof_log: events, all of whose ends are known.  To a new file, as above; path NULL:
 * <prefix>.<pid>.<n>.json. */
struct dump_log {
    struct dump_events events;
    uint64_t duration_ns;
    const char *version;
};
int dump_log(const char *path, const struct dump_log *log);

/* jemalloc's prof_recent, in memory as above; `most` is how many events would be kept, -1 all. */
char *dump_recent(struct dump_events events, int64_t most, size_t *length);
