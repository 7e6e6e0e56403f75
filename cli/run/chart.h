/* SPDX-License-Identifier: MIT
 *
 * chart.h - memory over time, as lines of text.
 */
#pragma once

#include "read/read.h"

enum {
    CHART_MOST = 48,  /* columns */
    CHART_LABEL = 12, /* columns in front of them */
    CHART_ROWS = 2,
    CHART_LINE_BYTES = 4 * (CHART_LABEL + CHART_MOST) + 64,
};

struct chart {
    char lines[CHART_ROWS + 3][CHART_LINE_BYTES]; /* a title, the rows, the axis and its ends */
    unsigned count;
};

/* Of a run with two points of statistics or more, in at most CHART_MOST columns. */
void chart_draw(const struct read_run *run, unsigned width, struct chart *chart);
