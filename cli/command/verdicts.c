/* SPDX-License-Identifier: MIT
 *
 * verdicts.c - verdicts as text, JSON, annotations of GitHub and a JUnit file.  Failures come first.
 */
#include "command/verdicts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/escape.h"
#include "view/view.h"

static void print_text(const struct verdicts *all, FILE *out) {
    struct view_grid grid = {.columns = "lll", .is_flush = true};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < all->count; i++) {
            const struct verdict *verdict = &all->rows[i];
            if (verdict->is_ok != (pass == 1)) {
                continue;
            }
            char head[64], rest[9000];
            snprintf(head, sizeof head, "%s%-4s%s  %-10s",
                     cli_style(out, verdict->is_ok ? STYLE_GOOD : STYLE_BAD),
                     verdict->is_ok ? "ok" : "FAIL", cli_style(out, STYLE_PLAIN), verdict->name);
            view_grid_put(&grid, head);
            view_grid_put(&grid, verdict->text);
            const struct verdict_place *site = &verdict->site;
            snprintf(rest, sizeof rest, "%s", verdict->detail);
            if (site->name != NULL && site->line != 0) {
                snprintf(rest, sizeof rest, "%.4000s %.4000s:%" PRIu32, site->name,
                         base_name(site->file), site->line);
            } else if (site->name != NULL) {
                snprintf(rest, sizeof rest, "%.4000s", site->name);
            }
            view_grid_put(&grid, rest);
        }
    }
    view_grid_print(&grid, out);
}

static void put_number(FILE *out, double value) {
    if (isfinite(value)) {
        fprintf(out, "%.15g", value);
    } else {
        fputs("null", out);
    }
}

/* What is known of the value, and what follows from it. */
static void put_interval(FILE *out, const struct verdict *verdict) {
    static const char *const kinds[] = {
        [FIGURE_EXACT] = "exact", [FIGURE_ESTIMATE] = "estimate", [FIGURE_UNKNOWN] = "unknown"};
    static const char *const words[] = {[FIGURE_WITHIN] = "within",
                                        [FIGURE_OVER] = "over",
                                        [FIGURE_NOISE] = "noise",
                                        [FIGURE_FEW] = "too few samples"};
    fprintf(out, ", \"kind\": \"%s\"", kinds[verdict->figure.kind]);
    if (verdict->figure.kind != FIGURE_EXACT) {
        fputs(", \"low\": ", out);
        put_number(out, verdict->figure.low);
        fputs(", \"high\": ", out);
        put_number(out, verdict->figure.high);
        fputs(", \"confidence\": 0.95", out);
    }
    fprintf(out, ", \"verdict\": \"%s\"", words[verdict->judgement]);
}

static void print_json(const struct verdicts *all, FILE *out) {
    fprintf(out, "{\"ok\": %s, \"checks\": [", all->failures == 0 ? "true" : "false");
    for (size_t i = 0; i < all->count; i++) {
        const struct verdict *verdict = &all->rows[i];
        fprintf(out, "%s\n  {\"name\": \"%s\", \"ok\": %s, \"value\": ", i > 0 ? "," : "",
                verdict->name, verdict->is_ok ? "true" : "false");
        put_number(out, verdict->figure.value);
        put_interval(out, verdict);
        fputs(", \"limit\": ", out);
        put_number(out, verdict->limit);
        fprintf(out, ", \"unit\": \"%s\", \"text\": ", verdict->unit);
        escape_json(out, verdict->text);
        if (verdict->site.name != NULL) {
            fputs(", \"function\": ", out);
            escape_json(out, verdict->site.name);
        }
        if (verdict->site.line != 0) {
            fputs(", \"file\": ", out);
            escape_json(out, verdict->site.file);
            fprintf(out, ", \"line\": %" PRIu32, verdict->site.line);
        }
        fputc('}', out);
    }
    fputs("\n]}\n", out);
}

/* Workflow commands end at the line; what would end a property early is percent-encoded. */
static void put_github(FILE *out, const char *text, bool is_property) {
    for (; *text != '\0'; text++) {
        bool is_special = strchr(is_property ? "%\r\n:," : "%\r\n", *text) != NULL;
        fprintf(out, is_special ? "%%%02X" : "%c", (unsigned char)*text);
    }
}

/* Annotations want paths as the repository has them: below the current folder. */
static void print_github(const struct verdicts *all, FILE *out) {
    for (size_t i = 0; i < all->count; i++) {
        const struct verdict *verdict = &all->rows[i];
        fputs(verdict->is_ok ? "::notice " : "::error ", out);
        if (verdict->site.line != 0) {
            fputs("file=", out);
            put_github(out, path_from_here(verdict->site.file), true);
            fprintf(out, ",line=%" PRIu32 ",", verdict->site.line);
        }
        fprintf(out, "title=tally check %s::", verdict->name);
        put_github(out, verdict->text, false);
        if (verdict->site.name != NULL) {
            fputs(", most of it in ", out);
            put_github(out, verdict->site.name, false);
        } else if (verdict->detail[0] != '\0') {
            fputs(", ", out);
            put_github(out, verdict->detail, false);
        }
        fputc('\n', out);
    }
}

static void print_junit(const struct verdicts *all, FILE *out) {
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<testsuites>\n<testsuite name=\"tally check\" tests=\"%zu\" failures=\"%zu\">\n",
            all->count, all->failures);
    for (size_t i = 0; i < all->count; i++) {
        const struct verdict *verdict = &all->rows[i];
        fprintf(out, "<testcase classname=\"tally\" name=\"%s\">", verdict->name);
        if (!verdict->is_ok) {
            fputs("<failure message=\"", out);
            escape_xml(out, verdict->text);
            fputs("\">", out);
            escape_xml(out, verdict->site.name != NULL ? verdict->site.name : verdict->detail);
            if (verdict->site.line != 0) {
                fputc(' ', out);
                escape_xml(out, verdict->site.file);
                fprintf(out, ":%" PRIu32, verdict->site.line);
            }
            fputs("</failure>", out);
        } else {
            fputs("<system-out>", out);
            escape_xml(out, verdict->text);
            fputs("</system-out>", out);
        }
        fputs("</testcase>\n", out);
    }
    fputs("</testsuite>\n</testsuites>\n", out);
}

int verdicts_print(const struct verdicts *all, unsigned format, const char *path) {
    static void (*const printers[])(const struct verdicts *, FILE *) = {print_text, print_json,
                                                                        print_github, print_junit};
    struct output output;
    if (!output_open(&output, path, false)) {
        return EXIT_OWN_FAILURE;
    }
    printers[format](all, output.file);
    return !output_close(&output) ? EXIT_OWN_FAILURE : all->failures > 0 ? EXIT_FOUND : EXIT_DONE;
}

void verdicts_free(struct verdicts *all) {
    for (size_t i = 0; i < all->count; i++) {
        free(all->rows[i].site.name);
        free(all->rows[i].site.file);
    }
}
