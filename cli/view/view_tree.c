/* SPDX-License-Identifier: MIT
 *
 * view_tree.c - who called whom, from the roots, as a drawn tree.
 *
 *      118.2 MiB 100.0% main  server.c:412
 *      └─ 114.5 MiB  96.9% handle_request  server.c:301
 *         └─ 18.6 MiB  15.7% cache_insert  cache.c:88 ■■■
 *
 * The number is what came through the branch; the bar is what its end allocated itself, twenty squares
 * for everything.  The line is that of the allocation, or of the call on the way to all that is below; where
 * several lines call, there is none.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/glyph.h"
#include "common/keys.h"
#include "view/view.h"

enum { OWN_ROWS = 200, MOST_LEVELS = 256, BAR_SQUARES = 20 };
static const double own_share = 0.005;

/* Callers come before callees: a child's index is larger than its parent's. */
struct branch {
    uint32_t parent; /* PROFILE_NONE: a root */
    uint32_t slot;   /* of the heaviest sample */
    struct view_sum cum;
    int64_t flat;
    uint64_t heaviest;
    bool is_shown;
    bool has_own;        /* a sample ends here: the slot is of the heaviest such */
    bool has_many_lines; /* none does, and others are called from several lines */
};

struct tree {
    struct view *view;
    struct keys keys;
    struct branch *branches;
    uint32_t room;
    /* Shown branches sorted by parent, the heaviest first; where those of a parent begin, and the roots. */
    uint32_t *order, *first;
    size_t shown;
};

static uint32_t add_branch(struct tree *tree, uint32_t parent, uint32_t slot) {
    size_t count = tree->keys.count;
    uint32_t id = keys_add(&tree->keys, parent, tree->view->slot_node[slot], 0);
    if (id < count) {
        return id;
    }
    tree->branches = must_have_room(tree->branches, id, &tree->room, sizeof *tree->branches);
    tree->branches[id] = (struct branch){.parent = parent, .slot = slot};
    return id;
}

/* The line of the heaviest sample; what the function allocates itself goes before what it calls. */
static void note_line(const struct view *view, struct branch *branch, uint32_t slot, int64_t value,
                      bool is_end) {
    uint64_t weight = profile_magnitude(value);
    if (weight == 0 || (branch->has_own && !is_end)) {
        return;
    }
    bool is_first = branch->heaviest == 0 || (is_end && !branch->has_own);
    branch->has_own |= is_end;
    branch->has_many_lines =
        !branch->has_own && (branch->has_many_lines ||
                             (!is_first && view_line(view, slot) != view_line(view, branch->slot)));
    if (is_first || weight > branch->heaviest) {
        branch->heaviest = weight;
        branch->slot = slot;
    }
}

static void add_stack(struct tree *tree, uint32_t sample, uint32_t *slots) {
    int64_t value = profile_value(tree->view->profile, sample, tree->view->type);
    uint32_t count = view_unroll(tree->view, sample, slots), parent = PROFILE_NONE;
    for (uint32_t level = 0; level < count && level < MOST_LEVELS; level++) {
        uint32_t slot = slots[count - 1 - level];
        bool is_end = level + 1 == count || level + 1 == MOST_LEVELS;
        uint32_t id = add_branch(tree, parent, slot);
        struct branch *branch = &tree->branches[id];
        view_add(tree->view, &branch->cum, sample, tree->view->type);
        branch->flat = profile_sum(branch->flat, is_end ? value : 0);
        note_line(tree->view, branch, slot, value, is_end);
        parent = id;
    }
}

static struct view_row *make_rows(const struct tree *tree, size_t *count) {
    struct view_row *rows = must_alloc((tree->keys.count + 1) * sizeof *rows);
    *count = 0;
    for (uint32_t i = 0; i < tree->keys.count; i++) {
        const struct branch *branch = &tree->branches[i];
        bool is_empty = branch->cum.value == 0 && branch->flat == 0;
        if (!is_empty && !view_is_small(tree->view, branch->cum.value, own_share)) {
            rows[(*count)++] = (struct view_row){branch->cum.value, 0, "", i};
        }
    }
    return rows;
}

/* The heaviest, and their callers.  Among equals callers come first, so none is shown in vain. */
static void choose(struct tree *tree) {
    size_t count, most = view_most_rows(tree->view, OWN_ROWS);
    struct view_row *rows = make_rows(tree, &count);
    view_sort(rows, count);
    for (size_t i = 0; i < count && i < most; i++) {
        tree->branches[rows[i].id].is_shown = true;
    }
    for (size_t i = tree->keys.count; i-- > 0;) {
        const struct branch *branch = &tree->branches[i];
        if (branch->is_shown && branch->parent != PROFILE_NONE) {
            tree->branches[branch->parent].is_shown = true;
        }
    }
    free(rows);
}

