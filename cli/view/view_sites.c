/* SPDX-License-Identifier: MIT
 *
 * view_sites.c - one row for each place that allocates, with every metric of the profile side by side.
 */
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "select/site.h"
#include "view/view.h"

enum { OWN_ROWS = 30, MOST_COLUMNS = 60 };

/* A comparison has the values of the base behind its columns. */
static bool is_shown(const struct view *view, const struct site *site, uint32_t columns) {
    bool has_value = false;
    for (uint32_t type = 0; type < columns; type++) {
        has_value |= site->values[type] != 0;
    }
    return has_value && !view_is_small(view, site->value, 0);
}

static void put_site(const struct view *view, struct view_grid *grid, const struct site *site,
                     uint32_t columns, const uint8_t *lifetimes) {
    uint32_t slot = view->first_slot[site->location];
    for (uint32_t type = 0; type < columns; type++) {
        struct view_sum sum = {.value = site->values[type]};
        if (site->facts != NULL) {
            sum.facts = site->facts[type];
        }
        view_grid_put(grid, view_figure(view, type, sum));
    }
    if (lifetimes != NULL) {
        view_grid_put(grid, view_lifetime_text(lifetimes[view->slot_node[slot]]));
    }
    view_grid_put(grid, view_name(view, slot));
    view_grid_put(grid, view_place(view, slot));
}

bool view_sites(struct view *view) {
    uint32_t columns = view->columns < MOST_COLUMNS ? view->columns : MOST_COLUMNS;
    size_t count = 0, most = view_most_rows(view, OWN_ROWS);
    struct sites sites;
    view->by = view->by == BY_OWN ? BY_LINES : view->by;
    view_index(view);
    sites_collect(&sites, view->profile, view->type, view->by, NULL, view->facts);
    uint8_t *lifetimes = view_lifetime_find(view);
    char kinds[MOST_COLUMNS + 4];
    memset(kinds, 'r', columns);
    memcpy(kinds + columns, lifetimes != NULL ? "rll" : "ll", lifetimes != NULL ? 4 : 3);
    struct view_grid grid = {.columns = kinds};
    for (uint32_t type = 0; type < columns; type++) {
        view_grid_put(&grid, safe_text(view->profile->types[type].name));
    }
    if (lifetimes != NULL) {
        view_grid_put(&grid, "lifetime");
    }
    view_grid_put(&grid, "site");
    view_grid_put(&grid, "");
    for (uint32_t i = 0; i < sites.count; i++) {
        if (is_shown(view, &sites.rows[i], columns) && count++ < most) {
            put_site(view, &grid, &sites.rows[i], columns, lifetimes);
        }
    }
    view_grid_print(&grid, view->out);
    view_print_more(view, count > most ? count - most : 0, "sites (-n 0 shows all)");
    free(lifetimes);
    sites_free(&sites);
    view_release(view);
    return true;
}
