/* SPDX-License-Identifier: MIT
 *
 * site.h - the places of a program that allocate or compute, with their values in a profile.
 *
 * A site is the innermost frame of a stack: after select_apply() the first one that is not an allocator's own.
 * Two frames are the same site where they are the same line of the same function or, without names, the same
 * address of the same file.  A sample without a stack belongs to no site.  The summary of a run, report --sites,
 * check and leak-check all count these; --by makes report count functions, files or modules instead.
 */
#pragma once

#include "common/keys.h"
#include "profile/interval.h"
#include "select/select.h"

struct site {
    uint32_t location;                  /* its innermost line is the frame */
    uint32_t sample;                    /* the heaviest one, whose stack is shown for all */
    const char *name;                   /* of the function, or "" */
    const char *label;                  /* the text of its label, or "" */
    int64_t value;                      /* of the type asked for */
    const int64_t *values;              /* of all types */
    const struct interval_facts *facts; /* the same: how sure they are */
};

/* The heaviest first. */
struct sites {
    struct site *rows;
    uint32_t count;
    int64_t *values;
    struct interval_facts *facts;
};

/* Every site that has a value other than 0 in any type.  With a label, samples whose texts of it
 * differ are different sites.  `facts` are those of all samples and types (estimate_all); NULL: none
 * are wanted. */
void sites_collect(struct sites *sites, const struct profile *profile, uint32_t type,
                   enum select_by by, const char *label, const struct interval_facts *facts);
void sites_free(struct sites *sites);

/* The number of a frame's group: equal for two frames that `by` does not tell apart. */
uint32_t site_number(struct keys *keys, const struct profile *profile, uint32_t location,
                     uint32_t line, enum select_by by);

/* "account_load (account.c:140)", "libfoo.so+0x1234", safe for terminals. */
enum { SITE_TEXT_BYTES = 256 };
void site_text(const struct profile *profile, uint32_t location, uint32_t line,
               char text[SITE_TEXT_BYTES]);
