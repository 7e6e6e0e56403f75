/* SPDX-License-Identifier: MIT
 *
 * view_grid.c - cells in columns, each as wide as its widest.
 */
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "view/view.h"

enum { GRID_GAP = 2, GRID_MOST_PADDING = 48 };

static size_t text_width(const char *text) {
    size_t width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

void view_grid_put(struct view_grid *grid, const char *text) {
    if (grid->count == grid->room) {
        grid->room = grid->room > 0 ? grid->room * 2 : 64;
        grid->cells = must_grow(grid->cells, grid->room * sizeof *grid->cells);
    }
    size_t bytes = strlen(text) + 1;
    grid->cells[grid->count] = must_alloc(bytes);
    memcpy(grid->cells[grid->count++], text, bytes);
}

static void print_blanks(FILE *out, size_t count) {
    while (count-- > 0) {
        fputc(' ', out);
    }
}

static void print_cells(const struct view_grid *grid, char *const *cells, const size_t *widths,
                        FILE *out) {
    const char *columns = grid->columns;
    size_t debt = 0; /* blanks before the next cell, if there is one */
    for (size_t i = 0; columns[i] != '\0'; i++) {
        size_t gap = i == 0 && grid->is_flush ? 0 : GRID_GAP;
        size_t width = text_width(cells[i]);
        size_t padding = width < widths[i] ? widths[i] - width : 0;
        size_t before = columns[i] == 'r' ? padding : 0;
        if (width > 0) {
            print_blanks(out, debt + gap + before);
            fputs(cells[i], out);
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
        size_t width = text_width(grid->cells[i]);
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
