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
 * Is this share of a limit reached, in units of 1/PRESSURE_ONE?  Looks at the resident memory of the
 * process and that of the machine, and at the memory of each cgroup above the process that has a
 * limit; what the kernel can drop from its file cache does not count.  Where nothing can be read, it
 * is not.
 */
bool pressure_is_above(uint64_t share);

/* Memory behind the pages of the process; 0 when it cannot be read. */
size_t pressure_resident_bytes(void);
