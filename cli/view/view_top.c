/* SPDX-License-Identifier: MIT
 *
 * view_top.c - the table of functions by weight; in a comparison, what grew and what went.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/glyph.h"
#include "view/view.h"

enum { OWN_ROWS = 30 };

static void put_site(struct view_grid *grid, const struct view *view,
                     const struct view_weight *weight) {
    view_grid_put(grid, view_name(view, weight->slot));
    view_grid_put(grid, weight->has_many_lines ? view_place_in(view, weight->slot)
                                               : view_place(view, weight->slot));
}

/* Objects beside bytes, or bytes beside objects, and the mean size either way. */
static void put_partner(struct view_grid *grid, const struct view *view,
                        const struct view_weight *weight) {
    if (weight->partner.value == 0) {
        view_grid_put(grid, "");
        view_grid_put(grid, "");
        return;
    }
    bool is_space = strcmp(view->profile->types[view->type].unit, "bytes") == 0;
    double flat = (double)weight->flat.value, partner = (double)weight->partner.value;
    double mean = is_space ? flat / partner : partner / flat;
    view_grid_put(grid, view_figure(view, view->partner, weight->partner));
    bool is_number = isfinite(mean) && fabs(mean) < 9e18;
    view_grid_put(grid, is_number ? size_text((int64_t)(mean + 0.5)) : "");
}

static void put_heads(struct view_grid *grid, const char *const *heads) {
    for (; *heads != NULL; heads++) {
        view_grid_put(grid, *heads);
    }
}

static void print_report(const struct view *view, const struct view_weight *weights,
                         const struct view_row *rows, size_t count) {
    bool has_partner = view->partner != PROFILE_NONE;
    bool is_space = strcmp(view->profile->types[view->type].unit, "bytes") == 0;
    uint8_t *lifetimes = view_lifetime_find(view);
    char kinds[16];
    snprintf(kinds, sizeof kinds, "rrrr%s%sll", has_partner ? "rr" : "",
             lifetimes != NULL ? "r" : "");
    struct view_grid grid = {.columns = kinds};
    put_heads(&grid, (const char *const[]){"flat", "flat%", "cum", "cum%", NULL});
    if (has_partner) {
        put_heads(&grid, (const char *const[]){is_space ? "blocks" : "bytes", "avg", NULL});
    }
    if (lifetimes != NULL) {
        view_grid_put(&grid, "lifetime");
    }
    put_heads(&grid, (const char *const[]){"site", "", NULL});
    for (size_t i = 0; i < count; i++) {
        const struct view_weight *weight = &weights[rows[i].id];
        view_grid_put(&grid, view_figure(view, view->type, weight->flat));
        view_grid_put(&grid, view_share(view, weight->flat.value));
        view_grid_put(&grid, view_figure(view, view->type, weight->cum));
        view_grid_put(&grid, view_share(view, weight->cum.value));
        if (has_partner) {
            put_partner(&grid, view, weight);
        }
        if (lifetimes != NULL) {
            view_grid_put(&grid, view_lifetime_text(lifetimes[rows[i].id]));
        }
        put_site(&grid, view, weight);
    }
    view_grid_print(&grid, view->out);
    free(lifetimes);
}

/* "new", "gone", or the change in percent. */
static const char *change_text(int64_t change, int64_t before) {
    if (before == 0) {
        return "new";
    }
    if (profile_sum(before, change) == 0) {
        return "gone";
    }
    double percent = 100 * (double)change / fabs((double)before);
    return ring_text("%s%.0f %%", change < 0 ? glyph(GLYPH_MINUS) : "+", fabs(percent));
}

static void print_comparison(const struct view *view, const struct view_weight *weights,
                             const struct view_row *rows, size_t count) {
    struct view_grid grid = {.columns = "rlll"};
    bool by_cum = view->select->by_cum;
    for (size_t i = 0; i < count; i++) {
        const struct view_weight *weight = &weights[rows[i].id];
        struct view_sum change = by_cum ? weight->cum : weight->flat;
        struct view_sum before = by_cum ? weight->base_cum : weight->base_flat;
        view_grid_put(&grid, view_figure(view, view->type, change));
        view_grid_put(&grid, change_text(change.value, before.value));
        put_site(&grid, view, weight);
    }
    view_grid_print(&grid, view->out);
}

bool view_top(struct view *view) {
    view_index(view);
    struct view_weight *weights = view_weigh(view);
    size_t count, most = view_most_rows(view, OWN_ROWS);
    struct view_row *rows = view_rows(view, weights, &count);
    bool is_comparison = view->base != PROFILE_NONE;
    while (is_comparison && count > 0 && rows[count - 1].value == 0) {
        count--; /* unchanged rows are not shown */
    }
    size_t shown = count < most ? count : most;
    if (is_comparison) {
        print_comparison(view, weights, rows, shown);
    } else {
        print_report(view, weights, rows, shown);
    }
    view_print_more(view, count - shown, "(-n 0 shows all)");
    free(rows);
    free(weights);
    view_release(view);
    return true;
}
