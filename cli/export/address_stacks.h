/* SPDX-License-Identifier: MIT
 *
 * address_stacks.h - stacks of bare addresses, which the writers of the old formats share.
 *
 * jemalloc, gperftools' heap and gperftools' CPU format have no names, only addresses and a memory
 * map.  They hold callers as return addresses, one more than the profile has; readers subtract one.
 * The Perl readers do not for the first frame, so it is written as it is: what Go's pprof then
 * looks up, one byte earlier, still lies inside the call, which is at least two bytes long.
 */
#pragma once

#include <stdio.h>

#include "profile/profile.h"

/* The types of what is live and of what was ever allocated; PROFILE_NONE where there is none. */
struct heap_types {
    uint32_t objects, bytes, ever_objects, ever_bytes;
};

struct heap_counts {
    int64_t objects, bytes, ever_objects, ever_bytes;
};

/* "Live" is the metric's pair (peak_space means peak_objects too), otherwise that of in-use.  False
 * after a sentence where the profile is not about a heap. */
bool address_find_types(const struct profile *profile, struct heap_types *types);

/* False after a sentence: no stack has an address. */
bool address_are_there(const struct profile *profile, const char *format);

/* Samples ordered by stack, then by label, so that equal ones are neighbours.  To be freed. */
uint32_t *address_order(const struct profile *profile, const char *label);
bool address_is_same(const struct profile *profile, uint32_t sample, uint32_t other);

/* Adds the values of a sample; one below zero counts as nothing and adds to *negative. */
void address_add(const struct profile *profile, uint32_t sample, const struct heap_types *types,
                 struct heap_counts *counts, uint32_t *negative);

/* The addresses as the formats want them, or just 1 where there is none; returns their number. */
uint32_t address_get(const struct profile *profile, uint32_t sample, uint64_t *addresses);

/* Lines as in /proc/PID/maps. */
void address_write_maps(FILE *file, const struct profile *profile);
