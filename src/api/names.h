/* SPDX-License-Identifier: MIT
 *
 * names.h - the names under which a function is exported.
 *
 * jemalloc's functions and the malloc family are exported with a prefix, je_ unless the library is
 * built with another (TALLY_PREFIX in CMakeLists.txt), and without one where TALLY_OVERRIDE is on.
 * All names of a function are aliases of one address, so none of them costs anything.
 *
 * The prefix is chosen by whoever builds the library, so names with it are made by pasting, here
 * and nowhere else.
 */
#pragma once

#include "base/common.h"

#ifndef TALLY_PREFIX
#define TALLY_PREFIX je_
#endif
#define PASTED(prefix, name) prefix##name
#define PASTED_EXPANDED(prefix, name) PASTED(prefix, name)
#define PREFIXED(name) PASTED_EXPANDED(TALLY_PREFIX, name)

/* Declares another name of a function that is defined in the same file; a macro as argument is
 * expanded.  gcc compares the attributes of an alias, hence `copy`, which clang does not know. */
#define QUOTED(name) #name
#define ALIAS_OF(name) alias(QUOTED(name))
#if __has_attribute(copy)
#define SAME_AS(name) __attribute__((ALIAS_OF(name), visibility("default"), copy(name)))
#else
#define SAME_AS(name) __attribute__((ALIAS_OF(name), visibility("default")))
#endif

/* gperftools' names.  A library that leaves libc's names alone leaves these alone, too. */
#if TALLY_OVERRIDE
#define FOREIGN EXPORT
#else
#define FOREIGN
#endif
