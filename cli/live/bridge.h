/* SPDX-License-Identifier: MIT
 *
 * bridge.h - from the bytes a program asked for to the memory that the kernel counts, line by line.
 *
 *        requested   what the program asked for and has not freed; with its rounding where that is not known
 *      + rounding    to size classes, known while the profiler records every allocation
 *      + inside      free space in pages that are in use
 *      + cached      free objects that threads keep
 *      + kept        empty pages, and those never used that came with a huge page
 *      + own         bookkeeping
 *      - untouched   counted above but not resident: never written to, or swapped out
 *      = heap        resident memory in the ranges of the heap, says the kernel
 *      + other       resident memory of binaries, stacks and other mappings, says the kernel
 *      + unexplained memory in the ranges of the heap that no line above accounts for
 *      = rss
 *
 * Everything but the lines from `requested` to `own` comes from /proc/PID/smaps.
 */
#pragma once

#include "live/target.h"

enum { BRIDGE_GROUPS = 256, BRIDGE_NAME_BYTES = 48 };

/* Mappings of one name. */
struct bridge_group {
    char name[BRIDGE_NAME_BYTES]; /* the file's, "stacks", "[heap]", "[anon]" */
    uint64_t rss;
};

struct bridge {
    uint64_t requested, rounding, inside, cached, kept, own, untouched, heap;
    uint64_t other, unexplained, rss;
    uint64_t files, stacks, shared, anonymous; /* parts of `other` */
    uint64_t assumed;                          /* part of `heap`, see bridge.c */
    bool knows_rounding;
    struct bridge_group groups[BRIDGE_GROUPS]; /* of `other`, largest first */
    size_t group_count;
};

/* False, after a sentence, when /proc/PID/smaps cannot be read. */
bool bridge_build(const struct target *target, const struct target_page *page,
                  struct bridge *bridge);
