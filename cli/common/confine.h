/* SPDX-License-Identifier: MIT
 *
 * confine.h - the rights that a process gives up before it looks into a stranger's file.
 *
 * For a child between fork and _exit: it calls confine_start() at once, then opens or reads the
 * files it needs, and calls confine_finish() before it trusts anything in them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The descriptors that are kept are numbered from here on, in the order given. */
enum { CONFINE_RESULT = 3 };

/*
 * The process dies with its parent; reads and writes nothing but `fds` (-1: none), which become 3,
 * 4 and so on; may take `memory` bytes of addresses and 300 seconds of CPU; and leaves no core.
 */
void confine_start(const int *fds, size_t count, uint64_t memory);

/* Root becomes nobody.  The process may then use memory and clocks, exit, write to descriptor 3 and
 * read the `inputs` after it; other calls fail.  Without a kernel filter only limits remain. */
void confine_finish(unsigned inputs);
