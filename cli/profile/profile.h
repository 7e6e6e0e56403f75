/* SPDX-License-Identifier: MIT
 *
 * profile.h - a profile in memory, whatever file it came from.
 *
 * The shape is that of profile.proto: samples lead to locations (addresses), locations to lines of
 * functions, innermost inlined call first.
 *
 *      sample   values[types]  labels  ->  location  ->  line      ->  function
 *                                          address       number        name, file
 *                                          mapping
 *
 * A location's address lies inside the instruction that called: one less than the return address that
 * the program's stack held.  Readers of formats with return addresses subtract, their writers add.  Where
 * the leaf is not a return address (CPU profiles: is_exact_leaf) it is the address of an instruction.
 *
 * Values are estimates of the truth: a reader scales what was sampled, and nothing scales it again.
 * Everything a profile points to lives as long as the profile.  Indices, not pointers, because
 * arrays move while they grow.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROFILE_NONE = UINT32_MAX };

struct profile_type {
    const char *name; /* "inuse_space" */
    const char *unit; /* "bytes" */
};

struct profile_mapping {
    uint64_t start, limit, offset; /* [start, limit) shows the file from offset on */
    const char *path;              /* "" where unknown */
    const char *build_id;          /* hexadecimal; "" where unknown */
    bool has_functions;            /* the writer of the profile found the names */
};

struct profile_function {
    const char *name;        /* for people */
    const char *system_name; /* as the linker sees it */
    const char *file;        /* "" where unknown */
    uint32_t start_line;     /* 0 where unknown */
};

struct profile_line {
    uint32_t function;
    uint32_t number; /* 0 where unknown */
};

struct profile_location {
    uint64_t address;
    uint32_t mapping;           /* or PROFILE_NONE */
    uint32_t lines, line_count; /* in profile->lines; none where there is no name */
};

struct profile_label {
    const char *key;
    const char *text; /* NULL: it is a number */
    int64_t number;
    const char *unit; /* of the number; may be "" */
};

struct profile_sample {
    uint32_t stack, depth;        /* in profile->stacks, leaf first */
    uint32_t labels, label_count; /* in profile->labels */
};

struct profile {
    struct profile_type *types;
    uint32_t type_count;
    uint32_t default_type; /* what is shown unless an option says otherwise */
    struct profile_mapping *mappings;
    uint32_t mapping_count;
    struct profile_function *functions;
    uint32_t function_count;
    struct profile_location *locations;
    uint32_t location_count;
    struct profile_line *lines;
    uint32_t line_count;
    struct profile_sample *samples;
    uint32_t sample_count;
    int64_t *values;  /* sample_count rows of type_count */
    uint32_t *stacks; /* locations */
    uint32_t stack_count;
    struct profile_label *labels;
    uint32_t label_count;

    struct profile_type period_type; /* {"space", "bytes"} or {"cpu", "nanoseconds"} */
    int64_t period;                  /* the sampling rate; 0 or 1: everything was recorded */
    int64_t time_ns, duration_ns;    /* since 1970; 0 where unknown */
    bool is_exact_leaf;              /* see the top */
    const char **comments;
    uint32_t comment_count;
    int64_t counted_live; /* bytes in use at this moment, counted and not sampled; 0: unknown */
    const char *source;   /* the format it came from: "pprof", "jemalloc", ... */

    struct profile_memory *memory; /* profile.c */
};

/* Ends the command where there is no memory, as every function here does. */
struct profile *profile_new(void);
void profile_free(struct profile *profile);

/* A copy of the text that lives as long as the profile; equal texts share one. */
const char *profile_text(struct profile *profile, const char *text, size_t length);

/* Each adds one and returns its index.  Texts of mappings and functions are from profile_text. */
uint32_t profile_add_type(struct profile *profile, const char *name, const char *unit);
uint32_t profile_add_mapping(struct profile *profile, struct profile_mapping mapping);
uint32_t profile_add_comment(struct profile *profile, const char *text);

/* Equal functions (name, file, start line) share an index. */
uint32_t profile_add_function(struct profile *profile, struct profile_function function);

/* The location of this address, mapping and these lines; equal ones share an index. */
uint32_t profile_add_location(struct profile *profile, uint64_t address, uint32_t mapping,
                              const struct profile_line *lines, uint32_t line_count);

/* Gives an existing location its lines: what a symboliser found. */
void profile_set_lines(struct profile *profile, uint32_t location, const struct profile_line *lines,
                       uint32_t line_count);

/* All types must be there before the first sample. */
uint32_t profile_add_sample(struct profile *profile, const uint32_t *stack, uint32_t depth,
                            const int64_t *values, const struct profile_label *labels,
                            uint32_t label_count);

static inline int64_t profile_value(const struct profile *profile, uint32_t sample, uint32_t type) {
    return profile->values[(size_t)sample * profile->type_count + type];
}

/* The index of a type by name; PROFILE_NONE. */
uint32_t profile_find_type(const struct profile *profile, const char *name);

/* The types of bytes and of objects that belong to a type: "inuse_space" and "inuse_objects" for
 * either of these, for "slack_space" and for "pinned_space".  False, and PROFILE_NONE, where one is missing. */
bool profile_find_pair(const struct profile *profile, uint32_t type, uint32_t *space,
                       uint32_t *objects);

/* The text of a sample's label; "" where it has none. */
const char *profile_label(const struct profile *profile, uint32_t sample, const char *key);

/* A sample's label that is a number in this unit; NULL where it has none. */
const struct profile_label *profile_number_label(const struct profile *profile, uint32_t sample,
                                                 const char *key, const char *unit);

/* Sums of hostile numbers stop at the ends of int64_t. */
static inline int64_t profile_sum(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (b < 0 ? INT64_MIN : INT64_MAX) : sum;
}

/* The absolute value, also of INT64_MIN. */
static inline uint64_t profile_magnitude(int64_t value) {
    return value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
}

/* The frames of a location: its lines, or itself without a name. */
static inline uint32_t profile_frames(const struct profile_location *location) {
    return location->line_count > 0 ? location->line_count : 1;
}

/* Sum of one type over all samples. */
int64_t profile_total(const struct profile *profile, uint32_t type);

/* Samples of equal stack and labels become one.  In place. */
void profile_merge_equal(struct profile *profile);

/* Adds the samples of another profile, times `factor` (-1 subtracts); types are matched by name,
 * and those that only one profile has are dropped, with a warning. */
void profile_add_profile(struct profile *profile, const struct profile *other, int factor);

/* The same with a choice per type of `profile`: the other's type to add, and its factor. */
struct profile_column {
    uint32_t type;
    int factor;
};
void profile_add_columns(struct profile *profile, const struct profile *other,
                         const struct profile_column *columns);

/* Makes an empty profile one of the same kind: types, period, times; no comments. */
void profile_adopt(struct profile *profile, const struct profile *other);

/* Copy parts of another profile: return the index here of each, or the labels.  To be freed. */
uint32_t *profile_copy_mappings(struct profile *profile, const struct profile *other);
uint32_t *profile_copy_functions(struct profile *profile, const struct profile *other);
struct profile_label *profile_copy_labels(struct profile *profile, const struct profile *other,
                                          const struct profile_sample *sample);

/* Do all indices lead somewhere?  For tests. */
bool profile_verify(const struct profile *profile);
