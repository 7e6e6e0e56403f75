/* SPDX-License-Identifier: MIT
 *
 * export.c - the table of formats, and names that nobody can read.
 *
 * A hash is the same in every file, so that two anonymous profiles can be compared.  It hides names
 * from readers; anyone who guesses a name can check the guess.
 */
#include "export/export.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"

#define EXPORT(name, function, endings, is_binary, needs_graphviz, help)                           \
    {name, endings, function, is_binary, needs_graphviz},
const struct export_format export_formats[] = {
#include "export/exports.def"
    {.name = NULL},
};

const struct export_format *export_by_name(const char *name) {
    const struct export_format *format = export_formats;
    while (format->name != NULL && strcmp(format->name, name) != 0) {
        format++;
    }
    return format->name != NULL ? format : NULL;
}

/* The length of the longest ending that the path has; 0: none. */
static size_t match_ending(const char *endings, const char *path) {
    size_t best = 0, length = strlen(path);
    while (*endings != '\0') {
        size_t one = strcspn(endings, " ");
        if (one < length && memcmp(path + length - one, endings, one) == 0 && one > best) {
            best = one;
        }
        endings += one;
        endings += strspn(endings, " ");
    }
    return best;
}

const struct export_format *export_by_ending(const char *path) {
    const struct export_format *found = NULL;
    size_t best = 0;
    for (const struct export_format *format = export_formats; format->name != NULL; format++) {
        size_t length = match_ending(format->endings, path);
        if (length > best) {
            best = length;
            found = format;
        }
    }
    return found;
}

const char *export_value_text(const char *unit, int64_t value) {
    if (strcmp(unit, "bytes") == 0) {
        return size_text(value);
    }
    if (strcmp(unit, "nanoseconds") == 0 && value >= 0) {
        return duration_text((uint64_t)value);
    }
    return grouped_text(value);
}

uint32_t export_count_negative(const struct profile *profile) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        bool is_negative = false;
        for (uint32_t type = 0; type < profile->type_count; type++) {
            is_negative |= profile_value(profile, i, type) < 0;
        }
        count += is_negative;
    }
    return count;
}

void export_warn_negative(uint32_t negative) {
    if (negative > 0) {
        warn("values below zero are left out, in %u of the stacks", negative);
    }
}

/* The same in every version: two anonymous profiles can be compared. */
static uint64_t hash_name(const char *text) {
    uint64_t hash = hash_text(HASH_TEXT, text);
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
    return hash ^ hash >> 33;
}

/* An empty text says nothing and stays empty. */
static const char *hide(struct profile *profile, const char *text, const char *kind,
                        const char *ending) {
    if (text == NULL || text[0] == '\0') {
        return text;
    }
    char hidden[64];
    int length = snprintf(hidden, sizeof(hidden), "%s_%012" PRIx64 "%s", kind,
                          hash_name(text) & 0xffffffffffffu, ending);
    return profile_text(profile, hidden, (size_t)length);
}

/* Readers of maps know libraries by their ending. */
static const char *module_ending(const char *path) {
    return strstr(path, ".so") != NULL ? ".so" : "";
}

void export_anonymize(struct profile *profile) {
    for (uint32_t i = 0; i < profile->function_count; i++) {
        struct profile_function *function = &profile->functions[i];
        function->name = hide(profile, function->name, "function", "");
        function->system_name = hide(profile, function->system_name, "function", "");
        function->file = hide(profile, function->file, "file", "");
    }
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        struct profile_mapping *mapping = &profile->mappings[i];
        mapping->path = hide(profile, mapping->path, "/module", module_ending(mapping->path));
        mapping->build_id = "";
    }
    for (uint32_t i = 0; i < profile->label_count; i++) {
        profile->labels[i].text = hide(profile, profile->labels[i].text, "label", "");
    }
    for (uint32_t i = 0; i < profile->comment_count; i++) {
        profile->comments[i] = hide(profile, profile->comments[i], "comment", "");
    }
    static const char said[] = "names, paths and labels are hashes: tally export --anonymize";
    profile_add_comment(profile, profile_text(profile, said, sizeof(said) - 1));
}
