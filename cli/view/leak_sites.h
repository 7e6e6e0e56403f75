/* SPDX-License-Identifier: MIT
 *
 * leak_sites.h - where leaks come from: the samples of a leak check, suppressed or joined by place.
 */
#pragma once

#include "read/read.h"
#include "select/site.h"
#include "view/growth.h"

enum { LEAK_PATH_BYTES = 600 };

/* What one site lost of one kind, and what only lost objects lead to and these do: `below`, where they are
 * definite.  Of a kind the rows add up to its sum. */
struct leak_site {
    char place[SITE_TEXT_BYTES]; /* "" without a stack */
    char path[LEAK_PATH_BYTES];  /* "a (a.c:1) <- b (b.c:2)", of its largest sample */
    char rule[SITE_TEXT_BYTES];  /* a suppression that would match it */
    uint32_t kind;               /* READ_LEAK_... */
    int64_t objects, bytes;
    int64_t below_objects, below_bytes;
};

struct leak_sites {
    struct leak_site *rows; /* by kind; the largest first, with what is below */
    uint32_t count, room;
};

/* The profile must be symbolized.  `arrow` stands between the frames of a path. */
void leak_sites_collect(struct leak_sites *sites, const struct profile *profile, const char *arrow);
void leak_sites_free(struct leak_sites *sites);

/* Places that grow, without what of them is lost: that is told as a leak.  One most of which is lost is taken out;
 * returns how many are left. */
unsigned leak_sites_leave(const struct leak_sites *sites, struct growth *found, unsigned count);

/* Takes what the rules match out of the profile and the sums, and adds it to the matches. */
struct leak_matches {
    struct {
        char rule[128];
        int64_t objects;
    } rows[16];
    unsigned count;
    int64_t objects;
};
void leak_sites_suppress(struct read_leaks *leaks, const char *rules, struct leak_matches *matches);
