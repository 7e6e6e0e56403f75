/* SPDX-License-Identifier: MIT
 *
 * ctl.h - what a row of ctl.def is, and what the functions behind the rows may use.
 *
 * A function behind a name deals with values only: ctl.c refuses writes to a leaf that cannot be
 * written, checks lengths and sets *oldlenp.  Rows whose access is OWN_... do all this themselves,
 * with ctl_take_new, ctl_verify_old and ctl_put_old, because their input and output have different
 * types.
 *
 * Threads     Functions are called from any thread, with no lock held.
 */
#pragma once

#include "base/value.h"

enum ctl_access {
    CTL_READ,
    CTL_BOTH,
    CTL_WRITE, /* newp may be NULL */
    CTL_GIVE,  /* newp may not be NULL */
    CTL_RUN,
    CTL_OWN_READ, /* the function does everything; the three differ for the manual only */
    CTL_OWN_WRITE,
    CTL_OWN_BOTH,
};

struct ctl_call;
typedef int ctl_function(struct ctl_call *call);

struct ctl_row {
    const char *path; /* dotted; <i> and <j> are index words, <other> is a family of names */
    enum value_type type;
    enum ctl_access access;
    ctl_function *function;
    const char *help;
};

/* One name of a family. */
struct ctl_member {
    const char *name; /* NULL: there is none of this number */
    enum value_type type;
    size_t offset; /* in the struct of counters, or the number of the row of options */
    const char *help;
};

enum { CTL_MOST_WORDS = 3 };

struct ctl_call {
    const struct ctl_row *row;
    size_t word[CTL_MOST_WORDS]; /* index words and numbers of members, in the order of the path */
    struct ctl_member member;    /* of the last family in the path */
    bool writes;                 /* take `value`; otherwise fill it */
    bool given;                  /* CTL_WRITE: there is a new value */
    union value value;
    void *oldp;
    size_t *oldlenp;
    void *newp;
    size_t newlen;
};

/* Gives the caller a value, if it wants one.  If its length differs, copies what fits and returns
 * EINVAL. */
int ctl_put_old(struct ctl_call *call, const void *value, size_t size);

/* EINVAL, with *oldlenp 0, unless the caller wants exactly `size` bytes. */
int ctl_verify_old(struct ctl_call *call, size_t size);

/* Reads the caller's new value, if there is one; EINVAL if its length differs. */
int ctl_take_new(struct ctl_call *call, void *value, size_t size);

/* A leaf that tally does not offer: ENOENT. */
ctl_function ctl_not_offered;

/* Families: ctl_family.c.  -1 where a path has a plain word or an index. */
int ctl_family_find(const char *placeholder, size_t length);
size_t ctl_family_count(int family);
struct ctl_member ctl_family_member(int family, size_t number);

/* The value of an option by name; false if there is no such option. */
bool ctl_option(const char *name, union value *value);

/* The row of a name that is a leaf, or NULL. */
const struct ctl_row *ctl_find(const char *name);

/* Families as tables; each ends with a member without a name. */
extern const struct ctl_member ctl_totals[] HIDDEN;
extern const struct ctl_member ctl_arena_figures[] HIDDEN;
extern const struct ctl_member ctl_kinds[] HIDDEN;
extern const struct ctl_member ctl_bins[] HIDDEN;
extern const struct ctl_member ctl_lextents[] HIDDEN;
extern const struct ctl_member ctl_extents[] HIDDEN;
extern const struct ctl_member ctl_mutexes[] HIDDEN;

/* All rows, for whoever lists them, and the names of types. */
extern const struct ctl_row ctl_rows[] HIDDEN;
size_t ctl_row_count(void);
const char *ctl_type_name(enum value_type type);
size_t ctl_type_size(enum value_type type);

#define CTL(path, type, access, function, help) ctl_function function;
#define CTL_INSIDE(start, why)
#include "control/ctl.def"
#undef CTL
#undef CTL_INSIDE
