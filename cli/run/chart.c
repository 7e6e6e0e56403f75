/* SPDX-License-Identifier: MIT
 *
 * chart.c - the bytes that a program held over time, in two rows of eighths of a character.
 */
#include "run/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/cli.h"
#include "common/glyph.h"

enum { EIGHTHS = 8 };

/* What is drawn, a value for each column. */
struct series {
    uint64_t values[CHART_MOST];
    unsigned count;
    uint64_t highest;
};

/* The highest live of each column's time; a column without a point takes the one before. */
static void sample_series(const struct read_run *run, struct series *series) {
    uint64_t end = run->points[run->point_count - 1].t_ns + 1;
    uint64_t before = 0;
    uint32_t next = 0;
    series->highest = 1;
    for (unsigned i = 0; i < series->count; i++) {
        uint64_t limit = (uint64_t)((double)end * (i + 1) / series->count);
        uint64_t value = 0;
        uint32_t first = next;
        for (; next < run->point_count && run->points[next].t_ns < limit; next++) {
            before = run->points[next].live;
            value = before > value ? before : value;
        }
        series->values[i] = next > first ? value : before;
        series->highest = value > series->highest ? value : series->highest;
    }
}

/* One row of the chart, counted from the top, as text without blanks at the end. */
static void draw_row(const struct series *series, unsigned row, char *text) {
    size_t at = 0, end = 0;
    unsigned floor = (CHART_ROWS - 1 - row) * EIGHTHS;
    for (unsigned i = 0; i < series->count; i++) {
        double share = (double)series->values[i] / (double)series->highest;
        unsigned height = (unsigned)ceil(share * CHART_ROWS * EIGHTHS);
        unsigned eighths = height > floor ? height - floor : 0;
        eighths = eighths > EIGHTHS ? EIGHTHS : eighths;
        at += (size_t)sprintf(text + at, "%s", glyph_height(eighths));
        end = eighths > 0 ? at : end;
    }
    text[end] = '\0';
}

static void draw_axis(const struct read_run *run, unsigned width, struct chart *chart) {
    char *line = chart->lines[chart->count++];
    int at = sprintf(line, "%*s %s", CHART_LABEL - 2, "0", glyph(GLYPH_ORIGIN));
    for (unsigned i = 0; i < width; i++) {
        at += sprintf(line + at, "%s", glyph(GLYPH_AXIS));
    }
    uint64_t end = run->points[run->point_count - 1].t_ns;
    line = chart->lines[chart->count++];
    const char *last = duration_text(end);
    sprintf(line, "%*s0%*s", CHART_LABEL, "", (int)width - 1, last);
}

void chart_draw(const struct read_run *run, unsigned width, struct chart *chart) {
    struct series series = {.count = width};
    sample_series(run, &series);
    strcpy(chart->lines[chart->count++], "  memory over time");
    for (unsigned row = 0; row < CHART_ROWS; row++) {
        char *line = chart->lines[chart->count++];
        uint64_t level = series.highest * (CHART_ROWS - row) / CHART_ROWS;
        int at = sprintf(line, "%*s  ", CHART_LABEL - 2, size_text((int64_t)level));
        draw_row(&series, row, line + at);
    }
    draw_axis(run, width, chart);
}
