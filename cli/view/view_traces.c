/* SPDX-License-Identifier: MIT
 *
 * view_traces.c - whole stacks, the heaviest first, each with its labels.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "profile/estimate.h"
#include "view/view.h"

enum { OWN_ROWS = 10 };

static void print_labels(const struct view *view, const struct profile_sample *sample) {
    const char *before = "   ";
    for (uint32_t i = 0; i < sample->label_count; i++) {
        const struct profile_label *label = &view->profile->labels[sample->labels + i];
        if (estimate_is_label(label)) {
            continue;
        }
        fprintf(view->out, "%s%s: ", before, safe_text(label->key));
        before = ", ";
        if (label->text != NULL) {
            fputs(safe_text(label->text), view->out);
        } else {
            fprintf(view->out, "%" PRId64 "%s%s", label->number,
                    label->unit != NULL && label->unit[0] != '\0' ? " " : "",
                    label->unit != NULL ? safe_text(label->unit) : "");
        }
    }
}

static struct view_sum sum_of(const struct view *view, uint32_t sample, uint32_t type) {
    struct view_sum sum = {0};
    view_add(view, &sum, sample, type);
    return sum;
}

static void print_trace(const struct view *view, uint32_t index, uint32_t *slots) {
    const struct profile_sample *sample = &view->profile->samples[index];
    int64_t value = profile_value(view->profile, index, view->type);
    fprintf(view->out, "\n%s %s", view_figure(view, view->type, sum_of(view, index, view->type)),
            view_share(view, value));
    if (view->partner != PROFILE_NONE) {
        int64_t partner = profile_value(view->profile, index, view->partner);
        bool is_space = strcmp(view->profile->types[view->type].unit, "bytes") == 0;
        fprintf(view->out, " in %s%s",
                view_figure(view, view->partner, sum_of(view, index, view->partner)),
                is_space ? (partner == 1 ? " block" : " blocks") : "");
    }
    print_labels(view, sample);
    fputc('\n', view->out);
    uint32_t count = view_unroll(view, index, slots);
    struct view_grid grid = {.columns = "lll"};
    for (uint32_t i = 0; i < count; i++) {
        view_grid_put(&grid, " ");
        view_grid_put(&grid, view_name(view, slots[i]));
        view_grid_put(&grid, view_place(view, slots[i]));
    }
    view_grid_print(&grid, view->out);
    if (count == 0) {
        fputs("     (no stack)\n", view->out);
    }
}

bool view_traces(struct view *view) {
    const struct profile *profile = view->profile;
    view_index(view);
    struct view_row *rows = must_alloc(((size_t)profile->sample_count + 1) * sizeof *rows);
    uint32_t *slots = must_alloc(view->deepest * sizeof *slots);
    size_t count = 0, most = view_most_rows(view, OWN_ROWS);
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        int64_t value = profile_value(profile, i, view->type);
        if (value != 0 && !view_is_small(view, value, 0)) {
            rows[count++] = (struct view_row){value, 0, "", i};
        }
    }
    view_sort(rows, count);
    for (size_t i = 0; i < count && i < most; i++) {
        print_trace(view, rows[i].id, slots);
    }
    if (count > most) {
        fputc('\n', view->out);
        view_print_more(view, count - most, "(-n 0 shows all)");
    }
    free(slots);
    free(rows);
    view_release(view);
    return true;
}
