/* SPDX-License-Identifier: MIT
 *
 * export_svg.c - the flame graph as one picture that needs nothing else.
 *
 * Roots on top, each frame as wide as its share of the whole, callees below their callers, the
 * heaviest first.  Each module has a colour, in shades that separate neighbours; a legend names
 * them.  What is narrower than a quarter of a pixel, or below --min, is left out with all it calls,
 * and the picture says how many frames that is.
 *
 * It can be read without a script: numbers are in the titles that viewers show under the pointer.
 * The script zooms into a frame that is clicked and marks what a search finds.  No name ever enters
 * the script: it reads titles and sets attributes and texts.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "args/args.h"
#include "common/escape.h"
#include "common/text_table.h"
#include "export/call_tree.h"
#include "export/export.h"

enum { WIDTH = 1200, MARGIN = 10, ROW = 17, TOP = 56, LEGEND_ROW = 18, ROWS_MOST = 2000 };
static const double narrowest = 0.25, character_width = 6.7;

/* Light enough for dark text, and apart from each other for most eyes.  The last is for the rest. */
static const char *const colors[] = {"#f2b66d", "#9ecae9", "#a8d8a0", "#f0e07a",
                                     "#d9b3e0", "#f4a9a0", "#8fd3cf", "#d8c3a5",
                                     "#c9d98c", "#b7bfe8", "#d0d0d0"};
enum { COLORS = sizeof(colors) / sizeof(colors[0]) };

static const char style[] =
    "text{font-family:monospace;font-size:11px;fill:#222;pointer-events:none}"
    ".t{font-size:16px}.s{fill:#666}.b{fill:#06c;pointer-events:all;cursor:pointer}"
    ".f rect{stroke:#fff;stroke-width:.5;cursor:pointer}.f:hover rect{stroke:#000}"
    ".up{opacity:.5}.hit rect{fill:#e6008a}.off{display:none}";

static const char script[] =
    "(function(){\n"
    "'use strict';\n"
    "var W=1180,X=10,C=6.7,found=null;\n"
    "var all=Array.prototype.slice.call(document.querySelectorAll('.f'));\n"
    "var boxes=all.map(function(g){var r=g.querySelector('rect');return{g:g,r:r,"
    "t:g.querySelector('text'),x:+r.getAttribute('x'),w:+r.getAttribute('width'),"
    "y:+r.getAttribute('y'),n:g.querySelector('title').textContent.split('\\n')[0]};});\n"
    "function place(b,x,w){b.r.setAttribute('x',x);b.r.setAttribute('width',w);"
    "if(!b.t){if(w<30)return;b.t=document.createElementNS(b.r.namespaceURI,'text');"
    "b.t.setAttribute('y',b.y+12);b.g.appendChild(b.t);}"
    "var k=Math.floor((w-6)/C);b.t.setAttribute('x',x+3);"
    "b.t.textContent=k<3?'':b.n.length<=k?b.n:b.n.slice(0,k-1)+'\\u2026';}\n"
    "function zoom(z){boxes.forEach(function(b){var e=1e-3,g=b.g.classList;"
    "var inside=b.x>=z.x-e&&b.x+b.w<=z.x+z.w+e;"
    "var above=b.y<z.y&&b.x<=z.x+e&&b.x+b.w>=z.x+z.w-e;"
    "g.toggle('up',above);"
    "if(above){g.remove('off');place(b,X,W);}"
    "else if(inside&&b.y>=z.y){g.remove('off');place(b,X+(b.x-z.x)/z.w*W,b.w/z.w*W);}"
    "else g.add('off');});"
    "document.getElementById('reset').classList.toggle('off',z===boxes[0]);}\n"
    "function search(){var s=window.prompt('Find (regular expression)',found||'');"
    "if(s===null)return;found=s;var re=null;"
    "try{re=s?new RegExp(s):null;}catch(e){re=new RegExp(s.replace(/[^\\w\\s]/g,'\\\\$&'));}"
    "var spans=[];boxes.forEach(function(b,i){var hit=!!re&&i>0&&re.test(b.n);"
    "b.g.classList.toggle('hit',hit);if(hit)spans.push([b.x,b.x+b.w]);});"
    "spans.sort(function(a,b){return a[0]-b[0];});var sum=0,end=0;"
    "spans.forEach(function(p){if(p[1]>end){sum+=p[1]-Math.max(p[0],end);end=p[1];}});"
    "document.getElementById('found').textContent=re?'found '+(sum/W*100).toFixed(1)+' %':'';}\n"
    "boxes.forEach(function(b){b.g.addEventListener('click',function(){zoom(b);});});\n"
    "document.getElementById('reset').addEventListener('click',function(){zoom(boxes[0]);});\n"
    "var f=document.getElementById('search');f.classList.remove('off');"
    "f.addEventListener('click',search);\n"
    "window.addEventListener('keydown',function(e){"
    "if(e.key==='/'||(e.ctrlKey&&e.key==='f')){e.preventDefault();search();}"
    "else if(e.key==='Escape')zoom(boxes[0]);});\n"
    "})();\n";

