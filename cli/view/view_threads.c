/* SPDX-License-Identifier: MIT
 *
 * view_threads.c - what each thread computed and allocated, a row per name.
 *
 * Threads of one name are one row, as a pool of workers is one thing to whoever looks.  Memory and time come
 * from two profiles of the same run; a column is a type of one of them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "profile/estimate.h"
#include "view/view.h"

enum { COLUMNS_MOST = 5, OWN_ROWS = 30 };

struct column {
    const char *title;
    const struct profile *profile;
    uint32_t type;
    int64_t total;
    struct estimate estimate;
};

struct row {
    const char *name; /* a label's, or "" */
    struct view_sum sums[COLUMNS_MOST];
};

struct table {
    struct column columns[COLUMNS_MOST];
    uint32_t column_count;
    struct row *rows;
    uint32_t row_count, row_room;
};

static void add_column(struct table *table, const char *title, const struct profile *profile,
                       const char *type) {
    uint32_t index = profile_find_type(profile, type);
    if (index != PROFILE_NONE && table->column_count < COLUMNS_MOST) {
        table->columns[table->column_count++] = (struct column){
            title, profile, index, profile_total(profile, index), estimate_of(profile, index)};
    }
}

/* Time first, then memory; a profile of something else has the metric alone. */
static void choose_columns(const struct view *view, struct table *table) {
    if (view->cpu != NULL) {
        add_column(table, "cpu", view->cpu, "cpu");
    }
    add_column(table, "cpu", view->profile, "cpu");
    add_column(table, "allocated", view->profile, "alloc_space");
    add_column(table, "live", view->profile, "inuse_space");
    add_column(table, "at peak", view->profile, "peak_space");
    if (table->column_count == 0) {
        const char *name = view->profile->types[view->type].name;
        add_column(table, name, view->profile, name);
    }
}

/* The text of the label "thread", else the system's number of the thread. */
static const char *thread_of(const struct profile *profile, uint32_t sample, char number[24]) {
    const struct profile_sample *row = &profile->samples[sample];
    const char *name = "";
    for (uint32_t i = 0; i < row->label_count; i++) {
        const struct profile_label *label = &profile->labels[row->labels + i];
        bool is_id = strcmp(label->key, "thread_id") == 0;
        if (strcmp(label->key, "thread") == 0 && label->text != NULL) {
            return label->text;
        }
        if (is_id && label->text == NULL) {
            snprintf(number, 24, "%" PRId64, label->number);
            name = number;
        } else if (is_id) {
            name = label->text;
        }
    }
    return name;
}

static struct row *row_of(struct table *table, const char *name) {
    for (uint32_t i = 0; i < table->row_count; i++) {
        if (strcmp(table->rows[i].name, name) == 0) {
            return &table->rows[i];
        }
    }
    table->rows =
        must_have_room(table->rows, table->row_count, &table->row_room, sizeof *table->rows);
    table->rows[table->row_count] = (struct row){.name = must_copy(name)};
    return &table->rows[table->row_count++];
}

static void add_up(struct table *table, uint32_t index) {
    const struct column *column = &table->columns[index];
    for (uint32_t i = 0; i < column->profile->sample_count; i++) {
        char number[24];
        int64_t value = profile_value(column->profile, i, column->type);
        if (value != 0) {
            struct row *row = row_of(table, thread_of(column->profile, i, number));
            row->sums[index].value = profile_sum(row->sums[index].value, value);
            interval_add(&row->sums[index].facts,
                         estimate_sample(&column->estimate, column->profile, i));
        }
    }
}

/* By the first column, then the next, then the name. */
static int compare_rows(const void *a, const void *b) {
    const struct row *left = a, *right = b;
    for (int i = 0; i < COLUMNS_MOST; i++) {
        if (left->sums[i].value != right->sums[i].value) {
            return left->sums[i].value > right->sums[i].value ? -1 : 1;
        }
    }
    return strcmp(left->name, right->name);
}

static const char *column_value(const struct view *view, const struct column *column,
                                struct view_sum sum) {
    struct view of_column = *view;
    of_column.profile = column->profile;
    return view_figure(&of_column, column->type, sum);
}

static const char *column_share(const struct view *view, const struct column *column,
                                int64_t value) {
    struct view of_column = *view;
    of_column.whole = column->total;
    return view_share(&of_column, value);
}

static void print_table(const struct view *view, const struct table *table, size_t shown) {
    char alignment[2 * COLUMNS_MOST + 2] = "";
    struct view_grid grid = {.columns = alignment};
    for (uint32_t i = 0; i < table->column_count; i++) {
        strcat(alignment, "rr");
        view_grid_put(&grid, table->columns[i].title);
        view_grid_put(&grid, "%");
    }
    strcat(alignment, "l");
    view_grid_put(&grid, "thread");
    for (size_t row = 0; row < shown; row++) {
        for (uint32_t i = 0; i < table->column_count; i++) {
            const struct column *column = &table->columns[i];
            view_grid_put(&grid, column_value(view, column, table->rows[row].sums[i]));
            view_grid_put(&grid, column_share(view, column, table->rows[row].sums[i].value));
        }
        const char *name = table->rows[row].name;
        view_grid_put(&grid, name[0] != '\0' ? safe_text(name) : "(no name)");
    }
    view_grid_print(&grid, view->out);
}

bool view_threads(struct view *view) {
    struct table table = {.row_count = 0};
    choose_columns(view, &table);
    for (uint32_t i = 0; i < table.column_count; i++) {
        add_up(&table, i);
    }
    if (table.row_count > 0) {
        qsort(table.rows, table.row_count, sizeof *table.rows, compare_rows);
    }
    size_t most = view_most_rows(view, OWN_ROWS);
    size_t shown = table.row_count < most ? table.row_count : most;
    print_table(view, &table, shown);
    view_print_more(view, table.row_count - shown, "(-n 0 shows all)");
    for (uint32_t i = 0; i < table.row_count; i++) {
        free((void *)table.rows[i].name);
    }
    free(table.rows);
    return true;
}
