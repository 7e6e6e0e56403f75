/* SPDX-License-Identifier: MIT
 *
 * sample.h - from a sampled allocation to its record: what sample.c and mapping.c ask of prof.c.
 *
 * Threads     Call inside (api/life.h), with no lock held.
 */
#pragma once

#include "prof/prof.h"

/* What an object carries that is sampled only for the probes of usdt.h: it has no record. */
#define PROF_UNRECORDED (UINT32_MAX & ~TRACK_IGNORED)

/* The caller is about to allocate `size` bytes, `usable` at the end, and track_is_due said yes:
 * walks its stack and makes a record.  `frame` is __builtin_frame_address(0) of a function of ours
 * that the caller has called; that function and all between the two have frame pointers.
 * PROF_UNRECORDED when the object is sampled only for probes; 0 when it is not to be sampled: then
 * it is allocated as usual. */
uint32_t prof_record(size_t size, size_t usable, void *frame);

/* The object of the record exists now, or could not be had. */
void prof_recorded(uint32_t id, const void *object);
void prof_unrecord(uint32_t id);

/* The same for bytes that the program has mapped, or is about to; mapping.c knows when they end.
 * Never PROF_UNRECORDED. */
uint32_t prof_record_mapping(size_t bytes);
void prof_recorded_mapping(uint32_t id);