struct picture {
    FILE *file;
    const struct profile *profile;
    const struct frame_table *table;
    const struct call_tree *tree;
    const char *unit;
    int64_t total;
    double narrowest;         /* of what is drawn, in pixels */
    int64_t *starts, *filled; /* of each node: where it begins, and where its next child begins */
    uint32_t rows, left_out;
    struct text_table modules;
    int64_t *module_values;
    uint32_t *module_colors;
};

static double x_of(const struct picture *picture, int64_t value) {
    return picture->total > 0 ? (double)value / (double)picture->total * (WIDTH - 2 * MARGIN) : 0;
}

static const char *module_of(const struct picture *picture, uint32_t node) {
    const char *name = base_name(picture->table->frames[picture->tree->nodes[node].frame].module);
    return name[0] != '\0' ? name : "[unknown]";
}

/* The own value of each module decides which modules get a colour. */
static void weigh_modules(struct picture *picture) {
    const struct call_tree *tree = picture->tree;
    for (uint32_t i = 1; i < tree->node_count; i++) {
        text_table_add(&picture->modules, module_of(picture, i));
    }
    size_t count = picture->modules.count + (size_t)1;
    picture->module_values = must_zeroed(count * sizeof(*picture->module_values));
    picture->module_colors = must_alloc(count * sizeof(*picture->module_colors));
    for (uint32_t i = 1; i < tree->node_count; i++) {
        int64_t *value =
            &picture->module_values[text_table_add(&picture->modules, module_of(picture, i))];
        *value = profile_sum(*value, tree->nodes[i].self);
    }
}

/* The heaviest module that has no colour yet; PROFILE_NONE: all have one. */
static uint32_t heaviest_module(const struct picture *picture) {
    uint32_t best = PROFILE_NONE;
    for (uint32_t i = 0; i < picture->modules.count; i++) {
        if (picture->module_colors[i] == COLORS - 1 &&
            (best == PROFILE_NONE || picture->module_values[i] > picture->module_values[best])) {
            best = i;
        }
    }
    return best;
}

static void color_modules(struct picture *picture) {
    for (uint32_t i = 0; i < picture->modules.count; i++) {
        picture->module_colors[i] = COLORS - 1;
    }
    for (uint32_t color = 0; color < COLORS - 1; color++) {
        uint32_t module = heaviest_module(picture);
        if (module == PROFILE_NONE) {
            return;
        }
        picture->module_colors[module] = color;
    }
}

/* Whether a node is drawn; its place is noted anyway, for the siblings after it. */
static bool lay_out(struct picture *picture, uint32_t node) {
    const struct call_node *at = &picture->tree->nodes[node];
    int64_t start = picture->filled[at->parent];
    picture->starts[node] = picture->filled[node] = start;
    picture->filled[at->parent] = profile_sum(start, at->total);
    return x_of(picture, at->total) >= picture->narrowest && at->depth < ROWS_MOST;
}

static void count_rows(struct picture *picture) {
    const struct call_tree *tree = picture->tree;
    uint32_t shown = 0;
    uint32_t node = call_tree_next(tree, 0);
    picture->starts[0] = picture->filled[0] = 0;
    while (node != 0) {
        bool is_drawn = lay_out(picture, node);
        shown += is_drawn;
        if (is_drawn && tree->nodes[node].depth > picture->rows) {
            picture->rows = tree->nodes[node].depth;
        }
        node = is_drawn ? call_tree_next(tree, node) : call_tree_skip(tree, node);
    }
    picture->left_out = tree->node_count - 1 - shown;
}

static void write_label(struct picture *picture, const char *name, double x, double y,
                        double width) {
    char room[ESCAPE_SHORT * 4 + 4];
    int characters = (int)((width - 6) / character_width);
    if (characters < 3) {
        return;
    }
    fprintf(picture->file, "<text x=\"%.1f\" y=\"%.0f\">", x + 3, y + 12);
    escape_xml(picture->file, escape_shorten(safe_text(name), (size_t)characters, room));
    fputs("</text>", picture->file);
}

static void write_box(struct picture *picture, uint32_t node, const char *name, const char *color) {
    const struct call_node *at = &picture->tree->nodes[node];
    double x = MARGIN + x_of(picture, picture->starts[node]), width = x_of(picture, at->total);
    double y = TOP + (double)at->depth * ROW;
    double share = picture->total > 0 ? (double)at->total / (double)picture->total * 100 : 0;
    fputs("<g class=\"f\"><title>", picture->file);
    escape_xml(picture->file, name);
    fprintf(picture->file, "\n%s (%.2f %%)", export_value_text(picture->unit, at->total), share);
    if (node != 0) {
        const struct frame *frame = &picture->table->frames[at->frame];
        fprintf(picture->file, ", %s itself\n", export_value_text(picture->unit, at->self));
        escape_xml(picture->file, module_of(picture, node));
        if (frame->file[0] != '\0') {
            putc(' ', picture->file);
            escape_xml(picture->file, frame->file);
        }
    }
    fprintf(picture->file,
            "</title><rect x=\"%.3f\" y=\"%.0f\" width=\"%.3f\" height=\"%d\" fill=\"%s\" "
            "fill-opacity=\"%.2f\"/>",
            x, y, width, ROW - 1, color, 1 - 0.1 * (at->frame % 4));
    write_label(picture, name, x, y, width);
    fputs("</g>\n", picture->file);
}

