/* SPDX-License-Identifier: MIT
 *
 * suppress.h - lists of what is not to be reported, in the format of LeakSanitizer; shared with the command.
 *
 *      # a comment
 *      leak:libfontconfig          anything that has this in its name
 *      leak:^g_type_*_init$        ^ and $ are the ends of the name, * is any text
 *
 * A rule is compared with the names of functions, source files and modules on the call stack.  Lines of other
 * kinds (race:, interceptor_via_lib:) belong to other tools and are passed over.
 *
 * Threads     All functions may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A pattern; it lies in the text it was read from. */
struct suppress_rule {
    const char *pattern;
    size_t length;
};

/* Takes the next rule off a text that ends with NUL; false when there are no more. */
bool suppress_next(const char **text, struct suppress_rule *rule);

/* Does a name match?  NULL matches nothing. */
bool suppress_matches(const struct suppress_rule *rule, const char *name);

/* The first rule of a text that one of the names matches; false when none does. */
bool suppress_find(const char *text, const char *const *names, size_t count,
                   struct suppress_rule *rule);
