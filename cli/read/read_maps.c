/* SPDX-License-Identifier: MIT
 *
 * read_maps.c - mappings from the text that legacy profiles have after their samples.
 *
 * The text is what a process saw in /proc/self/maps, or what some other writer made of it.  A path goes to
 * the end of its line, blanks included.  Neighbours that show neighbouring parts of one file become one.
 */
#define _GNU_SOURCE /* qsort_r */
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "read/read_text.h"

/* The kernel's default limit is 65,530 mappings per process. */
enum { MAPPINGS_MOST = 1 << 16, ATTRIBUTES_MOST = 16 };

/* "build=/home/me": later paths may start with $build. */
struct attributes {
    struct attribute {
        struct text name, value;
    } rows[ATTRIBUTES_MOST];
    size_t count;
};

struct list {
    struct profile_mapping *mappings;
    uint32_t count, room;
};

/* ---------------------------------------------------------------- one line */

static void cut_end(struct text *text, const char *end) {
    size_t length = strlen(end);
    if ((size_t)(text->end - text->at) >= length && memcmp(text->end - length, end, length) == 0) {
        text->end -= length;
    }
}

/* "r-xp": four letters, and whether they allow execution.  False for anything else. */
static bool take_rights(struct text *text, bool *is_executable) {
    const char *at = text->at;
    if (text->end - at < 4 || strchr("r-", at[0]) == NULL || strchr("w-", at[1]) == NULL ||
        strchr("x-", at[2]) == NULL || strchr("ps-", at[3]) == NULL || memchr(at, 0, 4) != NULL) {
        return false;
    }
    *is_executable = at[2] == 'x';
    text->at += 4;
    return true;
}

/* Offset, device and inode of the kernel's form. */
static bool take_file_fields(struct text *text, uint64_t *offset) {
    struct text rest = *text;
    uint64_t major, minor;
    int64_t inode;
    if (!text_take_hex(&rest, offset) || !text_take_blanks(&rest) ||
        !text_take_hex(&rest, &major) || !text_take(&rest, ":") || !text_take_hex(&rest, &minor) ||
        !text_take_blanks(&rest) || !text_take_decimal(&rest, &inode)) {
        return false;
    }
    *text = rest;
    return true;
}

/* The last word, where it is hexadecimal and long enough for a build id; it is cut off. */
static struct text cut_build_id(struct text *text) {
    enum { LEAST = 8, MOST = 128 };
    const char *start = text->end;
    while (start > text->at && strchr("0123456789abcdef", start[-1]) != NULL && start[-1] != '\0') {
        start--;
    }
    struct text build_id = {start, text->end};
    size_t length = (size_t)(build_id.end - build_id.at);
    if (length < LEAST || length > MOST || start == text->at || start[-1] != ' ') {
        return (struct text){text->end, text->end};
    }
    text->end = start;
    text_trim(text);
    return build_id;
}

/* "(@1000)" at the end: the offset of the short form. */
static void cut_offset(struct text *text, uint64_t *offset) {
    const char *start = text->end;
    while (start > text->at && start[-1] != ' ') {
        start--;
    }
    struct text word = {start, text->end};
    if (text_take(&word, "(@") && text_take_hex(&word, offset) && text_take(&word, ")") &&
        text_is_empty(&word)) {
        text->end = start;
        text_trim(text);
    }
}

/* The path with the attribute that it starts with replaced. */
static const char *make_path(struct profile *profile, const struct attributes *attributes,
                             struct text path) {
    char longer[4096];
    struct text rest = path;
    for (size_t i = 0; i < attributes->count && text_starts_with(&path, "$"); i++) {
        const struct attribute *row = &attributes->rows[i];
        size_t name = (size_t)(row->name.end - row->name.at);
        size_t value = (size_t)(row->value.end - row->value.at);
        rest.at = path.at + 1;
        if ((size_t)(rest.end - rest.at) < name || memcmp(rest.at, row->name.at, name) != 0) {
            continue;
        }
        rest.at += name;
        size_t tail = (size_t)(rest.end - rest.at);
        if (value + tail <= sizeof longer) {
            memcpy(longer, row->value.at, value);
            memcpy(longer + value, rest.at, tail);
            return profile_text(profile, longer, value + tail);
        }
    }
    return profile_text(profile, path.at, (size_t)(path.end - path.at));
}

/* False: the line is no mapping, or not one of code. */
static bool take_mapping(struct profile *profile, const struct attributes *attributes,
                         struct text line, struct profile_mapping *mapping) {
    bool is_executable = true;
    struct text build_id = {line.end, line.end};
    memset(mapping, 0, sizeof *mapping);
    text_trim(&line);
    if (!text_take_hex(&line, &mapping->start) || !text_take(&line, "-") ||
        !text_take_hex(&line, &mapping->limit) || mapping->limit <= mapping->start) {
        return false;
    }
    text_take(&line, ":");
    text_take_blanks(&line);
    bool has_rights = take_rights(&line, &is_executable);
    text_take_blanks(&line);
    if (!has_rights || !take_file_fields(&line, &mapping->offset)) {
        build_id = cut_build_id(&line);
        cut_offset(&line, &mapping->offset);
    }
    text_trim(&line);
    cut_end(&line, " (deleted)");
    mapping->path = make_path(profile, attributes, line);
    mapping->build_id = profile_text(profile, build_id.at, (size_t)(build_id.end - build_id.at));
    return is_executable;
}

