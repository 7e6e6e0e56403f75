/* SPDX-License-Identifier: MIT
 *
 * sums.h - samples by stack and thread.
 *
 * Threads     Adding and clearing are serialised by the caller; reading may happen meanwhile.
 */
#pragma once

#include "cpu/cpu.h"

/* False without memory, or when there are too many sums: the samples are lost.  Some room is kept for thread 0. */
bool sums_add(uint32_t stack, uint32_t thread, uint64_t count);

uint32_t sums_count(void);
bool sums_read(uint32_t index, struct cpu_sample *sample);

/* In the child of a fork what was being changed is not sound. */
void sums_clear(bool is_sound);
