/* SPDX-License-Identifier: MIT
 *
 * opt.h - the options of options.def as one struct.
 */
#pragma once

#include "base/common.h"

/* How each type of option is kept. */
#define KEPT_U64 uint64_t
#define KEPT_I64 int64_t
#define KEPT_BOOL uint64_t
#define OPTION(name, type, initial, least, most, help) KEPT_##type name;
#define CHOICE(name, words, initial, help) uint64_t name;
struct options {
#include "base/options.def"
};
#undef OPTION
#undef CHOICE

/* The values of choices, in the order of their words. */
enum { THP_AUTO, THP_NEVER, THP_ALWAYS };
enum { BACKGROUND_THREAD_FALSE, BACKGROUND_THREAD_TRUE, BACKGROUND_THREAD_AUTO };

/* Fixed once opt_init() has returned. */
extern struct options opt HIDDEN;

/*
 * Sets every option to its default, then reads MALLOC_CONF and TALLY_CONF (the latter wins), unless
 * the process is set-uid or the like.  A malformed or unknown entry is one warning line; the rest
 * still applies.
 */
void opt_init(void);

/* Applies one configuration text; `source` names it in warnings. */
void opt_parse(const char *text, const char *source);
