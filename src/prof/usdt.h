/* SPDX-License-Identifier: MIT
 *
 * usdt.h - samples for agents outside of the process, as probes of OpenTelemetry's otel_memory.
 *
 *      otel_memory:alloc(pointer, size, weight)    an allocation was sampled
 *      otel_memory:free(pointer)                   a sampled object is freed
 *
 * The size is what was asked for.  The weight is the number of bytes that the sample stands for, a
 * multiple of the mean distance between samples.
 *
 * Threads     All functions may be called from any thread, inside and with no lock held.
 */
#pragma once

#include "heap/heap.h"

/* One probe each, where agents attach. */
void usdt_alloc(const void *object, size_t size, uint64_t weight);
void usdt_free(const void *object);

/* How many bytes a sampled object of this size stands for. */
uint64_t usdt_weight(size_t usable, uint64_t rate);

/* The probe with its weight; the functions below call it only if somebody listens. */
void usdt_tell_sampled(const void *object, size_t size, size_t usable);

static inline void usdt_sampled(const void *object, size_t size, size_t usable) {
    if (UNLIKELY(bin_has_agents())) {
        usdt_tell_sampled(object, size, usable);
    }
}

static inline void usdt_freed(const void *object) {
    if (UNLIKELY(bin_has_agents())) {
        usdt_free(object);
    }
}
