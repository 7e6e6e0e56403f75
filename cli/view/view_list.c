/* SPDX-License-Identifier: MIT
 *
 * view_list.c - source lines of functions that match an expression, with what each line allocated.
 *
 *      account_load  /src/account.c   flat 64.0 MiB  cum 95.9 MiB
 *             .          .   139  if (!a) {
 *      64.0 MiB   64.0 MiB   140      a = malloc(sizeof *a + MAX_BODY);
 *
 * Read next   source.h, which files are read.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "common/cli.h"
#include "common/glyph.h"
#include "common/keys.h"
#include "view/source.h"
#include "view/view.h"

enum { CONTEXT_LINES = 5, TAB_STOPS = 8 };

/* A function in a file. */
struct listed {
    const char *name, *file;
    struct view_sum flat, cum;
    uint32_t seen;            /* the last sample, plus one */
    uint32_t hits, hit_count; /* its part of all hits, once they are in order */
};

/* A line of one of them that was met. */
struct hit {
    uint32_t listed, number;
    struct view_sum flat, cum;
    uint32_t seen;
};

struct list {
    struct view *view;
    bool *is_match; /* of each function of the profile */
    struct keys functions, lines;
    struct listed *listed;
    struct hit *hits; /* at last in order of functions and lines */
    uint32_t listed_room, hit_room;
    struct source source; /* the last that was read, */
    const char *source_file;
};

/* Counting. */

static bool find_functions(struct list *list) {
    const struct profile *profile = list->view->profile;
    regex_t regex;
    if (!select_expression(&regex, "list", list->view->pattern)) {
        return false;
    }
    const char *pattern = list->view->pattern;
    bool is_whole = select_is_whole_name(profile, pattern);
    list->is_match = must_alloc((size_t)profile->function_count + 1);
    for (uint32_t i = 0; i < profile->function_count; i++) {
        list->is_match[i] =
            select_name_matches(profile->functions[i].name, pattern, &regex, is_whole);
    }
    regfree(&regex);
    return true;
}

static struct listed *add_function(struct list *list, const struct profile_function *function,
                                   uint32_t *id) {
    size_t count = list->functions.count;
    *id = keys_add(&list->functions, (uintptr_t)function->name, (uintptr_t)function->file, 0);
    list->listed = must_have_room(list->listed, *id, &list->listed_room, sizeof *list->listed);
    if (*id >= count) {
        list->listed[*id] = (struct listed){.name = function->name, .file = function->file};
    }
    return &list->listed[*id];
}

static struct hit *add_line(struct list *list, uint32_t listed, uint32_t number) {
    size_t count = list->lines.count;
    uint32_t id = keys_add(&list->lines, listed, number, 0);
    list->hits = must_have_room(list->hits, id, &list->hit_room, sizeof *list->hits);
    if (id >= count) {
        list->hits[id] = (struct hit){.listed = listed, .number = number};
    }
    return &list->hits[id];
}

static void count_frame(struct list *list, uint32_t slot, uint32_t sample, bool is_leaf) {
    const struct profile *profile = list->view->profile;
    uint32_t location = list->view->slot_location[slot];
    const struct profile_location *at = &profile->locations[location];
    uint32_t index = slot - list->view->first_slot[location];
    if (index >= at->line_count) {
        return;
    }
    const struct profile_line *line = &profile->lines[at->lines + index];
    if (!list->is_match[line->function]) {
        return;
    }
    const struct view *view = list->view;
    uint32_t id;
    struct listed *listed = add_function(list, &profile->functions[line->function], &id);
    struct hit *hit = add_line(list, id, line->number);
    if (is_leaf) {
        view_add(view, &listed->flat, sample, view->type);
        view_add(view, &hit->flat, sample, view->type);
    }
    if (listed->seen != sample + 1) {
        view_add(view, &listed->cum, sample, view->type);
        listed->seen = sample + 1;
    }
    if (hit->seen != sample + 1) {
        view_add(view, &hit->cum, sample, view->type);
        hit->seen = sample + 1;
    }
}

static void count_samples(struct list *list) {
    uint32_t *slots = must_alloc(list->view->deepest * sizeof *slots);
    for (uint32_t i = 0; i < list->view->profile->sample_count; i++) {
        uint32_t count = view_unroll(list->view, i, slots);
        for (uint32_t j = 0; j < count; j++) {
            count_frame(list, slots[j], i, j == 0);
        }
    }
    free(slots);
}

/* Printing. */

/* Tabs become blanks, since safe_text would show what they are. */
static const char *line_text(const char *line) {
    static char text[2048];
    size_t column = 0;
    for (; *line != '\0' && *line != '\r' && column < sizeof text - TAB_STOPS - 1; line++) {
        if (*line != '\t') {
            text[column++] = *line;
            continue;
        }
        do {
            text[column++] = ' ';
        } while (column % TAB_STOPS != 0);
    }
    text[column] = '\0';
    return safe_text(text);
}

static void put_value(struct view_grid *grid, const struct view *view, struct view_sum sum) {
    view_grid_put(grid, sum.value != 0 ? view_figure(view, view->type, sum) : ".");
}

