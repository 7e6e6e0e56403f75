/* SPDX-License-Identifier: MIT
 *
 * verdicts.h - what `tally check` found, and how it is printed for people and for machines.
 */
#pragma once

#include "profile/figure.h"

/* The site that most of a sum came from. */
struct verdict_place {
    char *name, *file; /* NULL: unknown */
    uint32_t line;
};

struct verdict {
    const char *name; /* "leaks" */
    bool is_ok;
    enum figure_verdict judgement;
    char text[160];   /* "95.9 MiB > 0" */
    char detail[160]; /* "0.62 -> 0.98 GiB"; "" where the site says it */
    struct figure figure;
    double limit;
    const char *unit;
    struct verdict_place site;
};

/* One for each limit. */
struct verdicts {
    struct verdict rows[5];
    size_t count, failures;
};

/* The formats, in the order of verdicts_print's number. */
#define VERDICT_FORMATS "text|json|github|junit"

/* To a new file, or to the standard output for NULL; returns the exit code of the command. */
int verdicts_print(const struct verdicts *all, unsigned format, const char *path);
void verdicts_free(struct verdicts *all);
