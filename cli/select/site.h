/* SPDX-License-Identifier: MIT
 *
 * site.h - the places of a program that allocate, or compute, and what a profile says of each.
 *
 * A site is the innermost frame of a stack: after select_apply() the first one that is not an allocator's own.
 * Two frames are the same site where they are the same line of the same function or, without names, the same
 * address of the same file.  A sample without a stack belongs to no site.  The summary of a run, report --sites,
 * check and leak-check all count these; --by makes report count functions, files or modules instead.
 */
#pragma once

#include "common/keys.h"
#include "select/select.h"

struct site {
    uint32_t location;     /* its innermost line is the frame */
    uint32_t sample;       /* the heaviest, whose stack stands for the others */
    const char *name;      /* of the function, or "" */
    const char *label;     /* its text, or "" */
    int64_t value;         /* of the type that was asked for */
    const int64_t *values; /* of all types */
};

/* The heaviest first. */
struct sites {
    struct site *rows;
    uint32_t count;
    int64_t *values;
};

/* Every site with a value of any type other than 0.  Where a label is named, samples with another text of it
 * are another site. */
void sites_collect(struct sites *sites, const struct profile *profile, uint32_t type,
                   enum select_by by, const char *label);
void sites_free(struct sites *sites);

/* The number of what a frame belongs to: equal for two frames that are one as `by` sees them. */
uint32_t site_number(struct keys *keys, const struct profile *profile, uint32_t location,
                     uint32_t line, enum select_by by);

/* "account_load (account.c:140)", "libfoo.so+0x1234", safe for terminals. */
enum { SITE_TEXT_BYTES = 256 };
void site_text(const struct profile *profile, uint32_t location, uint32_t line,
               char text[SITE_TEXT_BYTES]);
