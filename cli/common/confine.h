/* SPDX-License-Identifier: MIT
 *
 * confine.h - what a process gives up before it looks into a file of a stranger.
 *
 * For a child between fork and _exit: confine_start() at once, then the files it needs are opened or read, and
 * confine_finish() before anything in them is believed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The descriptors that are kept have these numbers, in the order they were given in. */
enum { CONFINE_RESULT = 3 };

/*
 * Dies with its parent; reads and writes nothing but `fds` (-1: none), the first of which becomes 3, the next
 * one 4, and so on; takes `memory` bytes of addresses, 300 seconds of CPU, and leaves no core.
 */
void confine_start(const int *fds, size_t count, uint64_t memory);

/* Root becomes nobody.  From here on: memory, time, the end, writing to descriptor 3, and reading from the
 * `inputs` descriptors behind it; every other call fails.  Where the kernel has no filter the limits remain. */
void confine_finish(unsigned inputs);
