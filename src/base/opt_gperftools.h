/* SPDX-License-Identifier: MIT
 *
 * opt_gperftools.h - the variables of gperftools, by its rules, for opt_sources.c; its defaults.
 */
#pragma once

#include "base/common.h"

/* Bytes allocated, and bytes more alive than ever, from one profile to the next, where nobody says. */
enum { GPERFTOOLS_ALLOC_INTERVAL = 1 << 30, GPERFTOOLS_LIVE_STEP = 100 << 20 };

/* HEAPPROFILE: every allocation is recorded, and files are called <path><rank>[_<pid>].0001.heap. */
void opt_gperftools_profile(const char *path);

/* A decimal number; what follows it is ignored, and what is none is 0. */
int64_t opt_gperftools_number(const char *text);

/* True if the text is empty or begins with one of t, T, y, Y, 1. */
bool opt_gperftools_switch(const char *text);
