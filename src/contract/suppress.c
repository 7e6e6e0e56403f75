/* SPDX-License-Identifier: MIT
 *
 * suppress.c - reads rules of LeakSanitizer and compares names with them; needs no memory.
 */
#include "contract/suppress.h"

#include <string.h>

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

bool suppress_next(const char **text, struct suppress_rule *rule) {
    static const char kind[] = "leak:";
    while (**text != '\0') {
        const char *line = *text;
        const char *end = line + strcspn(line, "\n");
        *text = *end != '\0' ? end + 1 : end;
        while (line < end && is_blank(*line)) {
            line++;
        }
        while (end > line && is_blank(end[-1])) {
            end--;
        }
        size_t length = (size_t)(end - line);
        if (length > strlen(kind) && strncmp(line, kind, strlen(kind)) == 0) {
            *rule = (struct suppress_rule){line + strlen(kind), length - strlen(kind)};
            return true;
        }
    }
    return false;
}

/* Does the name match the pattern from its beginning?  After a mismatch the last star takes one character
 * more. */
static bool matches_from(const char *pattern, const char *end, bool to_the_end, const char *name) {
    const char *star = NULL, *resume = NULL;
    for (;;) {
        if (pattern == end && (!to_the_end || *name == '\0')) {
            return true;
        }
        if (pattern < end && *pattern == '*') {
            star = ++pattern;
            resume = name;
        } else if (pattern < end && *name != '\0' && *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL && *resume != '\0') {
            pattern = star;
            name = ++resume;
        } else {
            return false;
        }
    }
}

bool suppress_matches(const struct suppress_rule *rule, const char *name) {
    const char *pattern = rule->pattern, *end = pattern + rule->length;
    if (name == NULL) {
        return false;
    }
    bool from_start = pattern < end && *pattern == '^';
    pattern += from_start;
    bool to_the_end = pattern < end && end[-1] == '$';
    end -= to_the_end;
    for (;; name++) {
        if (matches_from(pattern, end, to_the_end, name)) {
            return true;
        }
        if (from_start || *name == '\0') {
            return false;
        }
    }
}

bool suppress_find(const char *text, const char *const *names, size_t count,
                   struct suppress_rule *rule) {
    while (suppress_next(&text, rule)) {
        for (size_t i = 0; i < count; i++) {
            if (suppress_matches(rule, names[i])) {
                return true;
            }
        }
    }
    return false;
}
