/* SPDX-License-Identifier: MIT
 *
 * nearest.h - which known name somebody may have meant who wrote another.
 */
#pragma once

#include "base/common.h"

/* Longer names are near to nothing. */
enum { NEAREST_MOST = 64 };

/* Insertions, deletions, replacements and swaps of neighbours that make one word the other; NEAREST_MOST if either
 * is longer than that. */
size_t nearest_distance(const char *a, size_t a_length, const char *b, size_t b_length);
