/* SPDX-License-Identifier: MIT
 *
 * opt_gperftools.h - the variables of gperftools, by its rules, for opt_sources.c.
 */
#pragma once

#include "base/common.h"

/* HEAPPROFILE: every allocation is recorded; files are called <path><rank>[_<pid>].0001.heap. */
void opt_gperftools_profile(const char *path);

/* CPUPROFILE: the profile is called <path><rank>[_<pid>]. */
void opt_gperftools_cpu_profile(const char *path);

/* Like the next, but hexadecimal behind 0x and octal behind 0; a number below 0 is 0. */
uint64_t opt_gperftools_any_base(const char *text);

/* A decimal number; what follows it is ignored, and any other text is 0. */
int64_t opt_gperftools_number(const char *text);

/* True if the text is empty or begins with one of t, T, y, Y, 1. */
bool opt_gperftools_switch(const char *text);