static void write_boxes(struct picture *picture) {
    const struct call_tree *tree = picture->tree;
    write_box(picture, 0, "all", colors[COLORS - 1]);
    uint32_t node = call_tree_next(tree, 0);
    while (node != 0) {
        bool is_drawn = x_of(picture, tree->nodes[node].total) >= picture->narrowest &&
                        tree->nodes[node].depth < ROWS_MOST;
        if (is_drawn) {
            uint32_t module = text_table_add(&picture->modules, module_of(picture, node));
            write_box(picture, node, picture->table->frames[tree->nodes[node].frame].name,
                      colors[picture->module_colors[module]]);
        }
        node = is_drawn ? call_tree_next(tree, node) : call_tree_skip(tree, node);
    }
}

static void write_head(struct picture *picture, unsigned height) {
    FILE *file = picture->file;
    fprintf(file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%d\" height=\"%u\" "
            "viewBox=\"0 0 %d %u\">\n<style>%s</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, height, WIDTH, height, style);
    fprintf(file, "<text class=\"t\" x=\"%d\" y=\"24\">", MARGIN);
    escape_xml(file, picture->profile->types[picture->profile->default_type].name);
    fprintf(file, " %s</text>\n<text class=\"s\" x=\"%d\" y=\"42\">",
            export_value_text(picture->unit, picture->total), MARGIN);
    fprintf(file, "total %" PRId64 " ", picture->total);
    escape_xml(file, picture->unit);
    fputs(" \xc2\xb7 callers above what they call", file);
    if (picture->left_out > 0) {
        fprintf(file, " \xc2\xb7 %u frames too small to be drawn", picture->left_out);
    }
    fputs("</text>\n<text id=\"found\" x=\"900\" y=\"24\"></text>\n"
          "<text id=\"reset\" class=\"b off\" x=\"1010\" y=\"24\">zoom out</text>\n"
          "<text id=\"search\" class=\"b off\" x=\"1110\" y=\"24\">search (/)</text>\n",
          file);
}

static void write_legend(struct picture *picture, unsigned y) {
    bool has_rest = picture->modules.count > COLORS - 1;
    for (uint32_t color = 0; color < COLORS; color++) {
        const char *name = color == COLORS - 1 && has_rest ? "other modules" : NULL;
        for (uint32_t i = 0; i < picture->modules.count && name == NULL; i++) {
            if (picture->module_colors[i] == color) {
                name = picture->modules.texts[i];
            }
        }
        if (name == NULL) {
            continue;
        }
        fprintf(picture->file, "<rect x=\"%d\" y=\"%u\" width=\"12\" height=\"12\" fill=\"%s\"/>",
                MARGIN, y, colors[color]);
        fprintf(picture->file, "<text x=\"%d\" y=\"%u\">", MARGIN + 18, y + 10);
        char room[ESCAPE_SHORT * 4 + 4];
        escape_xml(picture->file, escape_shorten(safe_text(name), ESCAPE_SHORT, room));
        fputs("</text>\n", picture->file);
        y += LEGEND_ROW;
    }
}

static void draw(struct picture *picture) {
    weigh_modules(picture);
    color_modules(picture);
    count_rows(picture);
    uint32_t legend = picture->modules.count < COLORS ? picture->modules.count : COLORS;
    unsigned below = TOP + (picture->rows + 1) * ROW + LEGEND_ROW;
    write_head(picture, below + legend * LEGEND_ROW + MARGIN);
    write_boxes(picture);
    write_legend(picture, below);
    fprintf(picture->file, "<script><![CDATA[\n%s]]></script>\n</svg>\n", script);
}

bool export_svg(const struct profile *profile, struct output *output) {
    struct frame_table *table = frame_table_new(profile, args_select.by);
    if (table == NULL) {
        return false;
    }
    struct call_tree *tree = call_tree_new(profile, table, profile->default_type);
    export_warn_negative(tree->skipped);
    struct picture picture = {.file = output->file,
                              .profile = profile,
                              .table = table,
                              .tree = tree,
                              .unit = profile->types[profile->default_type].unit,
                              .total = tree->nodes[0].total,
                              .narrowest = narrowest};
    double least = args_select.least_share * (WIDTH - 2 * MARGIN);
    picture.narrowest = least > narrowest ? least : narrowest;
    picture.starts = must_alloc(tree->node_count * sizeof(*picture.starts));
    picture.filled = must_alloc(tree->node_count * sizeof(*picture.filled));
    draw(&picture);
    free(picture.starts);
    free(picture.filled);
    free(picture.module_values);
    free(picture.module_colors);
    text_table_free(&picture.modules);
    call_tree_free(tree);
    frame_table_free(table);
    return true;
}
