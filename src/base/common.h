/* SPDX-License-Identifier: MIT
 *
 * common.h - the few words every file uses: attributes, build flavours, alignment arithmetic.
 *
 * Everything here is arithmetic on values: nothing allocates, nothing can fail.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((noinline, cold))
#define EXPORT __attribute__((visibility("default")))
/* For variables the fast paths read: without it each costs one more instruction to address. */
#define HIDDEN __attribute__((visibility("hidden")))
/* For large variables of which most processes touch little or nothing.  The linker puts them behind
 * all others (src/CMakeLists.txt), so that those share a few pages. */
#define SPARSE __attribute__((section(".bss.sparse")))
/* For functions above the heap that every process calls as it starts, or every child of a fork.  The linker puts them side by
 * side, so that a start reads few pages of the library. */
#define STARTUP __attribute__((section(".text.startup")))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

#ifndef DEBUG_BUILD
#define DEBUG_BUILD 0
#endif
#ifndef TALLY_CHECK
#define TALLY_CHECK 1
#endif

/* Build flavours are enum constants and not #if, so that all code is always compiled. */
enum { DEBUG = DEBUG_BUILD, CHECKED = TALLY_CHECK };

/* The help of a table's row is for the tools that print the manual: in every program it would only be
 * one more page. */
#ifndef TALLY_HELP
#define TALLY_HELP 0
#endif
#define HELP(text) (TALLY_HELP ? (text) : NULL)

enum { CACHE_LINE = 64 };

static inline uintptr_t align_down(uintptr_t value, uintptr_t power_of_two) {
    return value & ~(power_of_two - 1);
}

static inline uintptr_t align_up(uintptr_t value, uintptr_t power_of_two) {
    return (value + power_of_two - 1) & ~(power_of_two - 1);
}

static inline bool is_power_of_two(uintptr_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

static inline size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static inline int saturate_int(size_t value) {
    return value > INT32_MAX ? INT32_MAX : (int)value;
}
