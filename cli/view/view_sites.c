/* SPDX-License-Identifier: MIT
 *
 * view_sites.c - one row for each place that allocates, with every metric of the profile side by side.
 */
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "view/view.h"

enum { OWN_ROWS = 30, MOST_COLUMNS = 60 };

/* What each node has as a leaf, a row of `columns` values for each. */
static int64_t *weigh_leaves(const struct view *view, uint32_t columns) {
    size_t bytes = ((size_t)view->node_count + 1) * columns * sizeof(int64_t);
    int64_t *values = must_alloc(bytes);
    uint32_t *slots = must_alloc(view->deepest * sizeof *slots);
    memset(values, 0, bytes);
    for (uint32_t i = 0; i < view->profile->sample_count; i++) {
        if (view_unroll(view, i, slots) > 0) {
            int64_t *row = values + (size_t)view->slot_node[slots[0]] * columns;
            for (uint32_t type = 0; type < columns; type++) {
                row[type] = view_sum(row[type], profile_value(view->profile, i, type));
            }
        }
    }
    free(slots);
    return values;
}

static bool is_all_zero(const int64_t *values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (values[i] != 0) {
            return false;
        }
    }
    return true;
}

static struct view_row *sort_leaves(const struct view *view, const struct view_weight *weights,
                                    const int64_t *values, uint32_t columns, size_t *count) {
    struct view_row *rows = must_alloc(((size_t)view->node_count + 1) * sizeof *rows);
    *count = 0;
    for (uint32_t node = 0; node < view->node_count; node++) {
        const int64_t *row = values + (size_t)node * columns;
        if (!is_all_zero(row, columns) && !view_is_small(view, weights[node].flat, 0)) {
            rows[(*count)++] = (struct view_row){weights[node].flat, row[0],
                                                 view_sort_name(view, weights[node].slot), node};
        }
    }
    view_sort(rows, *count);
    return rows;
}

bool view_sites(struct view *view) {
    uint32_t columns = view->columns < MOST_COLUMNS ? view->columns : MOST_COLUMNS;
    view_index(view);
    struct view_weight *weights = view_weigh(view);
    int64_t *values = weigh_leaves(view, columns);
    size_t count, most = view_most_rows(view, OWN_ROWS);
    struct view_row *rows = sort_leaves(view, weights, values, columns, &count);
    char kinds[MOST_COLUMNS + 3];
    memset(kinds, 'r', columns);
    memcpy(kinds + columns, "ll", 3);
    struct view_grid grid = {.columns = kinds};
    for (uint32_t type = 0; type < columns; type++) {
        view_grid_put(&grid, safe_text(view->profile->types[type].name));
    }
    view_grid_put(&grid, "site");
    view_grid_put(&grid, "");
    for (size_t i = 0; i < count && i < most; i++) {
        for (uint32_t type = 0; type < columns; type++) {
            view_grid_put(&grid,
                          view_value(view, type, values[(size_t)rows[i].id * columns + type]));
        }
        view_grid_put(&grid, view_name(view, weights[rows[i].id].slot));
        view_grid_put(&grid, view_place(view, weights[rows[i].id].slot));
    }
    view_grid_print(&grid, view->out);
    view_print_more(view, count > most ? count - most : 0, "sites (-n 0 shows all)");
    free(rows);
    free(values);
    free(weights);
    view_release(view);
    return true;
}
