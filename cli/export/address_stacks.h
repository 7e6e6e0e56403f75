/* SPDX-License-Identifier: MIT
 *
 * address_stacks.h - what the writers of the old formats share: stacks of bare addresses.
 *
 * jemalloc, gperftools' heap and gperftools' CPU format have no names, only addresses and a memory map.
 * Callers are return addresses there, one more than the profile has; readers subtract.  Of the first
 * frame the Perl readers do not, so it is written as it is: what Go's pprof looks up then, one byte
 * earlier, still lies inside the call, which has two bytes at least.
 */
#pragma once

#include <stdio.h>

#include "profile/profile.h"

/* The types that are live objects and what was ever allocated; PROFILE_NONE where there are none. */
struct heap_types {
    uint32_t objects, bytes, ever_objects, ever_bytes;
};

struct heap_counts {
    int64_t objects, bytes, ever_objects, ever_bytes;
};

/* Live is the pair of the metric (peak_space means peak_objects too), in-use otherwise.  False after a
 * sentence: the profile is not about a heap. */
bool address_find_types(const struct profile *profile, struct heap_types *types);

/* False after a sentence: no stack has an address. */
bool address_are_there(const struct profile *profile, const char *format);

/* Samples so ordered that equal stacks are neighbours, and in them equal texts of the label.  To be
 * freed. */
uint32_t *address_order(const struct profile *profile, const char *label);
bool address_is_same(const struct profile *profile, uint32_t sample, uint32_t other);

/* Adds what a sample has; what is below zero counts as nothing, and adds to *negative. */
void address_add(const struct profile *profile, uint32_t sample, const struct heap_types *types,
                 struct heap_counts *counts, uint32_t *negative);

/* The addresses as the formats want them; gives how many.  At least one: 1 where there is none. */
uint32_t address_get(const struct profile *profile, uint32_t sample, uint64_t *addresses);

/* Lines as in /proc/PID/maps. */
void address_write_maps(FILE *file, const struct profile *profile);
