/* SPDX-License-Identifier: MIT
 *
 * growth.c - the slope of each place over the snapshots of a run.
 *
 * A cache that fills and stays grows at the beginning only, so the first quarter of a run does not count.  In
 * what is left, a place grows if a straight line describes it well, it ends higher than it began by a tenth
 * and by 64 KiB, and it did not shrink from one moment to the next more often than one time in four.
 */
#include "view/growth.h"

#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "names/symbolize.h"
#include "select/site.h"

enum { MOMENTS_MOST = 8, LEAST_BYTES = 64 << 10 };
static const double well = 0.75; /* of the variance that the line explains */

/* A place, and what it had at each moment. */
struct series {
    char place[SITE_TEXT_BYTES];
    double bytes[MOMENTS_MOST];
};

struct table {
    struct series *rows;
    uint32_t count, room;
};

static struct series *find_row(struct table *table, const char *place) {
    for (uint32_t i = 0; i < table->count; i++) {
        if (strcmp(table->rows[i].place, place) == 0) {
            return &table->rows[i];
        }
    }
    table->rows = must_have_room(table->rows, table->count, &table->room, sizeof *table->rows);
    struct series *row = &table->rows[table->count++];
    memset(row, 0, sizeof *row);
    snprintf(row->place, sizeof row->place, "%s", place);
    return row;
}

static void add_moment(struct table *table, const struct growth_moment *moment, unsigned at) {
    uint32_t type = profile_find_type(moment->profile, "inuse_space");
    struct sites sites = {0};
    if (type != PROFILE_NONE) {
        sites_collect(&sites, moment->profile, type, BY_LINES, NULL, NULL);
    }
    for (uint32_t i = 0; i < sites.count; i++) {
        char place[SITE_TEXT_BYTES];
        if (sites.rows[i].value > 0) {
            site_text(moment->profile, sites.rows[i].location, 0, place);
            find_row(table, place)->bytes[at] += (double)sites.rows[i].value;
        }
    }
    sites_free(&sites);
}

/* Bytes for each nanosecond; 0 where it does not grow. */
static double slope_of(const struct series *series, const struct growth_moment *moments,
                       unsigned count) {
    double mean_t = 0, mean = 0, both = 0, of_t = 0, of_bytes = 0;
    unsigned shrinks = 0;
    for (unsigned i = 0; i < count; i++) {
        mean_t += (double)moments[i].t_ns / count;
        mean += series->bytes[i] / count;
        shrinks += i > 0 && series->bytes[i] < series->bytes[i - 1];
    }
    for (unsigned i = 0; i < count; i++) {
        double t = (double)moments[i].t_ns - mean_t, bytes = series->bytes[i] - mean;
        both += t * bytes;
        of_t += t * t;
        of_bytes += bytes * bytes;
    }
    double rise = series->bytes[count - 1] - series->bytes[0];
    bool grows = of_t > 0 && of_bytes > 0 && both > 0 && both * both >= well * of_t * of_bytes &&
                 rise >= LEAST_BYTES && rise >= 0.1 * series->bytes[count - 1] &&
                 4 * shrinks <= count;
    return grows ? both / of_t : 0;
}

/* Inserts into the list, in order. */
static unsigned enter(struct growth found[GROWTH_MOST], unsigned count, const struct growth *one) {
    unsigned at = count < GROWTH_MOST ? count : GROWTH_MOST;
    while (at > 0 && found[at - 1].per_hour < one->per_hour) {
        if (at < GROWTH_MOST) {
            found[at] = found[at - 1];
        }
        at--;
    }
    if (at < GROWTH_MOST) {
        found[at] = *one;
        return count < GROWTH_MOST ? count + 1 : GROWTH_MOST;
    }
    return count;
}

unsigned growth_find(const struct growth_moment *moments, unsigned count,
                     struct growth found[GROWTH_MOST]) {
    const double hour_ns = 3600e9;
    struct table table = {0};
    unsigned found_count = 0;
    count = count < MOMENTS_MOST ? count : MOMENTS_MOST;
    for (unsigned i = 0; i < count; i++) {
        add_moment(&table, &moments[i], i);
    }
    for (uint32_t i = 0; count > 1 && i < table.count; i++) {
        struct growth one = {.per_hour = hour_ns * slope_of(&table.rows[i], moments, count),
                             .bytes = (int64_t)table.rows[i].bytes[count - 1]};
        snprintf(one.place, sizeof one.place, "%s", table.rows[i].place);
        if (one.per_hour > 0) {
            found_count = enter(found, found_count, &one);
        }
    }
    free(table.rows);
    return found_count;
}

/* The snapshot nearest to a moment. */
static uint32_t nearest(const struct read_run *run, uint64_t t_ns) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < run->moment_count; i++) {
        uint64_t distance =
            run->moments[i].t_ns > t_ns ? run->moments[i].t_ns - t_ns : t_ns - run->moments[i].t_ns;
        uint64_t least = run->moments[best].t_ns > t_ns ? run->moments[best].t_ns - t_ns
                                                        : t_ns - run->moments[best].t_ns;
        best = distance < least ? i : best;
    }
    return best;
}

unsigned growth_of_run(struct read_run *run, struct growth found[GROWTH_MOST]) {
    struct growth_moment moments[MOMENTS_MOST];
    char why[READ_WHY_BYTES];
    unsigned count = 0;
    uint32_t before = PROFILE_NONE;
    if (run->moment_count < 3) {
        return 0;
    }
    uint64_t end = run->moments[run->moment_count - 1].t_ns, first = end / 4;
    for (unsigned i = 0; i < MOMENTS_MOST; i++) {
        uint32_t one = nearest(run, first + (end - first) / (MOMENTS_MOST - 1) * i);
        struct profile *profile = one != before ? read_moment(run, one, why) : NULL;
        before = one;
        if (profile != NULL) {
            struct select select = {.metric = "inuse_space"};
            symbolize(profile, &args_symbolize);
            struct profile *visible = select_apply(profile, &select);
            if (visible != NULL) {
                moments[count++] = (struct growth_moment){run->moments[one].t_ns, visible};
            }
        }
    }
    unsigned found_count = count > 2 ? growth_find(moments, count, found) : 0;
    for (unsigned i = 0; i < count; i++) {
        profile_free(moments[i].profile);
    }
    return found_count;
}
