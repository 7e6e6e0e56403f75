/* SPDX-License-Identifier: MIT
 *
 * leak_sites.c - samples of a leak check as places in the program.
 *
 * Rules are compared with the names of all functions, files and modules of a stack.  What hangs below an object
 * that a rule takes out goes with it.  Sums are exact and the samples may be estimates: what a rule takes out of
 * the sums is never more than is there.
 */
#include "view/leak_sites.h"

#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "contract/suppress.h"
#include "select/site.h"

enum { FRAMES_SHOWN = 4, NAMES_MOST = 3 * 512 };

/* The callers of main are of no interest. */
static bool is_main(const struct profile *profile, uint32_t location) {
    const struct profile_location *at = &profile->locations[location];
    if (at->line_count == 0) {
        return false;
    }
    const struct profile_line *outer = &profile->lines[at->lines + at->line_count - 1];
    return strcmp(profile->functions[outer->function].name, "main") == 0;
}

/* The innermost frames, including inlined ones. */
static void describe_path(const struct profile *profile, uint32_t sample, const char *arrow,
                          char path[LEAK_PATH_BYTES]) {
    const struct profile_sample *one = &profile->samples[sample];
    size_t at = 0;
    unsigned shown = 0;
    path[0] = '\0';
    for (uint32_t i = 0; i < one->depth && shown < FRAMES_SHOWN; i++) {
        uint32_t location = profile->stacks[one->stack + i];
        uint32_t lines = profile->locations[location].line_count;
        for (uint32_t line = 0; line < (lines > 0 ? lines : 1) && shown < FRAMES_SHOWN; line++) {
            char text[SITE_TEXT_BYTES];
            site_text(profile, location, line, text);
            at += (size_t)snprintf(path + at, LEAK_PATH_BYTES - at, "%s%s", shown > 0 ? arrow : "",
                                   text);
            at = at < LEAK_PATH_BYTES ? at : LEAK_PATH_BYTES - 1;
            shown++;
        }
        if (is_main(profile, location)) {
            return;
        }
    }
}

static void make_rule(const struct profile *profile, uint32_t sample, char rule[SITE_TEXT_BYTES]) {
    const struct profile_sample *one = &profile->samples[sample];
    rule[0] = '\0';
    if (one->depth == 0) {
        return;
    }
    const struct profile_location *at = &profile->locations[profile->stacks[one->stack]];
    if (at->line_count > 0) {
        snprintf(rule, SITE_TEXT_BYTES, "leak:^%.200s$",
                 safe_text(profile->functions[profile->lines[at->lines].function].name));
    } else if (at->mapping != PROFILE_NONE) {
        snprintf(rule, SITE_TEXT_BYTES, "leak:%.200s",
                 safe_text(base_name(profile->mappings[at->mapping].path)));
    }
}

static uint32_t kind_named(const char *name) {
    static const char *const names[] = {"definite", "indirect", "possible"};
    for (uint32_t kind = 0; kind < 3; kind++) {
        if (strcmp(name, names[kind]) == 0) {
            return kind;
        }
    }
    return READ_LEAK_DEFINITE;
}

static int compare_sites(const void *a, const void *b) {
    const struct leak_site *left = a, *right = b;
    if (left->kind != right->kind) {
        return left->kind < right->kind ? -1 : 1;
    }
    int64_t left_bytes = left->bytes + left->below_bytes;
    int64_t right_bytes = right->bytes + right->below_bytes;
    if (left_bytes != right_bytes) {
        return left_bytes > right_bytes ? -1 : 1;
    }
    return strcmp(left->place, right->place);
}

static struct leak_site *add_site(struct leak_sites *sites, const struct leak_site *site) {
    sites->rows = must_have_room(sites->rows, sites->count, &sites->room, sizeof *sites->rows);
    sites->rows[sites->count] = *site;
    return &sites->rows[sites->count++];
}

/* Samples without a stack belong to no site: of each kind they are a row without a place. */
static void add_stackless(struct leak_sites *sites, const struct profile *profile) {
    struct leak_site rows[READ_LEAK_SUMS] = {0};
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        if (profile->samples[i].depth == 0) {
            struct leak_site *row = &rows[kind_named(profile_label(profile, i, "kind"))];
            row->objects += profile_value(profile, i, 0);
            row->bytes += profile_value(profile, i, 1);
            row->below_objects += profile_value(profile, i, 2);
            row->below_bytes += profile_value(profile, i, 3);
        }
    }
    for (uint32_t kind = 0; kind < READ_LEAK_SUMS; kind++) {
        if (rows[kind].objects + rows[kind].below_objects != 0) {
            rows[kind].kind = kind;
            add_site(sites, &rows[kind]);
        }
    }
}

