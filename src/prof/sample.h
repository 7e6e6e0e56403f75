/* SPDX-License-Identifier: MIT
 *
 * sample.h - where an allocation meets the profiler: one question on every slow path.
 */
#pragma once

#include "heap/heap.h"

/* Sampling is on: is it this allocation's turn?  The rest of the function below. */
void *sample_if_due(struct place place, size_t size, size_t alignment, bool *zeroed, void *frame);

/* An object with a record of who asked for it, if it is this allocation's turn; NULL, with nothing done,
 * if it is not or if that cannot be: then it is allocated as usual.  Call inside, with no lock held.
 * Costs a load and a test while nothing is sampled. */
static inline __attribute__((always_inline)) void *sample_alloc(struct place place, size_t size,
                                                                size_t alignment, bool *zeroed) {
    return track_is_on() ? sample_if_due(place, size, alignment, zeroed, __builtin_frame_address(0))
                         : NULL;
}

/*
 * Gives the function it stands in a frame pointer, also in a file that is compiled without.  The
 * profiler walks from the function that has sample_alloc in it to the program by frame pointers: a
 * function in between that has none would hide its caller, the one that matters most.
 */
static inline __attribute__((always_inline)) void sample_keep_frame(void) {
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
}
