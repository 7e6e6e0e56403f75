/* SPDX-License-Identifier: MIT
 *
 * opt_sources.h - what only opt_sources.c needs of opt.c.
 */
#pragma once

#include "base/common.h"

/* All options as in the table, no mistakes counted, no echo. */
void opt_reset(void);

/* For whoever writes an option's text past the table: texts nobody has written are not read. */
void opt_note_text(void);

/* Print each pair that is accepted, from now on. */
void opt_echo(bool echoes);

/* Mistakes in configuration texts, except in keys that come and go between versions. */
void opt_add_mistake(void);
unsigned opt_mistakes(void);

/* What the last valid pair of this name in a text says; nothing changes where there is none. */
void opt_look_for_switch(const char *text, const char *name, bool *value);

/* Text for a message: what a terminal would act on becomes '?', what does not fit is cut. */
void opt_quote(char *out, size_t capacity, const char *text, size_t length);
