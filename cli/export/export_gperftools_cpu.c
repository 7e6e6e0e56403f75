/* SPDX-License-Identifier: MIT
 *
 * export_gperftools_cpu.c - the binary CPU profile of gperftools, in words of the machine.
 *
 *      0 3 0 period 0      header, the period in microseconds
 *      count n pc...       a record, leaf first
 *      0 1 0               the end; then lines as in /proc/PID/maps
 *
 * A first pc of 0 would end the data for the Perl readers; address_get never gives one.
 */
#include <stdlib.h>
#include <string.h>

#include "export/address_stacks.h"
#include "export/export.h"

static void put_words(FILE *file, const uintptr_t *words, size_t count) {
    fwrite(words, sizeof(*words), count, file);
}

/* The number of times a stack was seen: as counted, or its time in periods. */
static int64_t count_of(const struct profile *profile, uint32_t sample, uint32_t samples,
                        uint32_t cpu) {
    if (samples != PROFILE_NONE) {
        return profile_value(profile, sample, samples);
    }
    int64_t value = profile_value(profile, sample, cpu);
    return value > 0 ? value / profile->period + (value % profile->period * 2 >= profile->period)
                     : value;
}

static bool find_types(const struct profile *profile, uint32_t *samples, uint32_t *cpu) {
    *samples = profile_find_type(profile, "samples");
    *cpu = profile_find_type(profile, "cpu");
    bool has_count = *samples != PROFILE_NONE || *cpu != PROFILE_NONE;
    if (!has_count || profile->period < 1 || profile->period_type.name == NULL ||
        strcmp(profile->period_type.name, "cpu") != 0) {
        return decline("this is no CPU profile: it has no samples with a period");
    }
    return true;
}

bool export_gperftools_cpu(const struct profile *profile, struct output *output) {
    uint32_t samples, cpu;
    if (!find_types(profile, &samples, &cpu) ||
        !address_are_there(profile, "gperftools' CPU profile")) {
        return false;
    }
    uintptr_t period = (uintptr_t)(profile->period / 1000);
    put_words(output->file, (uintptr_t[]){0, 3, 0, period > 0 ? period : 1, 0}, 5);
    uint64_t *addresses = must_alloc((profile->stack_count + (size_t)1) * sizeof(*addresses));
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        int64_t count = count_of(profile, i, samples, cpu);
        if (count <= 0) {
            continue;
        }
        uint32_t depth = address_get(profile, i, addresses);
        put_words(output->file, (uintptr_t[]){(uintptr_t)count, depth}, 2);
        for (uint32_t k = 0; k < depth; k++) {
            uintptr_t address = (uintptr_t)addresses[k];
            put_words(output->file, &address, 1);
        }
    }
    free(addresses);
    put_words(output->file, (uintptr_t[]){0, 1, 0}, 3);
    address_write_maps(output->file, profile);
    return true;
}
