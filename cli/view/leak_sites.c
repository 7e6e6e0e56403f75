/* SPDX-License-Identifier: MIT
 *
 * leak_sites.c - samples of a leak check as places in the program.
 *
 * Rules are compared with the names of all functions, files and modules of a stack.  Sums are exact and the
 * samples may be estimates: what a rule takes out of the sums is never more than is there.
 */
#include "view/leak_sites.h"

#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "contract/suppress.h"
#include "select/select.h"

enum { FRAMES_SHOWN = 4, NAMES_MOST = 3 * 512 };

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* One line of a location, or the location where it has none. */
static void describe(const struct profile *profile, uint32_t location, uint32_t line, char *text,
                     size_t bytes) {
    const struct profile_location *at = &profile->locations[location];
    if (at->line_count > 0) {
        const struct profile_line *one = &profile->lines[at->lines + line];
        const struct profile_function *function = &profile->functions[one->function];
        if (one->number > 0 && function->file[0] != '\0') {
            snprintf(text, bytes, "%.150s (%.80s:%u)", safe_text(function->name),
                     safe_text(base_of(function->file)), one->number);
        } else {
            snprintf(text, bytes, "%.200s", safe_text(function->name));
        }
    } else if (at->mapping != PROFILE_NONE) {
        const struct profile_mapping *mapping = &profile->mappings[at->mapping];
        snprintf(text, bytes, "%.150s+0x%llx", safe_text(base_of(mapping->path)),
                 (unsigned long long)(at->address - mapping->start + mapping->offset));
    } else {
        snprintf(text, bytes, "0x%llx", (unsigned long long)at->address);
    }
}

bool leak_place_of_sample(const struct profile *profile, uint32_t sample,
                          char place[LEAK_PLACE_BYTES]) {
    const struct profile_sample *one = &profile->samples[sample];
    if (one->depth == 0) {
        place[0] = '\0';
        return false;
    }
    describe(profile, profile->stacks[one->stack], 0, place, LEAK_PLACE_BYTES);
    return true;
}

/* Who called main is of no interest. */
static bool is_main(const struct profile *profile, uint32_t location) {
    const struct profile_location *at = &profile->locations[location];
    if (at->line_count == 0) {
        return false;
    }
    const struct profile_line *outer = &profile->lines[at->lines + at->line_count - 1];
    return strcmp(profile->functions[outer->function].name, "main") == 0;
}

/* The innermost frames, those that were inlined among them. */
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
            char text[LEAK_PLACE_BYTES];
            describe(profile, location, line, text, sizeof text);
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

static void make_rule(const struct profile *profile, uint32_t sample, char rule[LEAK_PLACE_BYTES]) {
    const struct profile_sample *one = &profile->samples[sample];
    rule[0] = '\0';
    if (one->depth == 0) {
        return;
    }
    const struct profile_location *at = &profile->locations[profile->stacks[one->stack]];
    if (at->line_count > 0) {
        snprintf(rule, LEAK_PLACE_BYTES, "leak:^%.200s$",
                 safe_text(profile->functions[profile->lines[at->lines].function].name));
    } else if (at->mapping != PROFILE_NONE) {
        snprintf(rule, LEAK_PLACE_BYTES, "leak:%.200s",
                 safe_text(base_of(profile->mappings[at->mapping].path)));
    }
}

static uint32_t kind_of(const struct profile *profile, uint32_t sample) {
    static const char *const names[] = {"definite", "indirect", "possible"};
    const struct profile_sample *one = &profile->samples[sample];
    for (uint32_t i = 0; i < one->label_count; i++) {
        const struct profile_label *label = &profile->labels[one->labels + i];
        for (uint32_t kind = 0; label->text != NULL && kind < 3; kind++) {
            if (strcmp(label->key, "kind") == 0 && strcmp(label->text, names[kind]) == 0) {
                return kind;
            }
        }
    }
    return READ_LEAK_DEFINITE;
}

static struct leak_site *find_site(struct leak_sites *sites, uint32_t kind, const char *place) {
    for (uint32_t i = 0; i < sites->count; i++) {
        if (sites->rows[i].kind == kind && strcmp(sites->rows[i].place, place) == 0) {
            return &sites->rows[i];
        }
    }
    sites->rows = must_have_room(sites->rows, sites->count, &sites->room, sizeof *sites->rows);
    struct leak_site *site = &sites->rows[sites->count++];
    memset(site, 0, sizeof *site);
    site->kind = kind;
    snprintf(site->place, sizeof site->place, "%s", place);
    return site;
}

static int compare_sites(const void *a, const void *b) {
    const struct leak_site *left = a, *right = b;
    if (left->kind != right->kind) {
        return left->kind < right->kind ? -1 : 1;
    }
    if (left->bytes != right->bytes) {
        return left->bytes > right->bytes ? -1 : 1;
    }
    return strcmp(left->place, right->place);
}

void leak_sites_collect(struct leak_sites *sites, const struct profile *profile,
                        const char *arrow) {
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        char place[LEAK_PLACE_BYTES];
        (void)leak_place_of_sample(profile, i, place);
        struct leak_site *site = find_site(sites, kind_of(profile, i), place);
        int64_t bytes = profile_value(profile, i, 1);
        site->objects += profile_value(profile, i, 0);
        site->bytes += bytes;
        if (bytes > site->largest || site->path[0] == '\0') {
            site->largest = bytes;
            describe_path(profile, i, arrow, site->path);
            make_rule(profile, i, site->rule);
        }
    }
    if (sites->count == 0) {
        return;
    }
    qsort(sites->rows, sites->count, sizeof *sites->rows, compare_sites);
}

void leak_sites_free(struct leak_sites *sites) {
    free(sites->rows);
    *sites = (struct leak_sites){0};
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
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        struct suppress_rule rule;
        int64_t *values = &profile->values[(size_t)i * profile->type_count];
        if (values[0] == 0 ||
            !suppress_find(rules, names, names_of_sample(profile, i, names), &rule)) {
            continue;
        }
        struct read_leak_sum *sum = &leaks->sums[kind_of(profile, i)];
        count_match(matches, &rule, values[0]);
        take(&sum->objects, &gone->objects, values[0]);
        take(&sum->requested, &gone->requested, values[1]);
        values[0] = values[1] = 0;
    }
    /* What only they led to is of no interest either. */
    struct read_leak_sum *indirect = &leaks->sums[READ_LEAK_INDIRECT];
    if (leaks->sums[READ_LEAK_DEFINITE].objects == 0 && matches->count > 0) {
        take(&indirect->objects, &gone->objects, indirect->objects);
        take(&indirect->requested, &gone->requested, indirect->requested);
    }
}
