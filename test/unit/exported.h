/* SPDX-License-Identifier: MIT
 *
 * exported.h - small profiles, built by hand and written into memory, for test_export*.c.
 *
 * What comes out is compared to the byte where the format is ours to lay out, and taken apart where it is
 * packed.
 */
#ifndef TALLY_TEST_EXPORTED_H
#define TALLY_TEST_EXPORTED_H

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "args/args.h"
#include "export/export.h"
#include "export/frame_table.h"
#include "profiles.h"

/* What tests make lives until their end, and is still known then: a leak is a writer's. */
static void *made[256];
static size_t made_count;

static inline void *remember(void *memory) {
    check(made_count < sizeof made / sizeof made[0]);
    return made[made_count++] = memory;
}

/* Profiles. */

static inline struct profile *make_profile(void) {
    return remember(profile_new());
}

static inline const char *keep(struct profile *profile, const char *text) {
    return profile_text(profile, text, strlen(text));
}

static inline struct profile *new_heap(void) {
    struct profile *profile = make_profile();
    profile_add_type(profile, keep(profile, "alloc_objects"), keep(profile, "count"));
    profile_add_type(profile, keep(profile, "alloc_space"), keep(profile, "bytes"));
    profile_add_type(profile, keep(profile, "inuse_objects"), keep(profile, "count"));
    profile_add_type(profile, keep(profile, "inuse_space"), keep(profile, "bytes"));
    profile->default_type = 3;
    profile->period_type = (struct profile_type){"space", "bytes"};
    profile->period = 1;
    profile->source = "test";
    struct profile_mapping mapping = {.start = 0x400000,
                                      .limit = 0x402000,
                                      .path = keep(profile, "/bin/demo"),
                                      .build_id = keep(profile, "0011aabb")};
    profile_add_mapping(profile, mapping);
    return profile;
}

static inline uint32_t add_named(struct profile *profile, uint64_t address, const char *name,
                                 const char *file, uint32_t line) {
    struct profile_function function = {keep(profile, name), keep(profile, name),
                                        keep(profile, file), 1};
    struct profile_line at = {profile_add_function(profile, function), line};
    return profile_add_location(profile, address, 0, &at, 1);
}

static inline void add_sample(struct profile *profile, const uint32_t *stack, uint32_t depth,
                              const int64_t *values, const char *thread) {
    struct profile_label label = {.key = "thread", .text = thread};
    if (thread != NULL) {
        label.key = keep(profile, label.key);
        label.text = keep(profile, thread);
    }
    profile_add_sample(profile, stack, depth, values, &label, thread != NULL);
}

/* The same with names, lines and threads. */
static inline struct profile *new_named(void) {
    struct profile *profile = new_heap();
    uint32_t load = add_named(profile, 0x401136, "load", "account.c", 140);
    uint32_t login = add_named(profile, 0x40118b, "login", "auth.c", 77);
    uint32_t outer = add_named(profile, 0x4011b4, "main", "server.c", 412);
    add_sample(profile, (uint32_t[]){load, login, outer}, 3, (int64_t[]){1, 4096, 1, 4096}, "a");
    add_sample(profile, (uint32_t[]){login, outer}, 2, (int64_t[]){4, 1088, 2, 64}, "b");
    return profile;
}

/* One frame of that name. */
static inline struct profile *new_single(const char *name) {
    struct profile *profile = new_heap();
    uint32_t location = add_named(profile, 0x401136, name, "", 0);
    add_sample(profile, &location, 1, (int64_t[]){1, 100, 1, 100}, NULL);
    return profile;
}

/* Writing into memory. */

static size_t written_bytes;

static __attribute__((noinline, unused)) const char *
write_with(bool (*write)(const struct profile *, struct output *), const struct profile *profile,
           bool expected) {
    char *text = NULL;
    struct output output = {.file = open_memstream(&text, &written_bytes)};
    check(output.file != NULL);
    bool is_written = write(profile, &output);
    check(fclose(output.file) == 0);
    check_eq(is_written, expected);
    return remember(text);
}

static inline const char *written(bool (*write)(const struct profile *, struct output *),
                                  const struct profile *profile) {
    return write_with(write, profile, true);
}

static inline void check_has(const char *text, const char *part) {
    if (strstr(text, part) == NULL) {
        test_say("missing: ", part, "\nin: ", text, "\n", NULL);
        check(false);
    }
}

static inline void check_lacks(const char *text, const char *part) {
    if (strstr(text, part) != NULL) {
        test_say("should not be there: ", part, "\nin: ", text, "\n", NULL);
        check(false);
    }
}

static inline unsigned count_of(const char *text, const char *part) {
    unsigned count = 0;
    for (text = strstr(text, part); text != NULL; text = strstr(text + 1, part)) {
        count++;
    }
    return count;
}

static inline void usual_selection(void) {
    args_select.most_rows = SELECT_OWN_ROWS;
    args_select.least_share = SELECT_OWN_SHARE;
    cli_loudness = 0;
}

/* pprof. */

/* Unpacks into a static buffer. */
static inline const uint8_t *unpack(const char *packed, size_t *length) {
    static uint8_t bytes[1 << 16];
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)packed,
                       .avail_in = (uInt)written_bytes,
                       .next_out = bytes,
                       .avail_out = sizeof bytes};
    check_eq(inflateInit2(&stream, 15 + 16), Z_OK);
    check_eq(inflate(&stream, Z_FINISH), Z_STREAM_END);
    *length = stream.total_out;
    check_eq(inflateEnd(&stream), Z_OK);
    return bytes;
}

static inline struct profile *new_cpu(void) {
    struct profile *profile = make_profile();
    profile_add_type(profile, "samples", "count");
    profile_add_type(profile, "cpu", "nanoseconds");
    profile->default_type = 1;
    profile->period_type = (struct profile_type){"cpu", "nanoseconds"};
    profile->period = 10000000;
    profile->is_exact_leaf = true;
    uint32_t inner = profile_add_location(profile, 0x401136, PROFILE_NONE, NULL, 0);
    uint32_t outer = profile_add_location(profile, 0x4011b4, PROFILE_NONE, NULL, 0);
    profile_add_sample(profile, (uint32_t[]){inner, outer}, 2, (int64_t[]){5, 50000000}, NULL, 0);
    return profile;
}

#endif
