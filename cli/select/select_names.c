/* SPDX-License-Identifier: MIT
 *
 * select_names.c - what frames and metrics are called, and which functions are allocators' own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/cli.h"
#include "select/select.h"

static const char *address_text(uint64_t address) {
    static char text[24];
    snprintf(text, sizeof text, "0x%" PRIx64, address);
    return text;
}

/* Where an address without a name lies: "libfoo.so+0x1234", the same in every run, or as it is where
 * nobody knows the module. */
static const char *place_text(const struct profile *profile, const struct profile_location *at) {
    static char text[600];
    if (at->mapping >= profile->mapping_count || profile->mappings[at->mapping].path[0] == '\0') {
        return address_text(at->address);
    }
    const struct profile_mapping *mapping = &profile->mappings[at->mapping];
    snprintf(text, sizeof text, "%.512s+0x%" PRIx64, base_name(mapping->path),
             at->address - mapping->start + mapping->offset);
    return text;
}

static const char *module_name(const struct profile *profile,
                               const struct profile_location *location) {
    if (location->mapping < profile->mapping_count &&
        profile->mappings[location->mapping].path[0] != '\0') {
        return profile->mappings[location->mapping].path;
    }
    return "(unknown module)";
}

const char *select_frame_name(const struct profile *profile, uint32_t location, uint32_t line,
                              enum select_by by) {
    static char text[4600];
    const struct profile_location *at = &profile->locations[location];
    if (by == BY_MODULES && (at->address != 0 || at->mapping != PROFILE_NONE)) {
        return module_name(profile, at);
    }
    if (by == BY_ADDRESSES && at->address != 0) {
        return address_text(at->address);
    }
    if (line >= at->line_count) {
        return by == BY_FILES ? "(unknown file)" : place_text(profile, at);
    }
    const struct profile_line *row = &profile->lines[at->lines + line];
    const struct profile_function *function = &profile->functions[row->function];
    if (by == BY_FILES) {
        return function->file[0] != '\0' ? function->file : "(unknown file)";
    }
    if (by == BY_LINES && function->file[0] != '\0' && row->number != 0) {
        snprintf(text, sizeof text, "%.4096s:%" PRIu32, base_name(function->file), row->number);
        return text;
    }
    return function->name;
}

/* Is it the whole name of a function, with or without its parameters? */
static bool is_whole_name(const char *name, const char *text) {
    size_t length = strlen(text);
    return length > 0 && strncmp(name, text, length) == 0 &&
           (name[length] == '\0' || name[length] == '(');
}

bool select_is_whole_name(const struct profile *profile, const char *text) {
    for (uint32_t i = 0; i < profile->function_count; i++) {
        if (is_whole_name(profile->functions[i].name, text)) {
            return true;
        }
    }
    return false;
}

bool select_name_matches(const char *name, const char *text, const regex_t *regex, bool is_whole) {
    return is_whole ? is_whole_name(name, text) : regexec(regex, name, 0, NULL, 0) == 0;
}

/* Metrics. */

static void say_metrics(const struct profile *profile, const char *metric) {
    char names[512] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < profile->type_count && length < sizeof names - 1; i++) {
        int put = snprintf(names + length, sizeof names - length, "%s%s", i == 0 ? "" : ", ",
                           safe_text(profile->types[i].name));
        length += put > 0 ? (size_t)put : 0;
    }
    complain(EXIT_USAGE, "the profile has no %s; it has %s", safe_text(metric), names);
}

uint32_t select_metric(const struct profile *profile, const char *metric) {
    if (profile->type_count == 0) {
        complain(EXIT_BAD_INPUT, "the profile has no values");
        return PROFILE_NONE;
    }
    if (metric == NULL) {
        return profile->default_type < profile->type_count ? profile->default_type : 0;
    }
    uint32_t type = profile_find_type(profile, metric);
    if (type == PROFILE_NONE) {
        say_metrics(profile, metric);
    }
    return type;
}

/* Allocators' own frames: the first frame that is none of them is the one that allocated. */

static bool is_name_of(const char *name, const char *entry) {
    size_t length = strlen(entry);
    return strncmp(name, entry, length) == 0 && strchr("(<@", name[length]) != NULL; /* or ends */
}

/* Members of the C++ library that hand out memory, such as std::allocator<T>::allocate. */
static bool is_library_allocate(const char *name) {
    static const char *const homes[] = {"std::", "__gnu_cxx::", "boost::container::"};
    static const char *const members[] = {
        "::allocate",         "::_M_allocate",     "::_S_allocate", "::_M_get_node",
        "::_M_allocate_node", "::_M_allocate_map", "::_M_create",   "::_S_create"};
    for (size_t i = 0; i < sizeof homes / sizeof homes[0]; i++) {
        if (strncmp(name, homes[i], strlen(homes[i])) != 0) {
            continue;
        }
        for (size_t j = 0; j < sizeof members / sizeof members[0]; j++) {
            const char *found = strstr(name, members[j]);
            if (found != NULL && strchr("(<", found[strlen(members[j])]) != NULL) { /* or ends */
                return true;
            }
        }
    }
    return false;
}

bool select_is_allocator(const char *name) {
    static const char *const entries[] = {
        "malloc",           "calloc",        "realloc",          "reallocarray",
        "posix_memalign",   "aligned_alloc", "memalign",         "valloc",
        "pvalloc",          "mallocx",       "rallocx",          "xallocx",
        "smallocx",         "operator new",  "operator new[]",   "new",
        "newarray",         "new_nothrow",   "newarray_nothrow", "new_aligned",
        "newarray_aligned", "alloc",         "alloc_zeroed"};
    static const char *const families[] = {"",    "je_",     "tc_",    "tally_", "__libc_",
                                           "mi_", "__rust_", "__rdl_", "__rg_",  "__interceptor_"};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        size_t length = strlen(families[i]);
        if (strncmp(name, families[i], length) != 0) {
            continue;
        }
        for (size_t j = 0; j < sizeof entries / sizeof entries[0]; j++) {
            bool needs_family = j >= 15; /* too common a word alone */
            if (is_name_of(name + length, entries[j]) && (length > 0 || !needs_family)) {
                return true;
            }
        }
    }
    return strncmp(name, "_Znw", 4) == 0 || strncmp(name, "_Zna", 4) == 0 ||
           strncmp(name, "alloc::alloc::", 14) == 0 || strncmp(name, "alloc::raw_vec::", 16) == 0 ||
           strncmp(name, "<alloc::alloc::Global", 21) == 0 || is_library_allocate(name);
}