/* Counting sort by parent over rows that are sorted by weight. */
static void arrange(struct tree *tree) {
    size_t count = tree->keys.count;
    struct view_row *rows = must_alloc((count + 1) * sizeof *rows);
    tree->first = must_zeroed((count + 2) * sizeof *tree->first);
    tree->order = must_alloc((count + 1) * sizeof *tree->order);
    for (uint32_t i = 0; i < count; i++) {
        const struct branch *branch = &tree->branches[i];
        if (branch->is_shown) {
            const char *name = view_sort_name(tree->view, branch->slot);
            rows[tree->shown++] = (struct view_row){branch->cum.value, branch->flat, name, i};
            tree->first[(branch->parent == PROFILE_NONE ? count : branch->parent) + 1]++;
        }
    }
    view_sort(rows, tree->shown);
    for (size_t i = 0; i <= count; i++) {
        tree->first[i + 1] += tree->first[i];
    }
    uint32_t *next = must_alloc((count + 1) * sizeof *next);
    memcpy(next, tree->first, (count + 1) * sizeof *next);
    for (size_t i = 0; i < tree->shown; i++) {
        uint32_t parent = tree->branches[rows[i].id].parent;
        tree->order[next[parent == PROFILE_NONE ? count : parent]++] = rows[i].id;
    }
    free(next);
    free(rows);
}

static void print_branch(const struct tree *tree, uint32_t id) {
    const struct view *view = tree->view;
    const struct branch *branch = &tree->branches[id];
    const char *place =
        branch->has_many_lines ? view_place_in(view, branch->slot) : view_place(view, branch->slot);
    fprintf(view->out, "%s %6s %s%s%s", view_figure(view, view->type, branch->cum),
            view_share(view, branch->cum.value), view_name(view, branch->slot),
            place[0] != '\0' ? "  " : "", place);
    double whole = fabs((double)view->whole);
    double squares = whole > 0 ? BAR_SQUARES * fabs((double)branch->flat) / whole : 0;
    for (int i = 0; i < BAR_SQUARES && i + 0.5 <= squares; i++) {
        fprintf(view->out, "%s%s", i == 0 ? " " : "", glyph(GLYPH_BAR));
    }
    fputc('\n', view->out);
}

/* Where the walk is on each level: the branches of `order` that are still to come. */
struct level {
    uint32_t next, end;
};

static void print_indent(const struct view *view, const struct level *levels, unsigned depth) {
    for (unsigned i = 1; i < depth; i++) {
        fputs(levels[i].next < levels[i].end ? glyph(GLYPH_PIPE) : "   ", view->out);
    }
    if (depth > 0) {
        bool is_last = levels[depth].next == levels[depth].end;
        fputs(glyph(is_last ? GLYPH_CORNER : GLYPH_TEE), view->out);
    }
}

static void print_tree(const struct tree *tree) {
    struct level levels[MOST_LEVELS + 1];
    size_t count = tree->keys.count;
    unsigned depth = 0;
    levels[0] = (struct level){tree->first[count], tree->first[count + 1]};
    for (;;) {
        if (levels[depth].next == levels[depth].end) {
            if (depth-- == 0) {
                return;
            }
            continue;
        }
        uint32_t id = tree->order[levels[depth].next++];
        print_indent(tree->view, levels, depth);
        print_branch(tree, id);
        if (tree->first[id] < tree->first[id + 1] && depth < MOST_LEVELS) {
            levels[++depth] = (struct level){tree->first[id], tree->first[id + 1]};
        }
    }
}

bool view_tree(struct view *view) {
    struct tree tree = {.view = view};
    view_index(view);
    uint32_t *slots = must_alloc(view->deepest * sizeof *slots);
    for (uint32_t i = 0; i < view->profile->sample_count; i++) {
        add_stack(&tree, i, slots);
    }
    choose(&tree);
    arrange(&tree);
    print_tree(&tree);
    view_print_more(view, tree.keys.count - tree.shown, "(--min=0 -n 0 shows all)");
    free(slots);
    free(tree.branches);
    free(tree.order);
    free(tree.first);
    keys_free(&tree.keys);
    view_release(view);
    return true;
}
