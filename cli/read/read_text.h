/* SPDX-License-Identifier: MIT
 *
 * read_text.h - shared by the readers of text formats: lines, numbers, stacks, scaling of samples.
 */
#pragma once

#include <stdarg.h>

#include "read/read.h"

/* A piece of the input. */
struct text {
    const char *at, *end;
};

/* The lines of an input, without their ends.  \r before \n belongs to the end. */
struct text_lines {
    struct text rest;
    uint64_t number; /* of the line that was taken last, from 1 on */
};
bool text_next_line(struct text_lines *lines, struct text *line);

/* These take something off the front; false, with nothing taken, where it is not there. */
bool text_take(struct text *text, const char *word);
bool text_take_decimal(struct text *text, int64_t *value); /* perhaps with a sign; within int64 */
bool text_take_hex(struct text *text, uint64_t *value);    /* with 0x before it or not */
bool text_take_blanks(struct text *text);                  /* one at least */

static inline bool text_is_empty(const struct text *text) {
    return text->at == text->end;
}
bool text_starts_with(const struct text *text, const char *word);
const char *text_find(const struct text *text, const char *word); /* NULL: it is not there */
void text_trim(struct text *text);                                /* blanks at both ends */

/* Objects and bytes of one line: in use and ever allocated. */
struct read_counts {
    int64_t objects, bytes, all_objects, all_bytes;
};
/* "3: 4160 [5: 5184]", with any number of blanks. */
bool text_take_counts(struct text *text, struct read_counts *counts);

/*
 * What a line of a sampled profile stands for.  Estimates are not whole numbers, values are: what
 * is cut off one line is carried to the next, so the sum of values is the sum of estimates, rounded
 * down once, as jeprof and google-pprof print it.
 */
enum read_sampling {
    READ_EXACT,   /* values are what they are */
    READ_POISSON, /* a mean gap of `rate` bytes: 1 / (1 - exp(-size / rate)) */
    READ_LINEAR,  /* the old way: rate / size where the size is less */
};
enum { HEAP_ALLOC_OBJECTS, HEAP_ALLOC_SPACE, HEAP_INUSE_OBJECTS, HEAP_INUSE_SPACE, HEAP_TYPES };
struct read_scale {
    enum read_sampling sampling;
    double rate;
    double carries[HEAP_TYPES]; /* less than one each */
};
/* The factor that scales a pair of these objects and bytes. */
double read_factor(const struct read_scale *scale, int64_t objects, int64_t bytes);
/* All four values of a line, in the order of the types. */
void read_scale_line(struct read_scale *scale, const struct read_counts *counts,
                     int64_t values[HEAP_TYPES]);

/* What a reader returns: the profile or, where that is not good, NULL after freeing it. */
struct profile *read_result(struct profile *profile, bool is_good);

/* The stack that is being read, and where its locations come from. */
struct read_stack {
    struct profile *profile;
    const struct read_maps *maps;
    uint32_t *locations;
    uint32_t depth, room;
};
void read_stack_push(struct read_stack *stack, uint64_t address);
/* "0x401136 0x4011b5": return addresses; each location is one byte earlier, but see
 * READ_LEAF_IS_CALL.  False: something else. */
bool read_stack_take(struct read_stack *stack, struct text addresses);

/* The four types of a heap profile, in this order, and which is shown first. */
void read_add_heap_types(struct profile *profile, bool has_alloc);
/* A label "bytes": the mean size of the objects. */
struct profile_label read_size_label(struct profile *profile, const struct read_counts *counts);

/* The line of the maps that says: the first address of a stack already lies inside the call.  Our
 * writers do that for readers in Perl, which subtract nothing there; others skip the line. */
#define READ_LEAF_IS_CALL "leaf=call"

/*
 * Mappings: lines as in /proc/PID/maps, or short ones,
 *
 *      00400000-00402000 r-xp 00000000 08:01 131 /bin/demo
 *      00400000-00402000 /bin/demo (@1000) 0011aabb
 *
 * Those that are executable become mappings of the profile, the program first; other lines are ignored.
 */
struct read_maps {
    const struct profile *profile;
    uint32_t *by_start; /* mappings in the order of their addresses */
    uint32_t count;
    bool leaf_is_call; /* READ_LEAF_IS_CALL was there */
};
void read_maps_take(struct read_maps *maps, struct profile *profile, struct text text);
uint32_t read_maps_find(const struct read_maps *maps, uint64_t address);
void read_maps_free(struct read_maps *maps);

/* Cuts a legacy text in two: what comes before the line MAPPED_LIBRARIES:, and what follows. */
struct text text_split_maps(struct text *text);
