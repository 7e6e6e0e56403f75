/* SPDX-License-Identifier: MIT
 *
 * opt_heapcheck.h - the variables of gperftools' heap checker and LeakSanitizer, for opt_sources.c.
 */
#pragma once

#include "base/common.h"

/* One of the variables whose meaning in options.def is HEAP_CHECK. */
void opt_heapcheck_read(const char *variable, const char *text);
