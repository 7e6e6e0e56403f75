/* SPDX-License-Identifier: MIT
 *
 * value.h - a value of an option or of a leaf of mallctl, and its type.
 *
 * One list of types for both, since every option is a leaf as well.  Options have those up to
 * VALUE_UINT32.
 */
#pragma once

#include <sys/types.h>

#include "base/common.h"

/* The last ones differ in the manual only: all are pointers. */
enum value_type {
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_STRING,
    VALUE_UNSIGNED,
    VALUE_SIZE,
    VALUE_SSIZE,
    VALUE_INT64,
    VALUE_UINT64,
    VALUE_UINT32,
    VALUE_UINT64_POINTER,
    VALUE_SIZE_POINTER,
    VALUE_HOOKS,
    VALUE_TEXT,
    VALUE_FUNCTION,
    VALUE_STRUCT, /* the help says which */
    VALUE_MEMBER, /* that of the member of a family of ctl.def */
    VALUE_TYPES,
};

union value {
    bool boolean;
    const char *string;
    unsigned number;
    size_t size;
    ssize_t ssize;
    int64_t int64;
    uint64_t uint64;
    uint32_t uint32;
    void *pointer;
};
