/* SPDX-License-Identifier: MIT
 *
 * writer.h - what the writer's thread and the other files of this folder call of each other.
 */
#pragma once

#include "cpu/cpu.h"

/* The writer's thread, made if there is none; false if it cannot be.  It stays as long as a profile is on or
 * somebody wants it to. */
bool writer_make(void);
void writer_keep(bool is_kept);

/* Wakes it.  In handlers, too. */
void writer_ring(void);

/* The writer does this now and then, with no lock held.  True if something is left to do soon. */
bool cpu_file_tick(void);

/* Counts what handlers have left until now. */
void writer_count(void);

/* In the child of a fork, when nothing is on any more. */
void cpu_file_forked(bool was_on);

/* All that was counted: 0 or -errno. */
int cpu_dump_fill(struct out *out, enum cpu_format format);
