/* SPDX-License-Identifier: MIT
 *
 * pressure.h - how near the process is to the memory it may use.
 *
 * Threads     Any thread; reads a few files of the kernel and takes no lock.
 */
#pragma once

#include "base/common.h"

enum { PRESSURE_ONE = 1 << 16 };

/*
 * Is this share of a limit reached, in units of 1/PRESSURE_ONE?  Looks at the resident memory of
 * the process and that of the machine, and at the memory of each cgroup above the process that has
 * a limit; what the kernel can drop from its file cache does not count.  False if nothing can be
 * read.
 */
bool pressure_is_above(uint64_t share);

/* Resident bytes of the process; 0 if they cannot be read. */
size_t pressure_resident_bytes(void);
