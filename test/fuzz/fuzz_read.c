/* SPDX-License-Identifier: MIT
 *
 * fuzz_read.c - the readers of profiles: whatever the bytes are, a sound profile or one sentence.
 *
 * The first byte chooses the reader; one choice lets the content decide, and one builds a container whose
 * sums are right around pieces of the input, which chance would never find.  A profile that comes out is
 * merged, copied and subtracted from itself, which must leave nothing.
 */
#include <string.h>
#include <zlib.h>

#include "common/cli.h"
#include "fuzz.h"
#include "view/leak_sites.h"
#include "contract/frames.h"
#include "read/read.h"

enum { MOMENTS_LOOKED_AT = 4, CONTAINER_BYTES = 1 << 20 };

/* Numbers so large that sums of them stay at the ends of what can be said. */
static int has_huge_values(const struct profile *profile) {
    for (size_t i = 0; i < (size_t)profile->sample_count * profile->type_count; i++) {
        if (profile->values[i] > INT64_C(1) << 40 || profile->values[i] < -(INT64_C(1) << 40)) {
            return 1;
        }
    }
    return profile->sample_count > 1 << 20;
}

/* Nothing is left of a profile less itself.  Of types with one name the first is taken. */
static void check_difference(const struct profile *profile) {
    struct profile *copy = profile_new();
    profile_add_profile(copy, profile, 1);
    fuzz_check(profile_verify(copy));
    fuzz_check(copy->type_count == profile->type_count);
    profile_merge_equal(copy);
    fuzz_check(profile_verify(copy));
    profile_add_profile(copy, profile, -1);
    for (uint32_t type = 0; type < profile->type_count; type++) {
        if (profile_find_type(profile, profile->types[type].name) == type) {
            fuzz_check(has_huge_values(profile) || profile_total(copy, type) == 0);
        }
    }
    profile_free(copy);
}

static void check_profile(const struct profile *profile) {
    fuzz_check(profile_verify(profile));
    check_difference(profile);
}

static void check_moment(const struct profile *profile, const char *said) {
    fuzz_check(profile != NULL || said[0] != '\0');
    if (profile != NULL) {
        check_profile(profile);
    }
}

static void check_run(struct read_run *run, const char *why) {
    if (run == NULL) {
        fuzz_check(why[0] != '\0' && memchr(why, '\0', READ_WHY_BYTES) != NULL);
        return;
    }
    fuzz_check(run->format != NULL && run->program != NULL && run->arguments != NULL);
    for (uint32_t i = 0; i < MOMENTS_LOOKED_AT; i++) {
        char said[READ_WHY_BYTES] = "";
        if (i < run->moment_count) {
            check_moment(read_moment(run, i, said), said);
        }
        if (i < run->cpu_count) {
            check_moment(read_cpu_moment(run, i, said), said);
        }
    }
    const struct profile *peak = read_peak(run);
    fuzz_check(peak == NULL || profile_verify(peak));
    read_run_free(run);
}

/* ---------------------------------------------------------------- a container with right sums */

static uint8_t container[CONTAINER_BYTES];
static size_t container_length;

static void put(uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) {
        container[container_length++] = (uint8_t)(value >> 8 * i);
    }
}

static void put_frame(unsigned type, unsigned flags, const uint8_t *payload, size_t length,
                      size_t raw_bytes) {
    size_t head = container_length;
    memcpy(container + head, FRAME_MAGIC, 4);
    container_length += 4;
    put(type, 2);
    put(flags, 2);
    put(length, 4);
    put(raw_bytes, 4);
    put(container_length, 8);
    put(crc32_z(0, payload, length), 4);
    put(crc32_z(0, container + head, 28), 4);
    memcpy(container + container_length, payload, length);
    container_length += length;
    put(0, (unsigned)(-container_length % 8));
}

/* Pieces of the input as frames: a byte of type and flags, a word of length, and so many bytes. */
static void build_container(struct input input) {
    static uint8_t packed[1 << 17];
    container_length = 8;
    memcpy(container, FRAMES_MAGIC, 8);
    put(FRAMES_MAJOR, 2);
    put(FRAMES_MINOR, 2);
    put(FRAMES_HEADER_BYTES, 4);
    put(1, 8);
    put(1, 8);
    while (input.left > 0 && container_length < sizeof container - sizeof packed) {
        unsigned kind = input_byte(&input);
        size_t length = input_word(&input);
        length = length < input.left ? length : input.left;
        uLongf packed_length = sizeof packed;
        if (kind & 0x80 && compress(packed, &packed_length, input.at, length) == Z_OK) {
            put_frame(kind & 7, FRAME_DEFLATED, packed, packed_length, length + (kind >> 6 & 1));
        } else {
            put_frame(kind & 7, kind >> 3 & 3, input.at, length, length);
        }
        input.at += length;
        input.left -= length;
    }
}

/* What a leak check found: sums stay what they can be, whatever rules take out. */
static void check_leaks(const char *data, size_t size, char why[READ_WHY_BYTES]) {
    struct leak_matches matches = {0};
    struct leak_sites sites = {0};
    struct read_leaks *leaks = read_leaks((const uint8_t *)data, size, why);
    fuzz_check(leaks != NULL || why[0] != '\0');
    if (leaks == NULL) {
        return;
    }
    check_profile(leaks->profile);
    fuzz_check(read_leaks_are_sound(leaks));
    leak_sites_suppress(leaks, data[size / 2] & 1 ? "leak:a*b\n" : "leak:*", &matches);
    for (unsigned i = 0; i < READ_LEAK_SUMS; i++) {
        fuzz_check(leaks->sums[i].objects >= 0 && leaks->sums[i].requested >= 0);
    }
    leak_sites_collect(&sites, leaks->profile, " <- ");
    leak_sites_free(&sites);
    read_leaks_free(leaks);
}

/* ---------------------------------------------------------------- the target */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct profile *(*const readers[])(const uint8_t *, size_t, char *) = {
        read_proto, read_jemalloc, read_gperftools, read_gperftools_cpu, read_folded,
    };
    enum { READERS = sizeof readers / sizeof readers[0] };
    char why[READ_WHY_BYTES] = "";
    cli_loudness = 0;
    if (size == 0) {
        return 0;
    }
    unsigned choice = data[0] % (READERS + 4);
    data++;
    size--;
    if (choice < READERS) {
        struct profile *profile = readers[choice](data, size, why);
        if (profile != NULL) {
            check_profile(profile);
            profile_free(profile);
        } else {
            fuzz_check(why[0] != '\0');
        }
    } else if (choice == READERS) {
        build_container((struct input){data, size});
        check_run(read_run(container, container_length, why), why);
    } else if (choice == READERS + 1) {
        size_t length = 0;
        uint8_t *bytes = read_inflate(READ_GZIP, data, size, 1 << 24, &length, why);
        fuzz_check(bytes != NULL || why[0] != '\0');
        if (bytes != NULL) {
            check_run(read_run(bytes, length, why), why);
        }
        free(bytes);
    } else if (choice == READERS + 2) {
        check_run(read_run(data, size, why), why);
    } else {
        check_leaks((const char *)data, size, why);
    }
    return 0;
}