void leak_sites_collect(struct leak_sites *leaks, const struct profile *profile,
                        const char *arrow) {
    struct sites sites;
    sites_collect(&sites, profile, 1, BY_LINES, "kind", NULL);
    for (uint32_t i = 0; i < sites.count; i++) {
        const struct site *site = &sites.rows[i];
        const struct leak_site empty = {.kind = kind_named(site->label),
                                        .objects = site->values[0],
                                        .bytes = site->values[1],
                                        .below_objects = site->values[2],
                                        .below_bytes = site->values[3]};
        struct leak_site *row = add_site(leaks, &empty);
        site_text(profile, site->location, 0, row->place);
        describe_path(profile, site->sample, arrow, row->path);
        make_rule(profile, site->sample, row->rule);
    }
    sites_free(&sites);
    add_stackless(leaks, profile);
    if (leaks->count > 0) {
        qsort(leaks->rows, leaks->count, sizeof *leaks->rows, compare_sites);
    }
}

void leak_sites_free(struct leak_sites *sites) {
    free(sites->rows);
    *sites = (struct leak_sites){0};
}

static int64_t lost_at(const struct leak_sites *sites, const char *place) {
    int64_t lost = 0;
    for (uint32_t i = 0; i < sites->count; i++) {
        const struct leak_site *site = &sites->rows[i];
        bool is_leak = site->kind == READ_LEAK_DEFINITE || site->kind == READ_LEAK_INDIRECT;
        lost += is_leak && strcmp(site->place, place) == 0 ? site->bytes : 0;
    }
    return lost;
}

unsigned leak_sites_leave(const struct leak_sites *sites, struct growth *found, unsigned count) {
    unsigned left = 0;
    for (unsigned i = 0; i < count; i++) {
        struct growth one = found[i];
        int64_t lost = lost_at(sites, one.place);
        if (lost * 2 <= one.bytes) {
            one.per_hour *= (double)(one.bytes - lost) / (double)one.bytes;
            one.bytes -= lost;
            found[left++] = one;
        }
    }
    return left;
}

/* ---------------------------------------------------------------- rules */

static size_t names_of_sample(const struct profile *profile, uint32_t sample, const char **names) {
    const struct profile_sample *one = &profile->samples[sample];
    size_t count = 0;
    for (uint32_t i = 0; i < one->depth && count + 1 < NAMES_MOST; i++) {
        const struct profile_location *at = &profile->locations[profile->stacks[one->stack + i]];
        for (uint32_t line = 0; line < at->line_count && count + 3 < NAMES_MOST; line++) {
            const struct profile_function *function =
                &profile->functions[profile->lines[at->lines + line].function];
            names[count++] = function->name;
            names[count++] = function->file;
        }
        if (at->mapping != PROFILE_NONE) {
            names[count++] = profile->mappings[at->mapping].path;
        }
    }
    return count;
}

static void count_match(struct leak_matches *matches, const struct suppress_rule *rule,
                        int64_t objects) {
    char text[128];
    snprintf(text, sizeof text, "leak:%.*s", (int)rule->length, rule->pattern);
    matches->objects += objects;
    for (unsigned i = 0; i < matches->count; i++) {
        if (strcmp(matches->rows[i].rule, text) == 0) {
            matches->rows[i].objects += objects;
            return;
        }
    }
    if (matches->count < sizeof matches->rows / sizeof matches->rows[0]) {
        strcpy(matches->rows[matches->count].rule, text);
        matches->rows[matches->count++].objects = objects;
    }
}

static void take(int64_t *from, int64_t *to, int64_t amount) {
    amount = amount < *from ? amount : *from;
    *from -= amount;
    *to += amount;
}

void leak_sites_suppress(struct read_leaks *leaks, const char *rules,
                         struct leak_matches *matches) {
    static const char *names[NAMES_MOST];
    struct profile *profile = leaks->profile;
    struct read_leak_sum *gone = &leaks->sums[READ_LEAK_SUPPRESSED];
    struct read_leak_sum *indirect = &leaks->sums[READ_LEAK_INDIRECT];
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        struct suppress_rule rule;
        int64_t *values = &profile->values[(size_t)i * profile->type_count];
        uint32_t kind = kind_named(profile_label(profile, i, "kind"));
        if (values[0] == 0 || kind == READ_LEAK_INDIRECT ||
            !suppress_find(rules, names, names_of_sample(profile, i, names), &rule)) {
            continue;
        }
        count_match(matches, &rule, values[0] + values[2]);
        take(&leaks->sums[kind].objects, &gone->objects, values[0]);
        take(&leaks->sums[kind].requested, &gone->requested, values[1]);
        take(&indirect->objects, &gone->objects, values[2]);
        take(&indirect->requested, &gone->requested, values[3]);
        memset(values, 0, profile->type_count * sizeof *values);
    }
    if (leaks->sums[READ_LEAK_DEFINITE].objects == 0 && matches->count > 0) {
        take(&indirect->objects, &gone->objects, indirect->objects);
        take(&indirect->requested, &gone->requested, indirect->requested);
    }
}
