/* SPDX-License-Identifier: MIT
 *
 * view_grid.c - cells in columns, each as wide as its widest.
 */
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "view/view.h"

enum { GRID_GAP = 2, GRID_MOST_PADDING = 48 };

void view_grid_put(struct view_grid *grid, const char *text) {
    grid->cells = must_have_room(grid->cells, grid->count, &grid->room, sizeof *grid->cells);
    grid->cells[grid->count++] = must_copy(text);
}

static void print_cells(const struct view_grid *grid, char *const *cells, const size_t *widths,
                        FILE *out) {
    const char *columns = grid->columns;
    size_t debt = 0; /* blanks before the next cell, if there is one */
    for (size_t i = 0; columns[i] != '\0'; i++) {
        size_t gap = i == 0 && grid->is_flush ? 0 : GRID_GAP;
        size_t width = text_columns(cells[i]);
        size_t padding = width < widths[i] ? widths[i] - width : 0;
        size_t before = columns[i] == 'r' ? padding : 0;
        if (width > 0) {
            fprintf(out, "%*s%s", (int)(debt + gap + before), "", cells[i]);
            debt = padding - before;
        } else {
            debt += gap + padding;
        }
    }
    fputc('\n', out);
}

void view_grid_print(struct view_grid *grid, FILE *out) {
    size_t columns = strlen(grid->columns), widths[64] = {0};
    for (size_t i = 0; i < grid->count; i++) {
        size_t width = text_columns(grid->cells[i]);
        size_t *widest = &widths[i % columns];
        bool is_wild = grid->columns[i % columns] == 'l' && width > GRID_MOST_PADDING;
        *widest = width > *widest && !is_wild ? width : *widest;
    }
    for (size_t i = 0; i + columns <= grid->count; i += columns) {
        print_cells(grid, grid->cells + i, widths, out);
    }
    for (size_t i = 0; i < grid->count; i++) {
        free(grid->cells[i]);
    }
    free(grid->cells);
    *grid = (struct view_grid){.columns = grid->columns};
}