static bool take_attribute(struct attributes *attributes, struct text line) {
    text_trim(&line);
    const char *equals = text_find(&line, "=");
    if (equals == NULL || equals == line.at || attributes->count == ATTRIBUTES_MOST) {
        return false;
    }
    for (const char *c = line.at; c < equals; c++) {
        if ((*c < 'a' || *c > 'z') && (*c < 'A' || *c > 'Z') && *c != '_') {
            return false;
        }
    }
    struct text name = {line.at, equals}, value = {equals + 1, line.end};
    text_trim(&value);
    attributes->rows[attributes->count++] = (struct attribute){name, value};
    return true;
}

/* ---------------------------------------------------------------- all of them */

static bool continues(const struct profile_mapping *before, const struct profile_mapping *mapping) {
    return before->limit == mapping->start && before->path == mapping->path &&
           before->build_id == mapping->build_id && before->path[0] != '\0' &&
           before->offset + (before->limit - before->start) == mapping->offset;
}

static void add_to_list(struct list *list, const struct profile_mapping *mapping) {
    if (list->count > 0 && continues(&list->mappings[list->count - 1], mapping)) {
        list->mappings[list->count - 1].limit = mapping->limit;
        return;
    }
    list->mappings =
        must_have_room(list->mappings, list->count, &list->room, sizeof *list->mappings);
    list->mappings[list->count++] = *mapping;
}

/* "libfoo.so", "libfoo.so.6": not the program. */
static bool is_library(const char *path) {
    const char *ending = strstr(path, ".so");
    return ending != NULL && (ending[3] == '\0' || ending[3] == '.');
}

static uint32_t find_program(const struct list *list) {
    for (uint32_t i = 0; i < list->count; i++) {
        const char *path = list->mappings[i].path;
        if (path[0] == '/' && !is_library(path)) {
            return i;
        }
    }
    return 0;
}

static int compare_starts(const void *a, const void *b, void *profile) {
    const struct profile_mapping *mappings = ((const struct profile *)profile)->mappings;
    uint64_t first = mappings[*(const uint32_t *)a].start;
    uint64_t second = mappings[*(const uint32_t *)b].start;
    return (first > second) - (first < second);
}

static void sort_maps(struct read_maps *maps, struct profile *profile) {
    maps->profile = profile;
    maps->count = profile->mapping_count;
    maps->by_start = must_alloc(((size_t)maps->count + 1) * sizeof *maps->by_start);
    for (uint32_t i = 0; i < maps->count; i++) {
        maps->by_start[i] = i;
    }
    qsort_r(maps->by_start, maps->count, sizeof *maps->by_start, compare_starts, profile);
}

static bool is_leaf_line(struct text line) {
    return text_take(&line, READ_LEAF_IS_CALL) && text_is_empty(&line);
}

void read_maps_take(struct read_maps *maps, struct profile *profile, struct text text) {
    struct text_lines lines = {text, 0};
    struct attributes attributes = {.count = 0};
    struct list list = {0};
    struct text line;
    maps->leaf_is_call = false;
    while (text_next_line(&lines, &line) && list.count < MAPPINGS_MOST) {
        struct profile_mapping mapping;
        if (take_mapping(profile, &attributes, line, &mapping)) {
            add_to_list(&list, &mapping);
        } else if (is_leaf_line(line)) {
            maps->leaf_is_call = true;
        } else {
            take_attribute(&attributes, line);
        }
    }
    uint32_t program = find_program(&list);
    for (uint32_t i = 0; i < list.count; i++) {
        uint32_t from = i == 0 ? program : i <= program ? i - 1 : i;
        profile_add_mapping(profile, list.mappings[from]);
    }
    free(list.mappings);
    sort_maps(maps, profile);
}

uint32_t read_maps_find(const struct read_maps *maps, uint64_t address) {
    uint32_t low = 0, high = maps->count;
    while (low < high) { /* finds the number that start at or below the address */
        uint32_t middle = low + (high - low) / 2;
        if (maps->profile->mappings[maps->by_start[middle]].start <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0 || maps->profile->mappings[maps->by_start[low - 1]].limit <= address) {
        return PROFILE_NONE;
    }
    return maps->by_start[low - 1];
}

void read_maps_free(struct read_maps *maps) {
    free(maps->by_start);
}

/* The line that begins the section, wherever it stands. */
static const char *find_line(const struct text *text, const char *line) {
    struct text rest = *text;
    for (const char *found; (found = text_find(&rest, line)) != NULL; rest.at = found + 1) {
        if (found == text->at || found[-1] == '\n') {
            return found;
        }
    }
    return NULL;
}

struct text text_split_maps(struct text *text) {
    const char *found = find_line(text, "MAPPED_LIBRARIES:");
    if (found == NULL) {
        found = find_line(text, "--- Memory map:");
    }
    if (found == NULL) {
        return (struct text){text->end, text->end};
    }
    struct text_lines behind = {{found, text->end}, 0};
    struct text line;
    text_next_line(&behind, &line);
    text->end = found;
    return behind.rest;
}