static void put_line(struct view_grid *grid, const struct view *view, const struct source *source,
                     const struct hit *hit) {
    char number[16];
    snprintf(number, sizeof number, "%" PRIu32, hit->number);
    put_value(grid, view, hit->flat);
    put_value(grid, view, hit->cum);
    view_grid_put(grid, hit->number != 0 ? number : "?");
    bool has_text = hit->number > 0 && hit->number <= source->count;
    view_grid_put(grid, has_text ? line_text(source->lines[hit->number - 1]) : "");
}

static int compare_hits(const void *a_hit, const void *b_hit) {
    const struct hit *a = a_hit, *b = b_hit;
    if (a->listed != b->listed) {
        return a->listed < b->listed ? -1 : 1;
    }
    return (a->number > b->number) - (a->number < b->number);
}

/* The lines around a hit, up to the next one, and a mark where lines are left out. */
static void put_window(struct view_grid *grid, const struct view *view, const struct source *source,
                       const struct hit *hit, uint32_t before, uint32_t after) {
    if (hit->number == 0 || hit->number > source->count) { /* there is nothing around it to show */
        put_line(grid, view, source, hit);
        return;
    }
    uint32_t from = hit->number > CONTEXT_LINES ? hit->number - CONTEXT_LINES : 1;
    uint32_t to = hit->number + CONTEXT_LINES;
    uint32_t gap_end = before + CONTEXT_LINES;
    if (before != 0 && from <= gap_end + 1) {
        from = gap_end + 1; /* the window of the hit before reaches this far */
    } else if (before != 0) {
        const char *const marks[] = {"", "", glyph(GLYPH_MORE), ""};
        for (size_t i = 0; i < 4; i++) {
            view_grid_put(grid, marks[i]);
        }
    }
    for (uint32_t number = from; number < hit->number && number <= source->count; number++) {
        put_line(grid, view, source, &(struct hit){.number = number});
    }
    put_line(grid, view, source, hit);
    uint32_t end = after != 0 && after <= to ? after - 1 : to;
    for (uint32_t number = hit->number + 1; number <= end && number <= source->count; number++) {
        put_line(grid, view, source, &(struct hit){.number = number});
    }
}

/* Neighbours often lie in one file. */
static const struct source *source_of(struct list *list, const char *file) {
    if (list->source_file != file) {
        source_free(&list->source);
        list->source = source_read(&list->view->source_paths, file);
        list->source_file = file;
    }
    return &list->source;
}

static void tell_absence(const struct source *source, const char *file) {
    if (source->is_refused) {
        note(
            "%s is neither a source below this tree nor of the system; --source-path=DIR allows it",
            safe_text(file));
    } else if (source->text == NULL && file[0] != '\0') {
        note("no source at %s; --source-path=DIR says where it is", safe_text(file));
    }
}

static void print_function(struct list *list, uint32_t id) {
    const struct view *view = list->view;
    const struct listed *listed = &list->listed[id];
    const struct hit *hits = &list->hits[listed->hits];
    const struct source *source = source_of(list, listed->file);
    fprintf(view->out, "\n%s  %s", safe_text(listed->name),
            listed->file[0] != '\0' ? safe_text(listed->file) : "(unknown file)");
    fprintf(view->out, "   flat %s  cum %s\n", view_figure(view, view->type, listed->flat),
            view_figure(view, view->type, listed->cum));
    struct view_grid grid = {.columns = "rrrl"};
    for (uint32_t i = 0; i < listed->hit_count; i++) {
        put_window(&grid, view, source, &hits[i], i > 0 ? hits[i - 1].number : 0,
                   i + 1 < listed->hit_count ? hits[i + 1].number : 0);
    }
    view_grid_print(&grid, view->out);
    tell_absence(source, listed->file);
}

/* Each function gets its part of them. */
static void sort_hits(struct list *list) {
    if (list->lines.count > 0) {
        qsort(list->hits, list->lines.count, sizeof *list->hits, compare_hits);
    }
    for (uint32_t i = (uint32_t)list->lines.count; i-- > 0;) {
        struct listed *listed = &list->listed[list->hits[i].listed];
        listed->hits = i;
        listed->hit_count++;
    }
}

static void print_functions(struct list *list) {
    size_t count = list->functions.count, most = view_most_rows(list->view, SIZE_MAX);
    struct view_row *rows = must_alloc((count + 1) * sizeof *rows);
    size_t shown = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct listed *listed = &list->listed[i];
        if (!view_is_small(list->view, listed->cum.value, 0)) {
            rows[shown++] =
                (struct view_row){listed->cum.value, listed->flat.value, listed->name, i};
        }
    }
    view_sort(rows, shown);
    for (size_t i = 0; i < shown && i < most; i++) {
        print_function(list, rows[i].id);
    }
    if (shown == 0) {
        note("no function matches %s", safe_text(list->view->pattern));
    }
    free(rows);
}

bool view_list(struct view *view) {
    struct list list = {.view = view};
    view->by = BY_LINES;
    bool is_good = find_functions(&list);
    if (is_good) {
        view_index(view);
        count_samples(&list);
        sort_hits(&list);
        print_functions(&list);
        view_release(view);
    }
    source_free(&list.source);
    free(list.is_match);
    free(list.listed);
    free(list.hits);
    keys_free(&list.functions);
    keys_free(&list.lines);
    return is_good;
}
