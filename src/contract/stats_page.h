/* SPDX-License-Identifier: MIT
 *
 * stats_page.h - one page of counters that other processes of the user can read at any time.
 *
 * It is a memfd named "tally-stats", sealed, that the library maps and writes and everybody else only
 * reads, through /proc/PID/fd: also while the process is stopped or hangs.  The words are guarded by a
 * sequence that is odd while they change.  Layout and order are a contract with the command, which this
 * header is shared with; new words come at the end, and `bytes` says how many there are.
 *
 *      0     struct stats_page     2048    struct stats_page_range, as many as `ranges` says     4096
 *
 * What the words mean, in bytes.  Pages that belong to the heap are in use or free; those in use are cut
 * into what the program holds, what caches hold, and what nobody holds:
 *
 *      live + cached + slab_free + large_rest      pages in use; with `untouched`, exactly
 *        + dirty                                   free pages that were used and not given back
 *        + metadata                                descriptors
 *      = the memory that the heap may occupy
 *
 * The heap occupies all of it, within a few pages, if the program has written to all that it holds.  Pages
 * that nobody has written to are in these words, and not in the memory that the kernel counts in the
 * ranges: the difference is memory that was asked for and never used.  A range is a piece of the address
 * space with objects or descriptors; nothing else lies in it.  A part that is free and was given back, or
 * never used, is in `mapped` alone.
 *
 * The page is renewed by calls of the program that miss their thread's cache: every 100 ms, more often in the
 * first second of the process, and when what is live has moved by more than a hundredth.  `behind` says that
 * there were such calls since; the library's background thread, in programs that have one, then renews it within
 * a second.  What fits into the caches of threads may have been taken and given unseen.  Totals never fall; what
 * was freed by sum_ns is what was allocated by then and did not live.  refresh_ns tells how old the page is.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define STATS_PAGE_NAME "tally-stats"
#define STATS_PAGE_MAGIC UINT64_C(0x31656761705f7974) /* "ty_page1" */

enum { STATS_PAGE_BYTES = 4096, STATS_PAGE_PATH_BYTES = 256, STATS_PAGE_VERSION_BYTES = 32 };
enum { STATS_PAGE_RANGES_AT = 2048, STATS_PAGE_MOST_RANGES = 128 };

/* X(name, help): 64-bit words in this order.  Bytes unless the help says otherwise. */
#define STATS_PAGE_WORDS(X)                                                                        \
    X(requested, "live without rounding, as far as the profiler records every object")             \
    X(live, "live objects with their rounding: what malloc_usable_size tells")                     \
    X(live_objects, "number of live objects")                                                      \
    X(slab_free, "free space between small objects, in pages in use")                              \
    X(cached, "objects in caches of threads and depots")                                           \
    X(large_rest, "space behind large objects, which own multiples of 16 KiB")                     \
    X(dirty, "empty pages kept for reuse")                                                         \
    X(metadata, "the allocator's own, without the profiler's")                                     \
    X(mapped, "address space of the heap")                                                         \
    X(allocated_total, "bytes allocated since the start")                                          \
    X(freed_total, "bytes freed since the start")                                                  \
    X(nmalloc, "allocations since the start, a number")                                            \
    X(nfree, "frees since the start, a number")                                                    \
    X(threads, "threads with a cache, a number")                                                   \
    X(profile_rate, "mean bytes between samples; 0: the profiler is off")                          \
    X(profile_samples, "live samples, a number")                                                   \
    X(limit_hard, "the hard limit; 0: none")                                                       \
    X(purged_total, "bytes given back to the kernel since the start")                              \
    X(control, "0 off, 1 read, 2 write: what the socket serves, a number")                         \
    X(profiler, "address space of the profiler's tables, a part of which is memory")               \
    X(options, "digest of the options, the same for the same options; no unit")                    \
    X(ranges, "ranges of addresses that are told below, a number")                                 \
    X(refused, "times that a refresh found another under way, a number")                           \
    X(sum_ns, "CLOCK_MONOTONIC when all threads were last looked at, nanoseconds")                 \
    X(untouched, "pages of small objects to come that were never used: no memory")                 \
    X(untold, "addresses of the heap in ranges that found no room below")                          \
    X(cpu_hz,                                                                                      \
      "samples of a thread per second of its processor time, a number; 0: it is not recorded")     \
    X(behind, "what may have moved by calls since; 0: there were none; 2^64 - 1: anything")        \
    X(worst_size_1, "the size of blocks between which most of slab_free lies; 0: none")            \
    X(worst_free_1, "the part of slab_free between those")                                         \
    X(worst_size_2, "the same for the second")                                                     \
    X(worst_free_2, "the part of slab_free")                                                       \
    X(worst_size_3, "the same for the third")                                                      \
    X(worst_free_3, "the part of slab_free")

struct stats_page {
    uint64_t magic;
    uint32_t bytes; /* of this struct */
    uint32_t pid;   /* as the process sees itself */
    _Atomic uint32_t sequence;
    uint32_t reserved;
    uint64_t start_ns, refresh_ns; /* CLOCK_MONOTONIC: of the start, of the last refresh */
    char version[STATS_PAGE_VERSION_BYTES];
    char socket_path[STATS_PAGE_PATH_BYTES]; /* as the process sees it; empty: none */
#define STATS_PAGE_WORD(name, help) uint64_t name;
    STATS_PAGE_WORDS(STATS_PAGE_WORD)
#undef STATS_PAGE_WORD
};
_Static_assert(sizeof(struct stats_page) <= STATS_PAGE_RANGES_AT, "half a page");

struct stats_page_range {
    uint64_t start, end;
};
_Static_assert(STATS_PAGE_RANGES_AT + STATS_PAGE_MOST_RANGES * sizeof(struct stats_page_range) <=
                   STATS_PAGE_BYTES,
               "the other half");
