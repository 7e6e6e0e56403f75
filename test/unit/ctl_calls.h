/* SPDX-License-Identifier: MIT
 *
 * ctl_calls.h - mallctl by name, with the value as a result or an argument, for tests of single names.
 */
#ifndef TALLY_TEST_CTL_CALLS_H
#define TALLY_TEST_CTL_CALLS_H

#include "control/snapshot.h"
#include "unit.h"

/* A name read and written as one type; the error is checked. */
#define READ_AS(type)                                                                              \
    static inline type read_##type(const char *name) {                                             \
        type value;                                                                                \
        size_t length = sizeof value;                                                              \
        check_eq(ctl_by_name(name, &value, &length, NULL, 0), 0);                                  \
        return value;                                                                              \
    }                                                                                              \
    static inline int write_##type(const char *name, type value) {                                 \
        return ctl_by_name(name, NULL, NULL, &value, sizeof value);                                \
    }                                                                                              \
    struct test_case
READ_AS(bool);
READ_AS(unsigned);
READ_AS(size_t);
READ_AS(ssize_t);
READ_AS(uint64_t);

static inline const char *read_text(const char *name) {
    const char *text;
    size_t length = sizeof text;
    check_eq(ctl_by_name(name, &text, &length, NULL, 0), 0);
    return text;
}

static inline int act(const char *name) {
    return ctl_by_name(name, NULL, NULL, NULL, 0);
}

#endif
