/* SPDX-License-Identifier: MIT
 *
 * json.h - JSON into an out, member by member.
 *
 * Commas come by themselves.  Strings are hostile: options come from the environment, names from
 * the program.  Whatever they hold, the text stays JSON, and strings add no lines to it.
 *
 * Threads     One out, one thread.
 */
#pragma once

#include "base/value.h"
#include "out/out.h"

/* Members of an object; in an array the key is NULL.  `bracket` is the opening one: { or [. */
void json_open(struct out *out, const char *key, char bracket);
void json_close(struct out *out, char bracket);
void json_number(struct out *out, const char *key, uint64_t number);
void json_hex(struct out *out, const char *key, uint64_t number); /* as a string: "0x1f" */
void json_string(struct out *out, const char *key, const char *text);
void json_value(struct out *out, const char *key, enum value_type type, union value value);

/* A value by itself: a text in quotes, escaped; or by its type: true, -1, "text".  NULL is "";
 * bytes that are not UTF-8 become U+FFFD. */
void json_quote(struct out *out, const char *text);
void json_print(struct out *out, enum value_type type, union value value);
