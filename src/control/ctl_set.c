/* SPDX-License-Identifier: MIT
 *
 * ctl_set.c - a name of mallctl, set by text from outside.
 *
 * Three questions are answered here: does the name exist, may it be set from outside (the rows of
 * ctl.def say so), and is the text a value of its type?  mallctl does the rest.
 */
#include "control/ctl_set.h"

#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "control/control.h"
#include "control/ctl.h"
#include "heap/heap.h"

static const char every_arena[] = "arena.4096.";
static const char run_word[] = "run"; /* the value for a name that runs something */

/* ---------------------------------------------------------------- what may be set */

#define CTL(path, type, access, function, help)
#define CTL_INSIDE(start, why) {start, why},
static const struct {
    const char *start, *why;
} inside[] = {
#include "control/ctl.def"
};
#undef CTL
#undef CTL_INSIDE

static bool is_inside(const char *path, const char *start) {
    size_t length = strlen(start);
    return strncmp(path, start, length) == 0 && (path[length] == '\0' || start[length - 1] == '.');
}

static const char *refuse_type(enum value_type type) {
    switch (type) {
    case VALUE_NONE:
    case VALUE_BOOL:
    case VALUE_STRING:
    case VALUE_TEXT:
    case VALUE_UNSIGNED:
    case VALUE_SIZE:
    case VALUE_SSIZE:
    case VALUE_INT64:
    case VALUE_UINT64:
    case VALUE_UINT32:
        return NULL;
    default:
        return "this cannot be set from outside: its value is an address in the process";
    }
}

const char *ctl_set_refusal_of(const struct ctl_row *row) {
    if (row->access == CTL_READ || row->access == CTL_OWN_READ) {
        return "this is only read";
    }
    for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++) {
        if (is_inside(row->path, inside[i].start)) {
            return inside[i].why;
        }
    }
    return refuse_type(row->type);
}

const char *ctl_set_refusal(const char *name) {
    const struct ctl_row *row = ctl_find(name);
    return row == NULL ? "there is no such name" : ctl_set_refusal_of(row);
}

/* ---------------------------------------------------------------- text to value and back */

static bool parse_unsigned(const char *text, uint64_t most, uint64_t *number) {
    return fmt_parse_number(text, strlen(text), number) && *number <= most;
}

static bool parse_signed(const char *text, int64_t *number) {
    uint64_t found;
    bool negative = text[0] == '-';
    if (!parse_unsigned(text + negative, INT64_MAX, &found)) {
        return false;
    }
    *number = negative ? -(int64_t)found : (int64_t)found;
    return true;
}

static const char *parse_bool(const char *text, bool *value) {
    *value = strcmp(text, "true") == 0;
    return *value || strcmp(text, "false") == 0 ? NULL : "the value is true or false";
}

/* NULL, or a sentence about what the value should be. */
static const char *parse_value(enum value_type type, const char *text, union value *value) {
    uint64_t number = 0;
    bool is_short = type == VALUE_UNSIGNED || type == VALUE_UINT32;
    switch (type) {
    case VALUE_NONE:
        return strcmp(text, run_word) == 0 ? NULL : "the value is the word run";
    case VALUE_BOOL:
        return parse_bool(text, &value->boolean);
    case VALUE_STRING:
    case VALUE_TEXT:
        value->string = text;
        return NULL;
    case VALUE_SSIZE:
    case VALUE_INT64:
        return parse_signed(text, &value->int64) ? NULL : "the value is a number, or -1";
    default:
        if (!parse_unsigned(text, is_short ? UINT32_MAX : UINT64_MAX, &number)) {
            return "the value is a number";
        }
        value->uint64 = number;
        return NULL;
    }
}

static void tell(enum value_type type, const union value *value, char text[CTL_SET_OLD_BYTES]) {
    switch (type) {
    case VALUE_BOOL:
        fmt_text(text, CTL_SET_OLD_BYTES, "%s", value->boolean ? "true" : "false");
        break;
    case VALUE_STRING:
        fmt_text(text, CTL_SET_OLD_BYTES, "%s", value->string);
        break;
    case VALUE_SSIZE:
    case VALUE_INT64:
        fmt_text(text, CTL_SET_OLD_BYTES, "%ld", (long)value->int64);
        break;
    default:
        fmt_text(text, CTL_SET_OLD_BYTES, "%lu", (unsigned long)value->uint64);
        break;
    }
}

/* ---------------------------------------------------------------- setting */

/* mallctl does not give the old value of a name that can only be written; a text would need
 * room. */
static bool tells_old(const struct ctl_row *row) {
    return (row->access == CTL_BOTH || row->access == CTL_OWN_BOTH) && row->type != VALUE_TEXT;
}

static int set_one(const struct ctl_row *row, const char *name, union value *value,
                   union value *old) {
    size_t size = ctl_type_size(row->type), old_size = size;
    bool reads = tells_old(row);
    return ctl_by_name(name, reads ? old : NULL, reads ? &old_size : NULL, size > 0 ? value : NULL,
                       size);
}

/* mallctl sets most settings of arenas one arena at a time. */
static int set_everywhere(const struct ctl_row *row, const char *name, union value *value,
                          union value *old) {
    int error = 0;
    for (unsigned a = arena_limit(); a > 0 && error == 0; a--) {
        char one[CTL_SET_OLD_BYTES];
        fmt_text(one, sizeof(one), "arena.%u.%s", a - 1, name + strlen(every_arena));
        error = arena_exists(a - 1) ? set_one(row, one, value, old) : 0;
    }
    return error;
}

const char *ctl_set(const char *name, const char *text, char old[CTL_SET_OLD_BYTES], int *error) {
    const struct ctl_row *row = ctl_find(name);
    union value value = {0}, before = {0};
    const char *mistake = parse_value(row->type, text, &value);
    old[0] = '\0';
    if (mistake != NULL) {
        return mistake;
    }
    bool one_by_one =
        row->type != VALUE_NONE && strncmp(name, every_arena, strlen(every_arena)) == 0;
    *error = one_by_one ? set_everywhere(row, name, &value, &before)
                        : set_one(row, name, &value, &before);
    if (*error == 0 && tells_old(row)) {
        tell(row->type, &before, old);
    }
    return NULL;
}
