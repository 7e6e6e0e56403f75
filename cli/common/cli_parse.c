/* SPDX-License-Identifier: MIT
 *
 * cli_parse.c - sizes, times, shares and counts, as people write them.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"

/* A decimal number with or without a fraction; what follows it is in *rest. */
static bool parse_number(const char *text, double *number, const char **rest) {
    char *end = NULL;
    if (text[strspn(text, "0123456789.")] == 'e' || !('0' <= text[0] && text[0] <= '9') ||
        text[1] == 'x' || text[1] == 'X') {
        return false;
    }
    *number = strtod(text, &end);
    *rest = end;
    return end != text && isfinite(*number);
}

bool parse_count(const char *text, uint64_t *count) {
    char *end = NULL;
    if (!('0' <= text[0] && text[0] <= '9')) {
        return false;
    }
    errno = 0;
    *count = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

bool parse_size(const char *text, uint64_t *bytes) {
    static const char *const units[] = {"", "K", "M", "G", "T", NULL};
    double number = 0;
    const char *rest = NULL;
    if (parse_count(text, bytes)) {
        return true;
    }
    if (!parse_number(text, &number, &rest)) {
        return false;
    }
    if (strcmp(rest, "B") == 0) {
        rest = "";
    }
    for (unsigned i = 0; units[i] != NULL; i++) {
        size_t length = strlen(units[i]);
        bool is_unit = strncmp(rest, units[i], length) == 0 &&
                       (rest[length] == '\0' || (i > 0 && strcmp(rest + length, "iB") == 0));
        double value = ldexp(number, (int)(10 * i));
        if (is_unit && value < 9e18) {
            *bytes = (uint64_t)value;
            return true;
        }
    }
    return false;
}

bool parse_duration(const char *text, uint64_t *ns) {
    static const struct {
        const char *name;
        double ns;
    } units[] = {
        {"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9},
    };
    double number = 0;
    const char *rest = NULL;
    if (!parse_number(text, &number, &rest)) {
        return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        double value = number * units[i].ns;
        if (strcmp(rest, units[i].name) == 0 && value < 9e18) {
            *ns = (uint64_t)value;
            return true;
        }
    }
    return false;
}

bool parse_share(const char *text, double *share) {
    double number = 0;
    const char *rest = NULL;
    if (!parse_number(text, &number, &rest)) {
        return false;
    }
    if (strcmp(rest, "%") == 0) {
        number /= 100;
    } else if (*rest != '\0') {
        return false;
    }
    *share = number;
    return number <= 1;
}
